"""`hermes batch run --record` and `--replay` with several processes: one file, whoever of them did what."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import HERMES, KEY, Program, once

ROWS = 8
PROMPTS = [f"prompt {number % 6}" for number in range(ROWS)]  # two of them stand there twice


#: A verifier that waits the first time that it is asked after `begun` went.
WAITS = """
import os

def for_the_gate(rollout):
    try:
        os.mkdir(rollout["row"]["begun"])
    except FileExistsError:
        return 1.0
    with open(rollout["row"]["gate"]) as gate:
        gate.read()
    return 1.0
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = Program(tmp_path)
    made.environ["TERMINAL_ENV"] = "local"
    made.dataset(b"".join(b'{"prompt": "%s", "toolsets": ["terminal"]}\n' % text.encode() for text in PROMPTS))
    return made


class Model:
    """Runs a command, then answers with a number that no other answer has. The second request of `held` waits."""

    def __init__(self, held: str = "") -> None:
        self.held = held
        self.waits = False
        self.go_on = False
        self.answers = 0

    def __call__(self, request: Request) -> Reply | Any:
        if request.turn == 0:
            return reply(thinking="I look.", calls=[call("terminal", command=f"touch ran; echo $$ {KEY}")])
        self.answers += 1
        step = reply(f"answer {self.answers}", thinking="I have seen it.")
        if request.first_user != self.held:
            return step
        self.waits = True
        return once(lambda: self.go_on, step)


def batch(program: Program, name: str, *more: str) -> list[str]:
    given = ["--dataset_file=prompts.jsonl", f"--run_name={name}", "--batch_size=4", "--num_workers=4", *more]
    return [HERMES, "batch", "run", *given]


def run(program: Program, name: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        batch(program, name, *more),
        cwd=program.folder,
        env=program.environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def told(program: Program, name: str) -> list[tuple[int, str]]:
    """What each row was answered, and what its command printed."""
    return [
        (row["prompt_index"], re.sub(r'"(time|duration)": [\d.]+', "", str(row["conversations"][1:])))
        for row in program.rows(name)
    ]


def without_server(program: Program) -> Program:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        program.environ.pop(name)
    (program.folder / "ran").unlink(missing_ok=True)
    return program


def replays(program: Program, name: str, processes: int) -> None:
    """The recording gives each row what it had, in so many processes, and all of it."""
    again = run(program, name, f"--processes={processes}", "--replay=tape.jsonl")
    assert again.returncode == 0, again.stderr
    assert f"replayed {3 * ROWS} of {3 * ROWS} entries of " in again.stderr
    assert again.stderr.count("replayed") == 2, "once in the line of the key, once at the end"
    assert told(program, name) == told(program, "first")


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill_workers(process: subprocess.Popen[Any]) -> None:
    """Kill the processes that carry out the rows of a run."""
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)


def test_what_two_processes_recorded_any_number_of_them_replays(program: Program) -> None:
    with serve_in_thread(Model()) as server:
        program.use(server)
        first = run(program, "first", "--model=m", "--processes=2", "--record=tape.jsonl")
        assert len(server.requests) == 2 * ROWS
    assert first.returncode == 0, first.stderr
    tape = program.folder / "tape.jsonl"
    assert f"recorded {2 * ROWS} replies and {ROWS} calls to {tape}" in first.stderr
    assert [path.name for path in program.folder.glob("tape*")] == ["tape.jsonl"]
    assert tape.stat().st_mode & 0o777 == 0o600 and KEY not in tape.read_text("utf-8")
    replays(without_server(program), "again", 3)
    program.dataset(b'{"prompt": "prompt 0", "toolsets": ["terminal"]}\n{"prompt": "prompt 9"}\n')
    other = run(program, "other", "--processes=2", "--replay=tape.jsonl")
    assert other.returncode == 1 and "this was not recorded (row:" in other.stderr and '"prompt 0"' in other.stderr


def test_what_nobody_asked_for_is_told_once(program: Program) -> None:
    with serve_in_thread(Model()) as server:
        program.use(server)
        first = run(program, "first", "--model=m", "--record=tape.jsonl")
    assert first.returncode == 0, first.stderr
    few = run(without_server(program), "few", "--processes=2", "--max_samples=7", "--replay=tape.jsonl")
    assert few.returncode == 1, few.stderr
    assert f"replayed {3 * 7} of {3 * ROWS} entries of " in few.stderr
    assert few.stderr.count('.2 ("prompt 1"): reply 1 was recorded and never asked for') == 1


def test_a_process_that_is_killed_leaves_a_recording_with_every_row_whole(program: Program) -> None:
    """What it had ended stands; what it was at is recorded by the one that does it again."""
    model = Model(held="prompt 5")
    with serve_in_thread(model) as server:
        program.use(server)
        command = batch(program, "first", "--model=m", "--processes=2", "--record=tape.jsonl")
        with subprocess.Popen(command, cwd=program.folder, env=program.environ, stderr=subprocess.PIPE) as process:
            records = program.folder / "data" / "first" / "records.jsonl"
            wait_for(lambda: model.waits and records.read_bytes().count(b"\n") == ROWS - 1, process)
            kill_workers(process)
            model.go_on = True
            assert process.wait(timeout=200) == 0
            assert process.stderr is not None
            said = process.stderr.read().decode()
        assert "died; another takes its place" in said
        assert len(server.requests) == 2 * ROWS + 2, "only the row that was under way is asked for again"
    assert [path.name for path in program.folder.glob("tape*")] == ["tape.jsonl"]
    replays(without_server(program), "again", 1)


def test_a_replay_whose_process_is_killed_begins_its_row_anew(program: Program, tmp_path: Path) -> None:
    """A tape holds rollouts whole: one cannot go on in the middle of it. The row under way is held by its verifier,
    which waits the first time that it runs in the replay."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    os.mkfifo(gate)
    (program.folder / "waits.py").write_text(WAITS, encoding="utf-8")
    rows: list[dict[str, Any]] = [{"prompt": text, "toolsets": ["terminal"]} for text in PROMPTS]
    check = {"type": "python", "function": "waits:for_the_gate", "timeout": 400}
    rows[5] |= {"verifier": check, "begun": str(begun), "gate": str(gate)}
    program.dataset("".join(json.dumps(row) + "\n" for row in rows).encode())
    begun.mkdir()
    with serve_in_thread(Model()) as server:
        program.use(server)
        first = run(program, "first", "--model=m", "--record=tape.jsonl", "--verifier_modules=waits")
    assert first.returncode == 0, first.stderr
    begun.rmdir()
    again = ("again", "--processes=2", "--replay=tape.jsonl", "--verifier_modules=waits")
    command = batch(without_server(program), *again)
    held_open = os.open(gate, os.O_RDWR)  # whoever reads waits until it is closed
    try:
        with subprocess.Popen(command, cwd=program.folder, env=program.environ, stderr=subprocess.PIPE) as process:
            records = program.folder / "data" / "again" / "records.jsonl"
            ended = lambda: records.exists() and records.read_bytes().count(b"\n") == ROWS - 1  # noqa: E731
            wait_for(lambda: begun.exists() and ended(), process)
            kill_workers(process)
            assert process.wait(timeout=200) == 0
            assert process.stderr is not None
            said = process.stderr.read().decode()
    finally:
        os.close(held_open)
    assert "died; another takes its place" in said
    assert f"replayed {3 * ROWS} of {3 * ROWS} entries of " in said and "is not the recording" not in said
    assert told(program, "again") == told(program, "first")


def test_an_interrupted_recording_keeps_what_ended_and_no_other_run_records_there(program: Program) -> None:
    model = Model(held="prompt 5")
    with serve_in_thread(model) as server:
        program.use(server)
        command = batch(program, "first", "--model=m", "--processes=2", "--record=tape.jsonl")
        with subprocess.Popen(command, cwd=program.folder, env=program.environ, stderr=subprocess.PIPE) as process:
            records = program.folder / "data" / "first" / "records.jsonl"
            wait_for(lambda: model.waits and records.read_bytes().count(b"\n") == ROWS - 1, process)
            second = run(program, "second", "--model=m", "--processes=2", "--record=tape.jsonl")
            assert second.returncode == 2 and "another process is recording to" in second.stderr
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=200) == 130
    lines = [json.loads(line) for line in (program.folder / "tape.jsonl").read_text("utf-8").splitlines()]
    ended = {line["task"] for line in lines if line["type"] == "end" and line["state"] == "completed"}
    assert len(ended) == ROWS - 1
    assert [path.name for path in program.folder.glob("tape*")] == ["tape.jsonl"]


def test_a_cluster_shares_no_file(program: Program) -> None:
    ran = run(program, "first", "--model=m", "--executor=ray", "--ray_address=127.0.0.1:1", "--record=tape.jsonl")
    assert ran.returncode == 2, ran.stderr
    assert "--record and --executor=ray exclude each other" in ran.stderr and "--processes=N" in ran.stderr
    assert program.runs() == [] and not list(program.folder.glob("tape*"))
