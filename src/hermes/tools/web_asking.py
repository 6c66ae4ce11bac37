"""Requests of pages and search services that do not wait on a connection which died while the machine slept.

Each may be asked again: they only read. Who notices the sleep, and that a session makes new connections, is somebody
else's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

__all__ = ["Asking"]

T = TypeVar("T")
_TRIES = 3


class Asking:
    """The requests of one event loop. `woke` tells whether the process woke a moment ago, noticed or not."""

    def __init__(self, woke: Callable[[], bool] = bool) -> None:
        self._woke = woke
        self._under_way: set[anyio.CancelScope] = set()

    def drop(self) -> None:
        """Let what is under way be asked again, as nothing ran for long. Call it on the event loop."""
        dropped, self._under_way = self._under_way, set()
        for scope in dropped:
            scope.cancel()

    async def within(self, seconds: float, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` returns, asked again after a sleep, with as much time as at first.

        Raises:
            TimeoutError: it took longer than `seconds`.
        """
        for _ in range(_TRIES):
            with anyio.move_on_after(seconds) as scope:
                self._under_way.add(scope)
                try:
                    return await ask()
                finally:
                    slept = scope not in self._under_way
                    self._under_way.discard(scope)
            if not slept and not self._woke():
                break
        raise TimeoutError
