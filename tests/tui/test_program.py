"""The real program in a real terminal: typed at, left, come back to, and bereft of its terminal."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from hermes.store.hosting import host_alive
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import HERMES, Program, once

#: Seconds that a step may take: a wait ends at once when what it waits for is there.
PATIENCE = 60.0


class Terminal:
    """A shell in a tmux of its own."""

    def __init__(self, tmux: Path, program: Program, socket: Path) -> None:
        self._command = [str(tmux), "-S", str(socket), "-f", "/dev/null"]
        lacking = {"CI", "NO_COLOR"}
        environ = {name: value for name, value in program.environ.items() if name not in lacking}
        subprocess.run(
            [*self._command, "new-session", "-d", "-x", "80", "-y", "24", "sh"],
            check=True, cwd=program.folder, timeout=PATIENCE,
            env={**environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": "$ ", "EDITOR": "sed -i s/one/two/"},
        )  # fmt: skip

    def tmux(self, *args: str) -> str:
        return subprocess.run(
            [*self._command, *args], capture_output=True, text=True, check=False, timeout=PATIENCE
        ).stdout

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def key(self, *names: str) -> None:
        self.tmux("send-keys", *names)

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def until(self, true: Callable[[str], object], what: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while not true(screen := self.screen):
            if time.monotonic() > deadline:
                pytest.fail(f"never seen: {what}\n{screen}")
            time.sleep(0.05)
        return screen

    def sees(self, words: str) -> str:
        return self.until(lambda screen: words in screen, words)

    def escape(self, gone: str) -> None:
        """Press Escape and see what it does before another key: right after it a key would be one with Alt."""
        self.key("Escape")
        self.until(lambda screen: gone not in screen, f"a screen without {gone}")


class Work:
    """Answers as a model: tasks that wait until they may go on, some without an end, and an echo."""

    def __init__(self) -> None:
        self.found = Event()
        self.over = Event()
        self.thinks = Event()

    async def answer(self, request: Request) -> Reply:
        first, last = request.first_user, str(request.last)
        if first.startswith("копай"):
            if request.turn == 0:
                return await once(self.found.is_set, reply(calls=[call("terminal", command="true")]))
            return reply("FOUND " + ("with care" if "be careful" in str(request.messages) else "without"))
        if first.startswith("for ever"):
            return reply("never", delay=600)
        if first.startswith("a while"):
            return await once(self.over.is_set, reply("the while is over"))
        if last.startswith("spawn"):
            goal = "a while dig" if last.startswith("spawn again") else "for ever dig"
            return reply("I hand it out.", calls=[call("delegate_task_async", goal=goal)])
        if last == "think":
            self.thinks.set()
            return reply("never", delay=600)
        return reply(f"echo **{last[:20]}** \x1b[31m(red)", pieces=6, gap=0.02)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def program(tmp_path: Path, work: Work) -> Iterator[Program]:
    there = Program(tmp_path)
    with serve_in_thread(work.answer) as server:
        there.use(server)
        yield there
        work.over.set()
        assert there.run("host", "--stop").code == 0
    assert not host_alive(there.home)


@pytest.fixture
def terminal(needs_tool: Callable[[str], Path], program: Program, tmp_path: Path) -> Iterator[Terminal]:
    there = Terminal(needs_tool("tmux"), program, tmp_path / "tmux.sock")
    yield there
    there.tmux("kill-server")


def test_a_day_at_the_full_screen(terminal: Terminal, work: Work) -> None:
    hermes = shlex.join([HERMES, "-m", "test-model"])
    terminal.type(hermes)
    terminal.sees("key: OPENAI_API_KEY")
    terminal.type("hello")
    assert "[31m" not in terminal.sees("echo hello (red)")
    terminal.type("/background копай глубоко")
    terminal.sees("Background task #1 started")
    terminal.sees("▶ 1")
    terminal.type("/steer #1 be careful")
    terminal.sees("reads it at its next step")
    work.found.set()
    terminal.sees("FOUND with care")
    terminal.type("spawn")
    terminal.sees("▶ for ever dig · running model")
    terminal.key("F6")
    terminal.sees("conversation")
    terminal.sees("esc Back")
    terminal.escape(gone="esc Back")
    terminal.sees("▶ for ever dig · running model")
    terminal.type("think")
    assert work.thinks.wait(PATIENCE)  # a turn that has not begun cannot be stopped
    terminal.sees("working")
    terminal.escape(gone="working")
    terminal.sees("turn interrupted")
    terminal.sees("▶ for ever dig · running model")
    terminal.type("/stop")
    terminal.sees("✗ for ever dig")
    terminal.key("C-u")
    terminal.tmux("send-keys", "-l", "one line")
    terminal.key("C-g")
    terminal.sees("❯ two line")
    terminal.key("C-u")
    terminal.type("spawn")
    terminal.sees("▶ for ever dig · running model")
    terminal.tmux("send-keys", "-l", "a half-sentence")
    terminal.sees("a half-sentence")
    terminal.key("C-u")
    terminal.type("/detach")
    terminal.sees("it goes on in the background: hermes attach")
    terminal.type(f"clear; {hermes} --resume")
    terminal.sees("taken over:")  # and nobody is asked whether what went on shall go on
    terminal.sees("█ spawn")
    terminal.type("back again")
    terminal.sees("echo back again (red)")
    terminal.type("/quit")
    assert "for ever dig" in terminal.sees("s  stop it")
    terminal.key("s")
    screen = terminal.sees("Go on with it: hermes chat --resume 20")
    assert "Traceback" not in screen and "Exception" not in screen


def test_a_lost_terminal_leaves_the_work_and_the_draft(terminal: Terminal, program: Program, work: Work) -> None:
    terminal.type(shlex.join([HERMES, "-m", "test-model"]))
    terminal.sees("key: OPENAI_API_KEY")
    terminal.type("spawn again")
    terminal.sees("▶ a while dig · running model")
    terminal.tmux("send-keys", "-l", "a half-sentence")
    terminal.sees("a half-sentence")
    drafts = program.home / "drafts"
    deadline = time.monotonic() + PATIENCE
    while not [file for file in drafts.glob("20*.txt") if file.read_text() == "a half-sentence"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    terminal.tmux("kill-server")
    work.over.set()
    deadline = time.monotonic() + PATIENCE
    while (found := program.run("tasks", "list", "--json")) and '"the while is over"' not in found.out:
        if '"completed"' in found.out:
            break
        assert time.monotonic() < deadline, found.out
        time.sleep(0.2)
    assert [file for file in drafts.glob("20*.txt") if file.read_text() == "a half-sentence"]


@pytest.mark.parametrize(
    ("environ", "said"),
    [({"TERM": "dumb"}, ""), ({"NO_COLOR": "1"}, ""), ({"CI": "1"}, ""), ({"LC_ALL": "C", "PYTHONUTF8": "0",
      "PYTHONCOERCECLOCALE": "0"}, "encoding is")],
)  # fmt: skip
def test_a_terminal_that_cannot_gets_lines(terminal: Terminal, environ: dict[str, str], said: str) -> None:
    before = " ".join(f"{name}={value}" for name, value in environ.items())
    terminal.type(f"{before} {shlex.join([HERMES, '-m', 'test-model'])}; echo le''ft")
    screen = terminal.sees("key: OPENAI_API_KEY")
    assert said in terminal.screen
    assert "❯" not in screen and "─" * 20 not in screen
    terminal.type("/quit")
    if "NO_COLOR" in environ:  # the wish decides
        terminal.sees("left")
        terminal.type(f"clear; {before} {shlex.join([HERMES, '--tui', '-m', 'test-model'])}")
        terminal.sees("❯ Ask, or /")


def test_a_wish_that_cannot_be_had_is_refused(program: Program) -> None:
    ran = program.run("--tui")
    assert ran.code == 2 and "--tui: stdin, stdout and stderr are not all a terminal" in ran.err
