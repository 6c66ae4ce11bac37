"""A run that is killed again and again while its provider is sick: nothing is lost, doubled, or paid for more often
than the kills explain."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from hermes.testing.faults import Disconnect, Fault, rate_limited, server_error
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from tests.cli.program import HERMES, Program

#: Calls of the model in one row.
TURNS = 4
WORKERS = 6


#: A few kills may take minutes where others have the processor; many do in any case.
LONG = pytest.mark.timeout(600)
MANY = (pytest.mark.slow, pytest.mark.timeout(600))


class Sick:
    """A model of `TURNS` turns, every so often with a fault in place of a reply; counts what it really answered. It
    names how soon it may be asked again; only a lost connection, while there are any, costs the seconds of a retry."""

    def __init__(self, chance: random.Random, limits: bool) -> None:
        self._chance = chance
        self._limits = limits
        self.loses_connections = True
        self.answered: list[tuple[str, int]] = []

    def __call__(self, request: Request) -> Reply | Fault:
        step = self._chance.random()
        if step < 0.03 and self._limits:
            return rate_limited("0")
        if step < 0.06:
            return msgspec.structs.replace(server_error(), headers={"Retry-After": "0"})
        made = self._reply(request)
        if step < 0.09 and self.loses_connections:
            return Disconnect(reply=made if step < 0.075 else None)
        self.answered.append((request.first_user, request.turn))
        return made

    @staticmethod
    def _reply(request: Request) -> Reply:
        if request.turn < TURNS - 1:
            return reply(thinking="on", calls=[call("terminal", command=f"echo {request.turn}")], gap=0.003)
        return reply("done", thinking="enough", gap=0.003)


class Soak:
    """Kills a run `kills` times, then lets it come to its end."""

    def __init__(self, program: Program, kills: int, seed: int, *arguments: str) -> None:
        self.program = program
        self.chance = random.Random(seed)
        self.kills = kills
        self.rows = 8 + 3 * kills
        # after a refusal the requests that follow are spread out, for minutes where few are sent
        self.sick = Sick(self.chance, limits=kills > 2)
        self.arguments = arguments
        self.folder = program.folder / "data" / "soak"
        self.repeats: list[Counter[tuple[str, int]]] = []
        program.configure("agent:\n  api_max_retries: 6\n")
        program.environ["TERMINAL_ENV"] = "local"
        program.dataset(self.rows)

    def run(self) -> None:
        with serve_in_thread(self.sick, latency=0.01, jitter=0.9, seed=3) as server:
            self.program.use(server)
            for number in range(self.kills):
                self._one(number, server)
            code, out = self._to_the_end()
        assert code == 0, out

    def _command(self, resume: bool) -> list[str]:
        more = ["--resume"] if resume else ["--dataset_file=prompts.jsonl", "--model=test-model", "--batch_size=7"]
        return [HERMES, "batch", "run", "--run_name=soak", f"--num_workers={WORKERS}", *more, *self.arguments]

    def _start(self) -> subprocess.Popen[bytes]:
        resume = (self.folder / "run.json").exists()
        log = (self.program.folder / "log").open("ab")
        with log:
            return subprocess.Popen(
                self._command(resume), cwd=self.program.folder, env=self.program.environ, stdout=log, stderr=log
            )

    def _one(self, number: int, server: ProviderServer) -> None:
        before = len(self.sick.answered)
        wanted = before + self.chance.randint(0, 4 * WORKERS)
        process = self._start()
        try:
            deadline = time.monotonic() + 100
            while len(self.sick.answered) <= wanted and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(self.chance.random() * 0.02)
            self.strike(number, process)
        finally:
            process.kill()
            process.wait()
        self._count(before)
        if number % 3 == 0 and (self.folder / "records.jsonl").exists():
            for path in (self.folder / "records.jsonl", *self.folder.glob("batch_0.jsonl")):
                with path.open("ab") as file:
                    file.write(b'{"head":{"key":"torn')

    def strike(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """What happens before the process is killed."""

    def _count(self, before: int) -> None:
        """Note what was answered a second time since `before`."""
        seen = set(self.sick.answered[:before])
        again = Counter(item for item in self.sick.answered[before:] if item in seen)
        fresh = Counter(item for item in self.sick.answered[before:] if item not in seen)
        for item, count in fresh.items():
            if count > 1:
                again[item] += count - 1
        self.repeats.append(again)

    def _to_the_end(self) -> tuple[int, str]:
        before = len(self.sick.answered)
        self.sick.loses_connections = False
        for _ in range(4):  # a row may fail for good where the faults come thick
            with self._start() as process:
                try:
                    code = process.wait(timeout=250)
                finally:
                    process.kill()
            if code == 0:
                break
        self._count(before)
        return code, (self.program.folder / "log").read_text("utf-8")[-3000:]

    def check(self, allowed: int, each: int = 1) -> None:
        """Every row stands once; between two looks at most `allowed` calls were made again, and of a row `each`."""
        rows = self.program.rows("soak")
        assert [row["prompt_index"] for row in rows] == list(range(self.rows))
        batches = [
            json.loads(line)
            for path in self.folder.glob("batch_*.jsonl")
            for line in path.read_text("utf-8").splitlines()
        ]
        assert Counter(row["prompt_index"] for row in batches) == Counter(range(self.rows))
        statistics = json.loads((self.folder / "statistics.json").read_text("utf-8"))
        assert (statistics["kept"], statistics["pending"], statistics["failed"]) == (self.rows, 0, 0)
        for row in rows:
            replies = [turn for turn in row["conversations"] if turn["from"] == "gpt"]
            assert len(replies) == TURNS, row
        assert set(self.sick.answered) == {(f"prompt {n}", turn) for n in range(self.rows) for turn in range(TURNS)}
        for again in self.repeats:
            assert again.total() <= allowed, again
            of_row: Counter[str] = Counter()
            for (prompt, _), count in again.items():
                of_row[prompt] += count
            assert max(of_row.values(), default=0) <= each, again
        assert not list(self.folder.glob("run*.db*")) and not (self.folder / "workspaces").exists()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.mark.fault("B102")
@pytest.mark.fault("B119")
@pytest.mark.fault("B120")
@pytest.mark.parametrize("kills", [pytest.param(2, marks=LONG), pytest.param(24, marks=MANY)])
def test_a_run_that_is_killed_again_and_again(program: Program, kills: int) -> None:
    soak = Soak(program, kills, 11)
    soak.run()
    soak.check(WORKERS)


def _is_worker(pid: str) -> bool:
    """Whether a child carries rollouts out; it may end just now."""
    try:
        return b"batch_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class SoakOfProcesses(Soak):
    """Every second time one of the processes that carry rollouts out is killed first, and the run goes on a while."""

    def strike(self, number: int, process: subprocess.Popen[bytes]) -> None:
        if number % 2 or process.poll() is not None:
            return
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split()
        workers = [int(pid) for pid in children if _is_worker(pid)]
        if not workers:
            return
        replaced, wanted = self._replaced(), len(self.sick.answered) + 10
        os.kill(self.chance.choice(workers), signal.SIGKILL)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if len(self.sick.answered) >= wanted and self._replaced() > replaced:
                break
            time.sleep(0.005)

    def _replaced(self) -> int:
        """How often the run has said that a process died; the others may answer much before it does."""
        return (self.program.folder / "log").read_bytes().count(b"died; another takes its place")


@pytest.mark.fault("B111")
@pytest.mark.parametrize("kills", [pytest.param(1, marks=LONG), pytest.param(23, marks=MANY)])
def test_a_run_of_several_processes_loses_one_or_all_of_them(program: Program, kills: int) -> None:
    soak = SoakOfProcesses(program, kills, 12, "--processes=2")
    soak.run()
    soak.check(2 * WORKERS, each=2)
    if kills == 1:
        assert "died; another takes its place" in (program.folder / "log").read_text("utf-8")


class SoakOfFewer(Soak):
    """The run goes on with fewer processes than it was begun with."""

    def _command(self, resume: bool) -> list[str]:
        return [*super()._command(resume), "--processes=1" if resume else "--processes=3"]


@pytest.mark.timeout(600)
def test_a_run_goes_on_with_fewer_processes_and_pays_for_nothing_twice(program: Program) -> None:
    soak = SoakOfFewer(program, 1, 13)
    soak.run()
    soak.check(WORKERS)
    assert "more than asked for" in (program.folder / "log").read_text("utf-8")
