"""The conversation on the full screen.

- First paint: the real program on a pseudo-terminal, from its start to the first prompt, less the same for an empty
  program of the library that draws it, in milliseconds.
- A key among 200 children that all stream: from the key to the picture that shows it, median and 95th percentile.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from figures import Figure, options, show
from textual import events

from hermes.chat.interactive import Chat
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, call, reply
from hermes.tui.app import HermesApp
from hermes.tui.face import ScreenComposer

CHILDREN = 200
SIGN = "❯".encode()
EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("❯")
Empty().run()
"""


def first_paint(command: list[str], home: str) -> float:
    """Seconds from the start of a program on a terminal of its own to the first sign of it."""
    begun = time.monotonic()
    pid, master = pty.fork()
    if pid == 0:
        environ = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
        environ |= {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HERMES_HOME": home, "LINES": "24", "COLUMNS": "80"}
        environ |= {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-test-0123456789abcdef"}
        os.execvpe(command[0], command, environ)
    seen = b""
    try:
        while SIGN not in seen and time.monotonic() - begun < 60:
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 65_536)
        return time.monotonic() - begun
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(master)


def paints(runs: int) -> Figure:
    """The difference, of `runs` pairs."""
    ours = [sys.executable, "-m", "hermes.cli.main", "--tui", "-m", "test-model"]
    empty = [sys.executable, "-c", EMPTY]
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as home:
        first_paint(ours, home)  # files are read once
        for _ in range(runs):
            pairs.append((first_paint(empty, home), first_paint(ours, home)))
    late = statistics.median(mine - bare for bare, mine in pairs) * 1_000
    bare, mine = (statistics.median(column) * 1_000 for column in zip(*pairs, strict=True))
    note = f"{mine:.0f} ms against {bare:.0f} ms of an empty program"
    return Figure(name="screen: first paint later", measured=late, unit="ms", bar=400, note=note)


async def keys(children: int, presses: int) -> list[float]:
    """Milliseconds from a key to its picture, each."""
    text = "a line of text that a child writes\n" * 2_000
    spawn = reply(calls=[call("delegate_task_async", goal=f"stream {number}") for number in range(children)])
    scripts = {"stream": [reply(text, pieces=4_000, gap=0.02) for _ in range(children)]}
    main = reply(text, pieces=4_000, gap=0.02)
    model = ScriptedModel("m", [spawn, main], scripts=scripts, check=False)
    drawn: list[float] = []
    found: list[float] = []

    async def run(app: HermesApp) -> None:
        display = app._display

        def told(*arguments: Any) -> None:
            display(*arguments)
            drawn.append(time.monotonic())

        app._display = told  # type: ignore[method-assign]
        await app.run_async(headless=True, size=(120, 40))

    settings = {"delegation.max_concurrent_children": 10_000, "runtime.max_running": 10_000}
    with tempfile.TemporaryDirectory() as folder:
        async with open_lab(model, workspace=Path(folder), settings=settings, memory=True) as lab:
            composer = ScreenComposer(lab.assembly.home, lab.assembly.redactor.text, run=run)
            chat = Chat(lab.assembly, composer, workspace=folder, stage=composer.feed, tell=composer.feed.tell)
            composer.attach(chat)
            async with anyio.create_task_group() as group:
                group.start_soon(chat.run)
                await composer.app.ready.wait()
                composer.app.typed("go")
                while model.in_flight < children:
                    await anyio.sleep(0.1)
                await anyio.sleep(1)
                prompt: Any = composer.app.screen_stack[-1].query_one("#prompt")
                for number in range(presses):
                    letter, before = "abcdefghij"[number % 10], len(prompt.text)
                    begun = time.monotonic()
                    composer.app.post_message(events.Key(letter, letter))
                    while len(prompt.text) == before:
                        await anyio.sleep(0)
                    changed = time.monotonic()
                    while not drawn or drawn[-1] < changed:
                        await anyio.sleep(0)
                    found.append((drawn[-1] - begun) * 1_000)
                    await anyio.sleep(0.03)
                chat.leave(suspend=True)
    return found


def main() -> None:
    """Measure and print."""
    given = options(__doc__)
    figures = [paints(1 if given.quick else given.runs)]
    children = 20 if given.quick else CHILDREN
    times = sorted(anyio.run(keys, children, 20 if given.quick else 100))
    note = f"{children} children stream, {len(times)} keys"
    median, late = statistics.median(times), times[int(len(times) * 0.95)]
    figures.append(Figure(name="screen: key to picture, median", measured=median, unit="ms", bar=50, note=note))
    figures.append(Figure(name="screen: key to picture, p95", measured=late, unit="ms", bar=100, note=note))
    show(figures, sys.stdout, as_json=given.json)


if __name__ == "__main__":
    main()
