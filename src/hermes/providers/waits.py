"""Waiting for a server, each time with a limit: one timer for all waits of an event loop.

A timer of its own for each of a thousand requests is made, kept in order and thrown away unused; here the earliest end
is looked for when it has come, and that is seldom. It knows nothing of what is waited for.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["StreamTimeout", "Waits"]

_Value = TypeVar("_Value")


class StreamTimeout(Exception):
    """Nothing came for `seconds`; `phase` says what was waited for."""

    def __init__(self, phase: str, seconds: float) -> None:
        super().__init__(f"no {phase} within {seconds:g} s")
        self.phase = phase
        self.seconds = seconds


class Waits:
    """The waits of one event loop. A task waits for one thing at a time."""

    def __init__(self) -> None:
        self._ends: dict[asyncio.Task[object], float] = {}  # of the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf  # when the timer comes: no wait ends before

    async def within(self, limit: float, waited: Awaitable[_Value], phase: str) -> _Value:
        """Wait at most `limit` seconds. Raises StreamTimeout."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can wait")
        loop = asyncio.get_running_loop()
        ends = self._ends
        ends[task] = end = loop.time() + limit
        if end < self._due:
            self._look_at(end, loop)
        before = task.cancelling()
        try:
            return await waited
        except asyncio.CancelledError:
            # Cancelled from outside as well: that counts.
            if task not in ends and task.uncancel() <= before:
                raise StreamTimeout(phase, limit) from None
            raise
        finally:
            ends.pop(task, None)
            if not ends and self._timer is not None:
                self._timer.cancel()
                self._timer, self._due = None, math.inf

    def _look_at(self, end: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = loop.call_at(end, self._expire, loop), end

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what has waited for too long, and look again when the next one may have."""
        # A timer may come early by the resolution of the clock.
        now = max(loop.time(), self._due)
        self._timer, self._due = None, math.inf
        late = [task for task, end in self._ends.items() if end <= now]
        for task in late:
            del self._ends[task]  # which is how it knows why
            task.cancel()
        if self._ends:
            self._look_at(min(self._ends.values()), loop)
