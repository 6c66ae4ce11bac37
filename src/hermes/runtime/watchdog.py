"""The watchdog: finds what blocks the event loop and names it.

A thread looks whether the loop still beats; when it has not for `limit` seconds it reads the loop thread's stack. It
stops nothing. A process that stood still as a whole was not blocked: that is for the `Standstill` which both beat.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable

import anyio
import anyio.to_thread

from hermes.runtime.standstill import Standstill

__all__ = ["Watchdog"]

logger = logging.getLogger(__name__)


class Watchdog:
    """Watches the loop it is started in. `report(seconds, where)` is called on the loop once it beats again."""

    def __init__(
        self,
        report: Callable[[float, str], None],
        standstill: Standstill,
        *,
        limit: float = 1.0,
        beat: float = 0.25,
    ) -> None:
        self._report = report
        self._standstill = standstill
        self._limit = limit
        self._beat = beat
        self._last = time.monotonic()
        self._stopped = threading.Event()
        self._where = ""

    @property
    def blocked_by(self) -> str:
        """What blocks the loop and was not reported yet; empty while it beats."""
        return self._where

    async def run(self) -> None:
        """Beat until cancelled; the thread is joined before this returns."""
        thread = threading.Thread(target=self._look, args=(threading.get_ident(),), name="hermes-watchdog", daemon=True)
        self._last = time.monotonic()
        self._standstill.beat()
        thread.start()
        try:
            while True:
                await anyio.sleep(self._beat)
                now = time.monotonic()
                blocked, where = now - self._last - self._beat, self._where
                self._last, self._where = now, ""
                if stood := self._standstill.take():
                    logger.info("nothing ran for %.0f s: the machine slept, or the process was stopped", stood)
                elif where:
                    logger.warning("the event loop was blocked for %.1f s by %s", blocked, where)
                    self._report(round(blocked, 2), where)
        finally:
            self._stopped.set()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join)

    def _look(self, loop_thread: int) -> None:
        while not self._stopped.wait(self._beat):
            ran = self._standstill.beat() < self._limit  # who did not run itself has seen nothing
            if not ran or time.monotonic() - self._last < self._limit + self._beat or self._where:
                continue
            frame = sys._current_frames().get(loop_thread)
            if frame is not None:
                # Without the text of the lines: looking it up reads and keeps whole files.
                stack = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
                stack.reverse()
                self._where = name_of(stack)
            del frame


def name_of(stack: traceback.StackSummary) -> str:
    """The place in a stack that a reader can act on: the innermost frames, newest first."""
    frames = [f"{entry.name} ({entry.filename}:{entry.lineno})" for entry in reversed(stack)]
    return " ← ".join(frames[:4])
