"""A run whose rollouts are carried out where neither its folder nor its home is; the cluster is this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from hermes.batch.link import Connect, pipes
from hermes.batch.settings import new_settings
from hermes.batch.summary import StopCause
from hermes.cli.batch_engine import BatchEngine
from hermes.cli.carried import Carried, carry, unpack
from hermes.cli.options import GlobalOptions, Sources, open_sources
from hermes.core.errors import UsageError
from hermes.testing.faults import Fault, Stall
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from tests.batch.fakes import Desk
from tests.cli.conftest import Ran
from tests.cli.program import KEY, PASSED_ON, Program

OTHER = "sk-other-0123456789abcdef0123456789"


class Nodes:
    """A cluster of this machine: processes by pipes, whose environment has neither key nor home."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.asked: list[tuple[str | None, int]] = []
        scratch.mkdir()

    @asynccontextmanager
    async def __call__(
        self, address: str | None, each: int, say: Callable[[str], None]
    ) -> AsyncIterator[Sequence[Connect]]:
        self.asked.append((address, each))
        clean = ["env", "-i", f"PATH={os.environ['PATH']}", f"TMPDIR={self.scratch}", f"HOME={self.scratch}"]
        clean += [f"{name}={value}" for name, value in PASSED_ON.items()]
        yield [pipes([*clean, "TERMINAL_ENV=local", sys.executable, "-m", "hermes.cli.batch_worker"])] * (2 * each)

    def left(self) -> list[str]:
        return sorted(str(path.relative_to(self.scratch)) for path in self.scratch.glob("hermes-*/**/*"))


class Bench:
    """Runs of a folder on those nodes."""

    def __init__(self, path: Path) -> None:
        self.desk = Desk(path)
        self.nodes = Nodes(path / "nodes")
        self.environ: dict[str, str] = {}

    def sources(self, options: GlobalOptions) -> Sources:
        return open_sources(options, {"HERMES_HOME": os.environ["HERMES_HOME"], **self.environ})

    def engine(self) -> BatchEngine:
        engine = BatchEngine(
            GlobalOptions(model="test-model"), self.desk.data, sources=self.sources, cluster=self.nodes
        )
        engine.announce(self.desk.notes.append)
        return engine

    async def start(self, server: ProviderServer, **more: object) -> int:
        self.environ |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        return await self.desk.start(self.engine(), executor="ray", ray_address="cluster:1", **more)  # type: ignore[arg-type]


def writer(request: Request) -> Reply | Fault:
    """A model that reads a file of its workspace, writes another, and answers."""
    if request.turn == 0:
        return reply(thinking="look", calls=[call("terminal", command="cat seed; pwd; echo x > made; env")])
    return reply("done", thinking="seen")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def workers() -> list[int]:
    """The processes that this one started to carry rollouts out."""
    found = []
    for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text("ascii").split():
        with contextlib.suppress(OSError):  # another child that ended just now
            if b"batch_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


@pytest.mark.anyio
@pytest.mark.may_block
async def test_rows_come_from_elsewhere_with_their_folders_and_nothing_stays_there(bench: Bench) -> None:
    source = bench.desk.path / "source"
    source.mkdir()
    (source / "seed").write_text("planted", "utf-8")
    rows = [{"prompt": f"p{n}", "toolsets": ["terminal"], "cwd": str(source)} for n in range(6)]
    rows.append({"prompt": "p6", "toolsets": ["terminal"], "cwd": str(bench.desk.path / "nowhere")})
    bench.desk.dataset(rows)
    async with ProviderServer(writer) as server:
        assert await bench.start(server, processes=1) == 1
    kept = bench.desk.lines("trajectories.jsonl")
    assert [row["prompt_index"] for row in kept] == list(range(6))
    for row in kept:
        said = str(row["conversations"])
        assert "planted" in said and str(bench.nodes.scratch) in said
        assert KEY not in said
    (failed,) = bench.desk.lines("failed.jsonl")
    assert failed["reason"] == "environment_unavailable"
    nowhere = bench.desk.path / "nowhere"
    assert f'on {os.uname().nodename}: the "cwd" of the row, {nowhere}, is no folder here' in str(failed["detail"])
    assert not nowhere.exists() and failed["conversations"] == []
    assert bench.nodes.asked == [("cluster:1", 1)]
    assert sorted(path.name for path in source.iterdir()) == ["seed"]
    assert bench.nodes.left() == []
    assert not (bench.desk.data / "r" / "workspaces").exists()


@pytest.mark.anyio
@pytest.mark.may_block
@pytest.mark.fault("B111")
async def test_a_process_that_is_killed_elsewhere_costs_its_rollouts_in_flight_at_most(bench: Bench) -> None:
    bench.desk.dataset([{"prompt": f"p{n}", "toolsets": ["terminal"]} for n in range(12)])
    answered = 0

    def dying(request: Request) -> Reply | Fault:
        nonlocal answered
        answered += 1
        if answered == 8:
            os.kill(workers()[0], signal.SIGKILL)
        return writer(request)

    async with ProviderServer(dying) as server:
        assert await bench.start(server, num_workers=4) == 0
    assert sorted(row["prompt_index"] for row in bench.desk.batch_rows()) == list(range(12))
    assert bench.desk.json("statistics.json")["kept"] == 12
    assert any("died; another takes its place" in note for note in bench.desk.notes)
    assert answered <= 24 + 4
    assert bench.nodes.left() == []


@pytest.mark.anyio
@pytest.mark.may_block
async def test_what_was_begun_elsewhere_goes_on_there_at_the_next_start(bench: Bench) -> None:
    bench.desk.dataset([{"prompt": "p", "toolsets": ["terminal"]}])
    turns: list[int] = []

    def stopping(request: Request) -> Reply | Fault:
        turns.append(request.turn)
        if request.turn == 1 and turns.count(1) == 1:
            assert bench.desk.switch is not None
            bench.desk.switch.stop(StopCause(kind="interrupted", message="x", exit_code=130))
            return Stall()
        return writer(request)

    async with ProviderServer(stopping) as server:
        assert await bench.start(server) == 130
        assert any(name.endswith("run.db") for name in bench.nodes.left())
        assert await bench.start(server, resume=True) == 0
    assert turns == [0, 1, 1]
    assert bench.nodes.left() == []


def test_keys_of_the_servers_that_are_asked_go_along_and_no_others(bench: Bench, home: Path) -> None:
    home = home / ".hermes"
    home.mkdir()
    (home / ".env").write_text(f"OPENROUTER_API_KEY={OTHER}\nMY_KEY=sk-mine-0123456789\n", "utf-8")
    (home / "config.yaml").write_text(
        "agent:\n  max_turns: 7\n"
        f"model: {{default: m, base_url: http://127.0.0.1:6/v1, api_key: {OTHER}}}\n"
        "providers:\n"
        "  mine: {base_url: http://127.0.0.1:9/v1, key_env: MY_KEY}\n"
        f"  theirs: {{base_url: http://127.0.0.1:8/v1, api_key: {OTHER}}}\n"
        "notify:\n  webhook: http://127.0.0.1:7/secret-hook\n",
        "utf-8",
    )
    bench.environ |= {"ANTHROPIC_API_KEY": OTHER, "OPENAI_API_KEY": KEY}
    sources = bench.sources(GlobalOptions(model="mine/m"))
    carried = carry(sources, sources.endpoint())
    assert carried.dotenv == {"MY_KEY": "sk-mine-0123456789"} and carried.environ == {}
    assert (
        OTHER not in msgspec.json.encode(carried).decode()
        and "secret-hook" not in msgspec.json.encode(carried).decode()
    )
    there = unpack(msgspec.json.decode(msgspec.json.encode(carried), type=Carried), home / "none")
    opened = there(GlobalOptions(model="mine/m"))
    assert opened.endpoint() == sources.endpoint()
    assert opened.loaded.settings.agent.max_turns == 7
    assert "sk-mine" not in repr(carried)
    first = bench.sources(GlobalOptions())
    assert carry(first, first.endpoint()).values["model.api_key"] == OTHER, "where that server is the one asked"


def test_a_key_of_the_environment_is_first_there_as_it_is_here(bench: Bench, home: Path) -> None:
    home = home / ".hermes"
    home.mkdir()
    (home / ".env").write_text(f"OPENROUTER_API_KEY={OTHER}\n", "utf-8")
    (home / "config.yaml").write_text("fallback_providers:\n  - {provider: openrouter, model: m}\n", "utf-8")
    bench.environ |= {"OPENAI_API_KEY": KEY}
    options = GlobalOptions(model="gpt-5-mini")
    sources = bench.sources(options)
    carried = carry(sources, sources.endpoint())
    assert carried.dotenv == {"OPENROUTER_API_KEY": OTHER}
    assert unpack(carried, home / "none")(options).endpoint().api_key == KEY


@pytest.mark.anyio
@pytest.mark.may_block
async def test_a_key_on_the_command_line_is_refused_before_the_cluster_hears_of_it(bench: Bench) -> None:
    bench.desk.dataset([{"prompt": "p"}])
    async with ProviderServer(writer) as server:
        with pytest.raises(UsageError, match="environment"):
            await bench.start(server, api_key=KEY)
    assert not bench.nodes.asked


@pytest.mark.parametrize("given", [{"executor": "slurm"}, {"executor": "ray", "cwd_mode": "inplace"}])
def test_settings_that_make_no_sense_together(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="executor"):
        new_settings({"dataset_file": "x", "run_name": "r", **given})


def test_without_the_extra_the_way_to_it_is_named(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.dataset(1)
    with serve_in_thread(writer) as server:
        ran: Ran = program.use(server).batch(
            "--dataset_file=prompts.jsonl", "--run_name=r", "--executor=ray", "--ray_address=127.0.0.1:1"
        )
    assert ran.code == 2 and "pip install 'hermes-tasktree[ray]'" in ran.err
    assert program.runs() == []
