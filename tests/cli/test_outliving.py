"""Real processes: a terminal is lost, a process stops, is killed or asked, and the work goes on somewhere."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from hermes.cli.main import main
from hermes.store.hosting import host_alive
from hermes.testing.faults import Fault
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, serve_in_thread
from tests.cli.conftest import Ran
from tests.cli.program import HERMES, Program

PATIENCE = 60.0


class Model:
    """A conversation that hands out two parts. While `held`, the second part does not answer."""

    def __init__(self) -> None:
        self.held = True

    def __call__(self, request: Request) -> Reply | Fault:
        if request.first_user.startswith("part one"):
            return reply("ONE")
        if request.first_user.startswith("part two"):
            return reply("TWO", delay=600 if self.held else 0)
        if request.turn == 0:
            return reply(calls=[call("spawn_parallel", tasks=["part one", "part two"])])
        return reply("further" if request.last == "and now?" else "all is done")


class Place(Program):
    """A home with its programs; what was left running ends with it."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.environ["COLUMNS"] = "200"
        self.model = Model()
        self.server: ProviderServer

    def start(self, *args: str, **more: Any) -> subprocess.Popen[bytes]:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [HERMES, "-m", "test-model", *args], cwd=self.folder, env=self.environ, **{**options, **more}
        )

    def verb(self, *args: str) -> Ran:
        """A command of another terminal that runs no task itself; in this process, which is quicker."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["tasks", *args])
        return Ran(code, out.getvalue(), err.getvalue())

    def json(self, *args: str) -> Any:
        ran = self.verb(*args, "--json")
        assert ran.out, ran.err
        return json.loads(ran.out)

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Every task by the beginning of its goal."""
        return {task["goal"]: task for task in self.json("list")["tasks"]}

    def state(self, goal: str) -> str:
        """The stored state of a task: cheaper than a command, for what is waited for."""
        with closing(sqlite3.connect(f"file:{self.home / 'runtime.db'}?mode=ro", uri=True)) as db:
            found = db.execute("SELECT state FROM tasks WHERE goal = ?", (goal,)).fetchone()
        return str(found[0]) if found else ""

    def until(self, true: Callable[[], Any], what: str = "") -> Any:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = true()
            if found:
                return found
            time.sleep(0.05)
        log = self.home / "logs" / "host.log"
        pytest.fail(f"never came: {what}\n{log.read_text() if log.exists() else 'no log'}")

    def in_the_middle(self, terminal: int | None = None) -> None:
        """Part one has ended, part two waits for the model. What is printed on a terminal is read away meanwhile."""

        def so() -> bool:
            while terminal is not None and select.select([terminal], [], [], 0)[0]:
                os.read(terminal, 65_536)
            return bool(self.asked("part two")) and self.state("part one") == "completed"

        self.until(so, "part two, and the end of part one")

    def asked(self, goal: str) -> int:
        return sum(request.first_user.startswith(goal) for request in self.server.requests)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    there = Place(tmp_path)
    monkeypatch.setenv("HERMES_HOME", str(there.home))
    with serve_in_thread(there.model) as server:
        there.server = server
        there.use(server)
        yield there
        stopped = there.run("host", "--stop")
        assert stopped.code == 0, stopped.err
        log = there.home / "logs" / "host.log"
        assert not log.exists() or "hermes: " not in log.read_text()  # the host never failed
    assert not host_alive(there.home)


@contextmanager
def on_a_terminal(place: Place, *args: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A program whose controlling terminal is a new one. Yields it and the master side, which has to be read: once it
    is full, whoever writes there waits."""
    master, slave = pty.openpty()

    def take() -> None:
        import fcntl  # noqa: PLC0415  in the new process, before the program
        import termios  # noqa: PLC0415

        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    environ = {**place.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [HERMES, "-m", "test-model", *args],
        cwd=place.folder, env=environ, stdin=slave, stdout=slave, stderr=slave, preexec_fn=take,
    )  # fmt: skip
    os.close(slave)
    try:
        yield process, master
    finally:
        process.kill()
        process.wait()


def finished(process: subprocess.Popen[bytes]) -> Ran:
    out, err = process.communicate(timeout=PATIENCE)
    return Ran(process.returncode, out.decode(), err.decode())


def session_in(place: Place) -> str:
    (session,) = {task["session_id"] for task in place.tasks().values()}
    return str(session)


@pytest.mark.fault("B045")
@pytest.mark.parametrize("interactive", [False, True])
def test_a_lost_terminal_costs_nothing(place: Place, interactive: bool) -> None:
    args = [] if interactive else ["chat", "-q", "root"]
    with on_a_terminal(place, *args) as (process, master):
        if interactive:
            seen = b""
            while b"/help lists" not in seen:
                seen += os.read(master, 65_536)
            os.write(master, b"root\r")
        place.in_the_middle(master)
        place.model.held = False
        os.close(master)
        assert process.wait(PATIENCE) == 143
    result = place.verb("collect", place.tasks()["part two"]["task_id"], "--timeout", "60")
    assert (result.code, result.out) == (0, "TWO\n"), result.err
    root = place.tasks()["root"]["task_id"]
    if not interactive:
        whole = place.json("collect", root)
        assert whole["status"] == "completed" and whole["summary"] == "all is done"
    place.until(lambda: place.asked("root") == 2, "the conversation's answer")
    assert len(place.tasks()) == 3 and place.asked("part one") == 1
    assert "running since" in place.run("host", "--status").out


def test_a_lost_terminal_stops_the_work_where_that_is_wanted(place: Place) -> None:
    place.configure("runtime: {on_hangup: stop}\n")
    with on_a_terminal(place, "chat", "-q", "root") as (process, master):
        place.in_the_middle(master)
        os.close(master)
        assert process.wait(PATIENCE) == 143
    assert place.tasks()["part two"]["status"] == "suspended" and not host_alive(place.home)
    place.model.held = False
    ran = place.run("chat", "--resume", "-q", "and now?")
    assert (ran.code, ran.out) == (0, "further\n"), ran.err
    assert "part two" in ran.err and "cut off:" in ran.err


def test_a_stopped_process_keeps_its_work(place: Place) -> None:
    process = place.start("chat", "-q", "root")
    place.in_the_middle()
    session = session_in(place)
    process.send_signal(signal.SIGSTOP)
    refused = place.run("chat", "--resume", session, "-q", "mine?")
    assert refused.code == 1 and "open in another process" in refused.err
    assert "another process" in place.run("tasks", "resume", session).err
    assert place.tasks()["part two"]["status"] == "running"
    place.model.held = False
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    left = finished(process)
    assert left.code == 143 and f"hermes chat --resume {session}" in left.err
    ran = place.run("tasks", "adopt", session)
    assert (ran.code, ran.out) == (0, "all is done\n"), ran.err
    assert place.asked("part one") == 1


@pytest.mark.fault("B013")
@pytest.mark.fault("B149")
def test_a_killed_process_is_seen_and_its_work_goes_on_in_the_background(place: Place) -> None:
    process = place.start("chat", "-q", "root")
    place.in_the_middle()
    process.kill()
    finished(process)
    tasks = place.tasks()
    two = tasks["part two"]
    assert (two["status"], tasks["root"]["status"]) == ("suspended", "suspended")
    kept = place.json("steer", two["task_id"], "softly")
    assert kept["receipt"]["state"] == "queued"
    shown = place.verb("show", two["task_id"]).out
    assert "suspended" in shown.splitlines()[0] and place.verb("show", two["task_id"]).out == shown, "its clock stands"
    place.model.held = False
    resumed = place.run("tasks", "resume", two["task_id"])
    assert resumed.code == 0, resumed.err
    result = place.json("collect", tasks["root"]["task_id"], "--timeout", "60")
    assert result["summary"] == "all is done"
    (receipt,) = place.json("show", two["task_id"])["receipts"]
    assert receipt["id"] == kept["receipt"]["id"] and receipt["state"] == "delivered"
    assert place.asked("part one") == 1 and len(place.tasks()) == 3
    assert "has ended" in place.run("tasks", "resume", tasks["root"]["task_id"]).err


@pytest.mark.fault("B041")
def test_detached_work_is_corrected_cancelled_and_brought_back(place: Place) -> None:
    ran = place.run("-m", "test-model", "chat", "--detach", "-q", "root")
    assert ran.code == 0, ran.err
    session = ran.out.strip()
    place.in_the_middle()
    tasks = place.tasks()
    shown = place.json("show", tasks["part two"]["task_id"])
    assert shown["status"] == "running" and shown["session_id"] == session
    assert place.verb("wait", tasks["part two"]["task_id"], "--timeout", "0").code == 124
    cancel = ("cancel", tasks["part two"]["task_id"], "--receipt", "once")  # asks once, however often it is sent
    place.until(lambda: place.verb(*cancel)[:2] == (0, "cancel once: delivered\n"), "the answer to cancel")
    waited = place.json("wait", tasks["part two"]["task_id"], tasks["root"]["task_id"], "--timeout", "60")
    log = place.home / "logs" / "host.log"
    assert not waited["running"] and not waited["suspended"], log.read_text()
    late = place.verb("cancel", tasks["part two"]["task_id"])
    assert late.code == 1 and "is not running (status: cancelled)" in late.err
    tail = place.verb("tail", tasks["root"]["task_id"]).out
    assert "→ spawn_parallel" in tail and tail.endswith("completed\n") and "all is done" in tail
    wrong = place.verb("show", "sa-nothing")
    assert wrong.code == 1 and "Task not found: sa-nothing" in wrong.err


def test_attach_brings_running_work_back(place: Place) -> None:
    session = place.run("-m", "test-model", "chat", "--detach", "-q", "root").out.strip()
    place.in_the_middle()
    place.model.held = False
    process = place.start("attach", "--cli", stdin=subprocess.PIPE)
    assert process.stdin is not None
    place.until(lambda: place.asked("root") == 2, "the answer")
    process.stdin.write(b"and now?\n")
    ran = finished(process)
    assert ran.code == 0, ran.err
    assert f"session {session} · root" in ran.out and "all is done" in ran.out and "further" in ran.out
    assert f"hermes chat --resume {session}" in ran.out
    assert place.asked("part one") == 1
    nothing = place.run("-m", "test-model", "attach")
    assert nothing.code == 2 and "nothing is unfinished" in nothing.err


def test_the_host_stops_when_asked_and_leaves_work_resumable(place: Place) -> None:
    session = place.run("-m", "test-model", "chat", "--detach", "-q", "root").out.strip()
    place.in_the_middle()
    assert "stopped" in place.run("host", "--stop").out
    assert place.run("host", "--status").out.startswith("not running")
    assert place.tasks()["part two"]["status"] == "suspended"
    place.model.held = False
    assert place.run("chat", "--resume", session[:15], "-q", "and now?").out == "further\n"
