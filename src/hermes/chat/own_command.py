"""`!command`: a command of the person's own. What it prints is shown and never sent to the model.

It runs as the person would run it in the folder of the conversation, with nothing to read from: a program that asks
ends. It belongs to no task and passes no gate.
"""

from __future__ import annotations

import codecs
import shlex
import sys
from collections import deque
from collections.abc import Callable, Mapping

import anyio
import anyio.to_thread

from hermes.core.errors import UsageError
from hermes.environments.process import ProcessGroup, spawn

__all__ = ["OwnCommand", "board_command"]

#: Seconds between two looks at what was printed, lines that are shown at each, and lines that are shown at all.
LOOK, AT_ONCE, MOST = 0.15, 60, 400
#: Lines of the end that are shown of what is too much.
LAST = 10
#: Characters of a line.
MOST_LINE = 2_000


def board_command(argument: str) -> str:
    """The line that does on the board what `/kanban ARGUMENT` asks for; without one it lists the cards.

    Raises:
        UsageError: a quotation has no end.
    """
    try:
        words = shlex.split(argument) or ["list"]
    except ValueError as error:
        raise UsageError(f"/kanban {argument}: {error}") from None
    return shlex.join([sys.executable, "-m", "hermes.cli.main", "kanban", *words])


class OwnCommand:
    """The command that runs now, at most one."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._scope: anyio.CancelScope | None = None
        self._lines: deque[str] = deque(maxlen=AT_ONCE)
        self._rest = ""
        self._came = self._shown = self._room = 0

    @property
    def runs(self) -> bool:
        """Whether one runs."""
        return self._scope is not None

    def stop(self) -> bool:
        """End it with everything it started; False where none runs."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True

    async def run(self, line: str, folder: str, environ: Mapping[str, str]) -> None:
        """Run a line in the person's shell and show what it prints, the newest of it where it prints much."""
        shell = environ.get("SHELL") or "/bin/sh"
        try:
            spawned = await anyio.to_thread.run_sync(spawn, [shell, "-c", line], environ, folder)
        except OSError as error:
            self._say(f"! cannot run {shell}: {error.strerror or error}")
            return
        group = ProcessGroup(spawned)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._came, self._shown, self._room, self._rest = 0, 0, MOST, ""

        def feed(data: bytes) -> bool:
            self._take(decoder.decode(data))
            return True

        group.watch(feed, lambda: None)
        self._scope = scope = anyio.CancelScope()
        try:
            with scope:
                while not group.exited.is_set():
                    with anyio.move_on_after(LOOK):
                        await group.exited.wait()
                    self._show()
        finally:
            self._scope = None
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(group.end, 0.5)
            group.drain()
            group.forget()
        if self._rest:
            self._take("\n")
        self._show(last=True)
        code = group.exit_code
        ending = "stopped" if scope.cancelled_caught else f"exit code {code}" if code else "done"
        self._say(f"! {ending} after {group.elapsed:.1f}s")

    def _take(self, text: str) -> None:
        *whole, self._rest = (self._rest + text).split("\n")
        self._rest = self._rest[-MOST_LINE:]
        self._came += len(whole)
        self._lines.extend(line[:MOST_LINE] for line in whole[-AT_ONCE:])

    def _show(self, *, last: bool = False) -> None:
        lines = list(self._lines)[-AT_ONCE if self._room > 0 else -LAST :]
        self._lines.clear()
        if self._room <= 0 and not last:
            self._lines.extend(lines)  # enough was shown: of the rest only the end is
            return
        if skipped := self._came - self._shown - len(lines):
            self._say(f"… {skipped} lines left out")
        if lines:
            self._say("\n".join(f"  {line}" for line in lines))
        self._shown = self._came
        self._room -= len(lines)
