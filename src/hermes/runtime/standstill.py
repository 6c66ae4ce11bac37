"""Whether the whole process stood still: a closed laptop, SIGSTOP. Whoever holds connections is told.

The event loop and a thread beside it both beat. Where only the loop misses its beats something blocks it, and its
connections live; where neither beat for long, nothing of the process ran. It stops no clock: limits of time do not run
through a suspension by themselves (see `deadlines`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["SUSPENSION", "Standstill", "awake_clock"]

#: Seconds without a beat that are longer than any delay of scheduling: a suspension.
SUSPENSION = 30.0
#: Seconds after a suspension in which the network may still be coming back.
WAKING = 60.0


def awake_clock() -> float:
    """Seconds of a clock that goes on while the machine sleeps, which the clock of an event loop does not."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Standstill:
    """Notices suspensions.

    Args:
        clock: seconds that go on while the machine sleeps.
    """

    def __init__(self, clock: Callable[[], float] = awake_clock) -> None:
        #: Called on the event loop with the seconds of a suspension that is over.
        self.noticed: list[Callable[[float], None]] = []
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: float | None = None
        self._longest = 0.0
        self._woke: float | None = None

    def beat(self) -> float:
        """Say that something runs; returns the seconds since anything last did. From any thread."""
        with self._lock:
            now = self._clock()
            gap = now - self._seen if self._seen is not None else 0.0
            self._seen = now
            self._longest = max(self._longest, gap)
        return gap

    def take(self) -> float:
        """The beat of the event loop; returns the seconds of a suspension since the last one, 0 where there was none,
        and tells whoever wants to know."""
        self.beat()
        with self._lock:
            longest, self._longest = self._longest, 0.0
            if longest <= SUSPENSION:
                return 0.0
            self._woke = self._seen
        for tell in self.noticed:
            tell(longest)
        return longest

    def lately(self) -> bool:
        """Whether the process woke a moment ago, also where nobody has noticed yet."""
        with self._lock:
            now = self._clock()
            woke = self._woke is not None and now - self._woke < WAKING
            return woke or (self._seen is not None and now - self._seen > SUSPENSION)
