"""Blocking work of a batch on threads of its own, so that it never waits behind tools that block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from hermes.core.clock import NO_HOLD, Hold, held

__all__ = ["Threads"]

R = TypeVar("R")


class Threads:
    """At most `threads` calls at a time. A simulated clock stands still meanwhile (`hold`). Belongs to one loop."""

    def __init__(self, threads: int, hold: Hold = NO_HOLD) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._hold = hold

    async def run(self, function: Callable[..., R], *args: object) -> R:
        """Run `function(*args)`; a cancellation waits for its end."""
        with held(self._hold):
            return await anyio.to_thread.run_sync(function, *args, limiter=self._limiter)
