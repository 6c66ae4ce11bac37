"""`hermes batch run` and `python batch_runner.py` as programs against a loopback provider: what a person relies on when
the endpoint is sick, when the process is killed, and on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hermes.testing.faults import Fault, server_error
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import HERMES, KEY, Program, once, worker

ROOT = Path(__file__).parents[2]
#: The commands that a user finds in the announcement, as they stand there.
FIRST = """python batch_runner.py \\
    --dataset_file=data/prompts.jsonl \\
    --batch_size=10 \\
    --run_name=my_first_run \\
    --model=anthropic/claude-sonnet-4-6 \\
    --num_workers=4"""
SECOND = """python batch_runner.py \\
    --dataset_file=data/prompts.jsonl \\
    --batch_size=10 \\
    --run_name=my_first_run \\
    --resume"""
ATROPOS = """python batch_runner.py \\
--dataset_file=data/coding_tasks.jsonl \\
--run_name=atropos_run \\
--model=nous-hermes-3.1 \\
--num_workers=8 \\
--reasoning_effort=high"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def checkout(program: Program) -> Path:
    """A checkout with its environment, where `python` is one that has none of the packages."""
    folder = program.folder
    shutil.copy(ROOT / "batch_runner.py", folder)
    (folder / ".venv").symlink_to(sys.prefix)
    tools = folder.parent / "bin"
    tools.mkdir()
    (tools / "python").write_text(f'#!/bin/sh\nexec "{sys._base_executable}" "$@"\n', encoding="utf-8")  # type: ignore[attr-defined]
    (tools / "python").chmod(0o755)
    program.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return folder


def shell(program: Program, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command],
        cwd=program.folder,
        env=program.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_documented_command_for_a_trainer_needs_no_batch_size(program: Program, checkout: Path) -> None:
    (checkout / "data").mkdir()
    program.dataset('{"prompt": "Напишите функцию"}\n'.encode(), "data/coding_tasks.jsonl")
    with serve_in_thread(worker) as server:
        program.use(server)
        ran = shell(program, ATROPOS)
    assert ran.returncode == 0, ran
    assert "--batch_size is not given" in ran.stderr
    assert {request.model for request in server.requests} == {"nous-hermes-3.1"}
    assert [row["completed"] for row in program.rows("atropos_run")] == [True]


@pytest.mark.fault("B099")
def test_the_two_documented_commands_with_a_key_and_an_address_alone(program: Program, checkout: Path) -> None:
    (checkout / "data").mkdir()
    program.dataset(
        '{"prompt": "Напишите функцию"}\n{"prompt": "Создайте REST API"}\n{"prompt": "Напишите функцию"}\n'.encode(),
        "data/prompts.jsonl",
    )

    def sick_at_the_second(request: Request) -> Reply | Fault:
        return server_error() if "REST" in request.first_user and not healthy else worker(request)

    healthy = False
    program.configure("agent:\n  api_max_retries: 1\n")
    with serve_in_thread(sick_at_the_second) as server:
        program.use(server)
        first = shell(program, FIRST)
        assert first.returncode == 1, first
        assert "kept 2 rejected 0 failed 1 pending 0 of 3" in first.stdout.splitlines()[-1]
        healthy = True
        asked = len(server.requests)
        second = shell(program, SECOND)
        assert second.returncode == 0, second
        later = {request.first_user for request in server.requests[asked:]}
        assert {request.model for request in server.requests} == {"anthropic/claude-sonnet-4-6"}
        assert {request.key for request in server.requests} == {KEY}
    assert later == {"Создайте REST API"}, "what has ended is not asked for again"
    rows = program.rows("my_first_run")
    assert [row["prompt_index"] for row in rows] == [0, 1, 2]
    assert rows[1]["conversations"][0] == {"from": "human", "value": "Создайте REST API"}
    assert shell(program, SECOND).stdout.startswith("nothing is left to run")


def test_sixty_rows_of_a_sick_endpoint_and_then_of_a_healthy_one(program: Program) -> None:
    program.configure("agent:\n  api_max_retries: 1\n")
    data = program.dataset(60)
    with serve_in_thread(lambda _: server_error()) as server:
        ran = program.use(server).batch(f"--dataset_file={data}", "--run_name=r", "--num_workers=20")
    assert ran.code == 1, ran
    assert ran.out.splitlines()[-1].startswith("kept 0 rejected 0 failed 60 pending 0 of 60")
    assert "failed 60: server_error" in ran.out and "--resume" in ran.out.splitlines()[-1]
    checkpoint = json.loads((program.folder / "data" / "r" / "checkpoint.json").read_text(encoding="utf-8"))
    assert checkpoint["completed_prompts"] == []
    with serve_in_thread(worker) as server:
        resumed = program.use(server).batch("--run_name=r", "--resume", "--num_workers=20", model="")
    assert resumed.code == 0 and resumed.out.splitlines()[-1].startswith("kept 60 rejected 0 failed 0 pending 0 of 60")
    assert [row["prompt_index"] for row in program.rows("r")] == list(range(60))


@pytest.mark.fault("B102")
def test_killed_half_way_and_resumed_each_row_stands_once(program: Program) -> None:
    data = program.dataset(60)
    running: list[subprocess.Popen[bytes]] = []

    def deadly(request: Request) -> Reply | Fault:
        if request.number == 61:  # two requests a row: about half of the rows have ended
            running[0].send_signal(signal.SIGKILL)
        return worker(request)

    with serve_in_thread(deadly, latency=0.01) as server:
        program.use(server)
        command = [HERMES, "batch", "run", f"--dataset_file={data}", "--run_name=r", "--model=m", "--num_workers=4"]
        with subprocess.Popen(
            command, cwd=program.folder, env=program.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            running.append(process)
        assert process.returncode == -signal.SIGKILL
        before = server.count
        resumed = program.batch("--run_name=r", "--resume", model="")
        again = server.count - before
    assert resumed.code == 0, resumed
    assert resumed.out.splitlines()[-1].startswith("kept 60 rejected 0 failed 0 pending 0 of 60")
    assert [row["prompt_index"] for row in program.rows("r")] == list(range(60))
    batches = [row["prompt_index"] for number in range(6) for row in program.rows("r", f"batch_{number}.jsonl")]
    assert Counter(batches) == Counter(range(60))
    assert 60 <= again <= 2 * 60 - 20, "rows that had ended were not asked for again"


def test_a_terminal_shows_the_rows_with_their_children(program: Program, tmp_path: Path) -> None:
    data = program.dataset(b'{"prompt": "share this", "toolsets": ["delegation"]}\n')
    shown = Shown()

    async def family(request: Request) -> Reply:
        """A row that hands its work to two children; they report once they are seen."""
        if request.first_user.startswith("child"):
            return await once(lambda: "└─ ▶ sa-" in shown.text, reply(f"report of {request.first_user}"))
        if request.turn == 0:
            return reply(thinking="I share the work.", calls=[call("spawn_parallel", tasks=["child one", "child two"])])
        return reply("done", thinking="Both have reported.")

    leader, follower = os.openpty()
    os.set_inheritable(leader, False)
    program.environ |= {"TERM": "xterm-256color", "COLUMNS": "110", "LINES": "30"}
    with serve_in_thread(family) as server:
        program.use(server)
        command = [HERMES, "batch", "run", f"--dataset_file={data}", "--run_name=r", "--model=m"]
        with subprocess.Popen(
            command, cwd=program.folder, env=program.environ, stdin=follower, stdout=follower, stderr=follower
        ) as process:
            os.close(follower)
            shown.read(leader)
    assert process.returncode == 0, shown.text
    assert "▶ row_" in shown.text and "share this" in shown.text, shown.text
    assert "├─ ▶ sa-" in shown.text and "child one" in shown.text, shown.text
    assert "0/1 · kept 0" in shown.text
    last = shown.text.rpartition("\x1b[2K")[2]
    assert "1/1 · kept 1" in last and "▶" not in last, "the tasks leave the screen with the end of the run"
    assert "kept 1 rejected 0 failed 0 pending 0 of 1" in last


class Shown:
    """What came to a terminal until now."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    @property
    def text(self) -> str:
        return b"".join(self._parts).decode("utf-8", "replace")

    def read(self, terminal: int) -> None:
        """Read until nobody has the other end open any more."""
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 65_536):
                self._parts.append(part)
        os.close(terminal)


@pytest.mark.fault("B142")
@pytest.mark.parametrize("way", ["host", "allowed", "sandbox"])
def test_a_row_that_would_delete_at_home_is_denied_or_enclosed(program: Program, way: str, needs_tool: Any) -> None:
    if way == "sandbox":
        needs_tool("bwrap")
    else:
        program.environ["TERMINAL_ENV"] = "local"
    victim = program.home.parent / "x"
    victim.mkdir()
    (program.folder / "rows.jsonl").write_text('{"prompt": "go"}\n')
    script = [reply(calls=[call("terminal", command="rm -rf ~/x"), call("terminal", command="ls")]), reply("done")]
    more = ["--allow_host_commands"] if way == "allowed" else []
    with serve_in_thread(lambda request: script[min(request.turn, 1)]) as server:
        ran = program.use(server).run(
            "batch", "run", "--dataset_file=rows.jsonl", "--run_name=one", "--batch_size=1", *more
        )
    figures = json.loads((program.folder / "data" / "one" / "statistics.json").read_text())["approvals"]
    denied = 1 if way == "host" else 0
    assert (figures["calls"], figures["denied"], figures["denied_rate"]) == (2, denied, 50.0 * denied), ran.err
    assert figures["denied_by_reason"] == ({"it deletes files": 1} if denied else {})
    assert ("50 % of the tool calls were denied (1 of 2)" in ran.out + ran.err) is bool(denied)
    assert victim.exists() is (way != "allowed")
