"""Between a process and its output: takes what comes, sends it to the disk in pieces, and says when it is over.

A long output pauses the reading while a piece is written on a thread, so that a process that prints without end is
slowed down by the disk and never fills the memory or the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import anyio.to_thread

from hermes.environments.enclosure import Watching
from hermes.environments.output import Output
from hermes.environments.process import ProcessGroup

__all__ = ["Pump"]

#: Seconds to wait for output that a process substitution still writes after the shell has ended.
_AFTERGLOW = 0.05
_PROGRESS_EVERY = 0.25


class Pump:
    """`done` is set when the leader has ended, there is more output than may be kept (`output.over`), or a limit was
    passed that is watched (`passed` says which)."""

    def __init__(
        self,
        group: ProcessGroup,
        output: Output,
        progress: Callable[[str], None] | None = None,
        on_done: Callable[[], None] | None = None,
        watch: Watching | None = None,
    ) -> None:
        self.group = group
        self.output = output
        self.done = asyncio.Event()
        self.error: OSError | None = None
        self.passed = ""
        self._watch = watch
        self._unwatch: Callable[[], None] | None = None
        self._progress = progress
        self._told = 0.0
        self._on_done = on_done
        self._spilling: asyncio.Future[None] | None = None
        self._begun = False
        self._closed = False

    def begin(self, on_done: Callable[[], None] | None = None) -> None:
        """Begin to read; a second call changes nothing."""
        if not self._begun:
            self._begun = True
            self._on_done = on_done or self._on_done
            self.group.watch(self._feed, self._finished)
            if self._watch is not None and not self.done.is_set():
                loop = asyncio.get_running_loop()
                self._unwatch = self._watch(self.group.pid, lambda said: _tell(loop, self._pass, said))

    def _pass(self, said: str) -> None:
        if not self.done.is_set():
            self.passed = said
            self._finished()

    def _finished(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if not self.done.is_set():
            self.done.set()
            if self._on_done is not None:
                self._on_done()

    def _feed(self, data: bytes) -> bool:
        if self._closed:
            return True
        self.output.feed(data)
        if self._progress is not None:
            now = time.monotonic()
            if now - self._told >= _PROGRESS_EVERY:
                self._told = now
                self._progress(self.output.last_line())
        if self.output.over:
            self._finished()
            return False
        if self.output.wants_spill and self._spilling is None:
            self._spilling = asyncio.get_running_loop().run_in_executor(None, self._spill)
            self._spilling.add_done_callback(self._spilled)
        return self._spilling is None

    def close_file(self) -> None:
        """Write what was held back to the file (blocking). On a full disk `error` is set."""
        self._spill(final=True)

    def _spill(self, *, final: bool = False) -> None:
        try:
            self.output.spill(final=final)
        except OSError as error:
            self.error = error

    def _spilled(self, _future: asyncio.Future[None]) -> None:
        self._spilling = None
        if not self.output.over:
            self.group.resume()

    async def finish(self) -> None:
        """After the end of the leader: take what is still in the pipe. Raises nothing; `error` is set on a full disk.

        A process left behind that holds the pipe open does not delay it by more than a moment.
        """
        await self._settled()
        self.group.drain()
        await self._settled()
        if not self.group.eof.is_set():
            await anyio.to_thread.run_sync(self.group.wait_for_output, _AFTERGLOW)
            self.group.drain()
            await self._settled()
        self._closed = True

    async def _settled(self) -> None:
        while self._spilling is not None:
            await asyncio.wait([self._spilling])
            await asyncio.sleep(0)


def _tell(loop: asyncio.AbstractEventLoop, hear: Callable[[str], None], said: str) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
        loop.call_soon_threadsafe(hear, said)
