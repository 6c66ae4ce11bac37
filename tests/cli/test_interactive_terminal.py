"""The real program in a real terminal: typed at, interrupted, left."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.program import once

PATIENCE = 60.0


class Terminal:
    """A tmux of its own with one program in it."""

    def __init__(self, tmux: Path, socket: Path) -> None:
        self._command = [str(tmux), "-S", str(socket), "-f", "/dev/null"]

    def tmux(self, *args: str) -> str:
        done = subprocess.run([*self._command, *args], capture_output=True, text=True, check=False, timeout=PATIENCE)
        return done.stdout

    def start(self, command: str, folder: Path, environ: dict[str, str]) -> None:
        subprocess.run(
            [*self._command, "new-session", "-d", "-x", "100", "-y", "60", command],
            check=True, cwd=folder, env=environ, timeout=PATIENCE,
        )  # fmt: skip

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def key(self, *names: str) -> None:
        self.tmux("send-keys", *names)

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-S", "-")

    def sees(self, words: str) -> str:
        self.until(lambda: words in self.screen, words)
        return self.screen

    def until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            if time.monotonic() > deadline:
                pytest.fail(f"never seen: {what!r}\n{self.screen}")
            time.sleep(0.05)


@pytest.fixture
def terminal(needs_tool: Callable[[str], Path], tmp_path: Path) -> Iterator[Terminal]:
    there = Terminal(needs_tool("tmux"), tmp_path / "tmux.sock")
    yield there
    there.tmux("kill-server")


class Model:
    """Background runs that dig until they are `found`, a dangerous command, what never ends, and an echo."""

    def __init__(self) -> None:
        self.found = False

    async def __call__(self, request: Request) -> Reply:
        if request.first_user.startswith("копай"):
            if request.turn == 0:
                return await once(lambda: self.found, reply(calls=[call("terminal", command="true")]))
            return reply("FOUND " + ("with care" if "be careful" in str(request.messages) else "without"))
        if request.first_user == "for ever" or request.last == "think":
            return reply("never", delay=600)
        if request.last == "clean":
            return reply(calls=[call("terminal", command="rm nothing-here.txt")])
        return reply(f"echo {request.last[:20]} \x1b[31m(red)", pieces=6, gap=0.02)


def test_a_conversation_in_a_terminal(terminal: Terminal, hermes_home: Path, tmp_path: Path) -> None:
    model = Model()
    with serve_in_thread(model) as server:
        environ = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test-0123456789abcdef"}
        program = shlex.join([sys.executable, "-m", "hermes.cli.main", "--cli", "-m", "test-model"])
        terminal.start(f"{program}; echo left $?; sleep 100", tmp_path, {**environ, "TERM": "xterm-256color"})
        terminal.sees("/help lists the commands")
        terminal.type("hello")
        screen = terminal.sees("echo hello")
        assert "[31m" not in screen.split("> hello")[1]
        terminal.type("/background копай глубоко")
        screen = terminal.sees("Task ID: bg_")
        assert '🔄 Background task #1 started: "копай глубоко"' in screen
        terminal.sees("▶ 1")
        terminal.type("/steer #1 be careful")
        terminal.sees("reads it at its next step")
        terminal.type("meanwhile")  # the conversation answers while the other one works
        terminal.sees("echo meanwhile")
        model.found = True
        terminal.sees("FOUND with care")
        terminal.type("clean")
        terminal.sees("allow? y/n/a>")
        terminal.type("y")
        terminal.sees("echo {")
        terminal.type("think")
        terminal.sees("working")
        terminal.until(lambda: any(each.last == "think" for each in server.requests), "the turn to interrupt")
        terminal.key("C-c")
        terminal.sees("⏹ turn interrupted")
        terminal.type("/bg for ever")
        terminal.sees("#2 started")
        terminal.type("/agents")
        terminal.sees("Tasks: 1 running, 1 ended")
        terminal.type("/stop")
        terminal.sees("✗ background #2")
        terminal.type("/quit")
        screen = terminal.sees("left 0")
        assert "hermes sessions show 20" in screen and "Traceback" not in screen and "Exception" not in screen


def test_leaving_by_ctrl_c_twice_and_one_question_streams(
    terminal: Terminal, hermes_home: Path, tmp_path: Path
) -> None:
    with serve_in_thread(Model()) as server:
        environ = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test-0123456789abcdef"}
        program = shlex.join([sys.executable, "-m", "hermes.cli.main", "--cli", "-m", "test-model"])
        one = f"{program} chat -q question"
        terminal.start(f"{one}; {program}; echo left $?; sleep 100", tmp_path, {**environ, "TERM": "xterm-256color"})
        screen = terminal.sees("/help lists the commands")
        assert screen.count("echo question (red)") == 1 and "session: 20" in screen
        terminal.key("C-c")
        terminal.sees("Ctrl+C again within 2 s leaves")
        terminal.key("C-c", "C-c")  # at once: whoever looks at the screen in between may need longer than two seconds
        terminal.sees("left 130")
