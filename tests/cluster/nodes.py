"""Rows on three nodes of a Ray cluster of this machine: a dead actor, a dead node, Ctrl+C, a pause, no key in sight.

Run by `make test-ray`, in a network namespace that has loopback alone; see `run` beside this file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from hermes.testing.faults import Fault
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from tests.cli.program import HERMES, KEY, Program

NODES = 3
WORKERS = 12
TURNS = 3
HERE = {"node_ip_address": "127.0.0.1"}


class Model:
    """Answers in `TURNS` turns with a command in each but the last, and counts what it answered."""

    def __init__(self) -> None:
        self.answered: Counter[tuple[str, int]] = Counter()

    def __call__(self, request: Request) -> Reply | Fault:
        self.answered[request.first_user, request.turn] += 1
        if request.turn < TURNS - 1:
            return reply(thinking="on", calls=[call("terminal", command="env; echo out > made")])
        return reply("done", thinking="enough")

    def repeats(self) -> int:
        return sum(count - 1 for count in self.answered.values())


class Run:
    """A run of so many rows on the cluster."""

    def __init__(self, program: Program, cluster: Cluster, rows: int) -> None:
        self.program, self.cluster, self.rows = program, cluster, rows
        self.folder = program.folder / "data" / "r"
        program.dataset(b"".join(b'{"prompt": "prompt %d", "toolsets": ["terminal"]}\n' % n for n in range(rows)))

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        given = ["--resume"] if (self.folder / "run.json").exists() else ["--dataset_file=prompts.jsonl"]
        given += [f"--num_workers={WORKERS}", "--executor=ray", f"--ray_address={self.cluster.address}", *more]
        with (self.program.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [HERMES, "batch", "run", "--run_name=r", "--batch_size=10", "--model=test-model", *given],
                cwd=self.program.folder,
                env=self.program.environ,
                stdout=log,
                stderr=log,
            )

    def ended(self) -> int:
        path = self.folder / "records.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def log(self) -> str:
        return (self.program.folder / "log").read_text("utf-8")

    def wait_for(self, condition: Callable[[], Any], process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 200
        while not condition():
            assert process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def to_the_end(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait(timeout=300)
        assert code == 0, self.log()

    def check(self) -> None:
        """Every row stands exactly once, with all that it did; nothing is left on the nodes, no key anywhere."""
        rows = self.program.rows("r")
        assert [row["prompt_index"] for row in rows] == list(range(self.rows))
        stored = [
            json.loads(line)["prompt_index"]
            for path in self.folder.glob("batch_*.jsonl")
            for line in path.read_text("utf-8").splitlines()
        ]
        assert sorted(stored) == list(range(self.rows))
        statistics = json.loads((self.folder / "statistics.json").read_text("utf-8"))
        assert (statistics["kept"], statistics["pending"], statistics["failed"]) == (self.rows, 0, 0)
        for row in rows:
            assert sum(turn["from"] == "gpt" for turn in row["conversations"]) == TURNS
            assert "RAY_" not in str(row["conversations"])
        assert not list(Path("/tmp").glob("hermes-*/*"))
        assert with_key(Path("/tmp/ray")) == [] and with_key(self.folder) == []
        assert KEY not in self.log() and "Traceback" not in self.log()


def with_key(folder: Path) -> list[Path]:
    """The files below a folder that hold the key."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if KEY.encode() in path.read_bytes()]


def actors() -> list[int]:
    """The processes of the actors that hold a process of a run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::Relay"):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has ended
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **HERE})
    for _ in range(NODES):
        made.add_node(num_cpus=2, **HERE)
    yield made
    made.shutdown()


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server(model: Model) -> Iterator[ProviderServer]:
    with serve_in_thread(model, latency=0.1, jitter=0.5, seed=3) as server:
        yield server


@pytest.fixture
def run(tmp_path: Path, cluster: Cluster, server: ProviderServer) -> Run:
    program = Program(tmp_path).use(server)
    program.environ["TERMINAL_ENV"] = "local"
    return Run(program, cluster, 90)


def test_two_processes_on_each_node_carry_every_row_out_once(run: Run, model: Model) -> None:
    process = run.start("--processes=2")
    run.wait_for(run.ended, process)
    assert len(actors()) == 2 * NODES
    run.to_the_end(process)
    run.check()
    assert model.repeats() == 0
    assert f"2 on each of {NODES} nodes" in run.log()


def test_an_actor_that_is_killed_goes_on_from_the_last_step(run: Run, model: Model) -> None:
    process = run.start()
    run.wait_for(lambda: run.ended() > 20, process)
    os.kill(actors()[0], signal.SIGKILL)
    run.to_the_end(process)
    run.check()
    assert "died; another takes its place" in run.log()
    assert model.repeats() <= WORKERS


def test_ctrl_c_ends_within_two_seconds_and_a_resume_goes_on(run: Run, model: Model) -> None:
    process = run.start()
    run.wait_for(lambda: run.ended() > 20, process)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    took = time.monotonic() - began
    assert 20 < run.ended() < run.rows
    run.to_the_end(run.start())
    run.check()
    assert model.repeats() <= WORKERS
    print(f"stopped after {took:.2f} s")
    assert took < 2.0 or os.getloadavg()[0] > (os.cpu_count() or 1)  # others have the processor


def test_a_pause_holds_what_runs_elsewhere_and_a_stop_ends_it(run: Run) -> None:
    process = run.start()
    run.wait_for(lambda: run.ended() > 5, process)
    assert run.program.run("batch", "pause", "r").code == 0
    run.wait_for(lambda: json.loads((run.folder / "status.json").read_text("utf-8"))["running"] == 0, process)
    assert 5 < run.ended() < run.rows
    assert run.program.run("batch", "unpause", "r").code == 0
    stopped = run.ended()
    run.wait_for(lambda: run.ended() > stopped + 5, process)
    assert run.program.run("batch", "stop", "r").code == 0
    assert process.wait(timeout=60) == 130
    run.to_the_end(run.start())
    run.check()


def test_a_run_that_is_killed_leaves_no_process_and_goes_on_later(run: Run, model: Model) -> None:
    process = run.start()
    run.wait_for(lambda: run.ended() > 20, process)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while actors():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    run.to_the_end(run.start())
    run.check()
    assert model.repeats() <= 2 * WORKERS


def test_what_the_cluster_cannot_give_is_refused_by_name(run: Run) -> None:
    process = run.start("--processes=5")
    assert process.wait(timeout=100) == 2
    assert "no node of the cluster" in run.log() and "has 5 CPUs" in run.log()
    assert run.program.runs() == []


def test_an_address_where_nothing_is(run: Run) -> None:
    ran = run.program.batch(
        "--dataset_file=prompts.jsonl", "--run_name=r", "--executor=ray", "--ray_address=127.0.0.1:1"
    )
    assert ran.code == 1 and "nobody answers at 127.0.0.1:1" in ran.err, ran
    assert run.program.runs() == []


def test_a_node_that_is_killed_costs_its_rollouts_in_flight(run: Run, model: Model, cluster: Cluster) -> None:
    process = run.start()
    run.wait_for(lambda: run.ended() > 20, process)
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    run.to_the_end(process)
    run.check()
    assert "died; another takes its place" in run.log()
    assert model.repeats() <= WORKERS * TURNS


def test_without_its_head_a_run_ends_whole(run: Run, cluster: Cluster) -> None:
    """Last, for the cluster is gone after it. Left to Ray, the process would be ended where it stands."""
    run.program.dataset(b"".join(b'{"prompt": "prompt %d", "toolsets": ["terminal"]}\n' % n for n in range(3_000)))
    process = run.start()
    run.wait_for(lambda: run.ended() > 20, process)
    cluster.head_node.kill_gcs_server()
    assert process.wait(timeout=200) == 1, run.log()
    assert "is gone. Start it, then use --resume" in run.log()
    statistics = json.loads((run.folder / "statistics.json").read_text("utf-8"))
    assert statistics["kept"] == run.ended() > 20 and statistics["kept"] + statistics["pending"] == 3_000
