"""Time as a part that is passed in: the wall clock, and the hold that keeps a simulated clock standing.

Durations are read from `anyio.current_time()` only; a `Clock` is for what is shown or stored (seconds since the epoch).
A part that hands work to something the event loop cannot see (a writer thread, a blocking call, a command) holds the
clock until the work has really ended. In production nothing has to be held: `NO_HOLD`. This module deliberately has no
timers and no sleeping.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import anyio
import anyio.lowlevel

__all__ = ["NO_HOLD", "Clock", "Hold", "NoHold", "SystemClock", "held", "loop_clock"]


class Clock(Protocol):
    """The wall clock."""

    def now(self) -> float:
        """Return seconds since the epoch, with fractions."""


class SystemClock:
    """The wall clock of the machine."""

    #: Seconds since the epoch, with fractions.
    now = staticmethod(time.time)


def loop_clock() -> Callable[[], float]:
    """Return the clock of the running event loop, which `anyio.current_time()` reads too.

    It finds the loop anew with each reading, which costs eight times as much. Raises what it raises without a loop.
    """
    found = getattr(anyio.lowlevel.current_token().native_token, "time", None)
    return found if callable(found) else anyio.current_time


class Hold(Protocol):
    """A counter: while it is above zero, simulated time stands. Both methods may be called from any thread."""

    def hold(self) -> None:
        """Count one piece of work that the event loop cannot see."""

    def release(self) -> None:
        """Count it off, once the work has really ended and its result is on the event loop."""


class NoHold:
    """The hold of a real clock: it does nothing."""

    def hold(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""


#: Default of every parameter that takes a hold.
NO_HOLD: Hold = NoHold()


@contextmanager
def held(hold: Hold) -> Iterator[None]:
    """Hold for the length of a block, however it ends."""
    hold.hold()
    try:
        yield
    finally:
        hold.release()
