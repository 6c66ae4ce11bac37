"""Time of several real processes that goes slower than that of the machine, so that a busy machine keeps up with it.

All of it goes slower, the limits and pauses of the code under test too: what happens in a second happens in a second.
"""

from __future__ import annotations

import asyncio
import selectors
import time

#: Seconds of the machine that a second lasts.
SLOWNESS = 4.0


def now() -> float:
    """Seconds since a moment that is the same for all processes; it stands for the wall clock."""
    return time.time() / SLOWNESS


class _SlowSelector(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else timeout * SLOWNESS)


class SlowLoop(asyncio.SelectorEventLoop):
    """A loop on that time."""

    def __init__(self) -> None:
        super().__init__(_SlowSelector())

    def time(self) -> float:
        return time.monotonic() / SLOWNESS
