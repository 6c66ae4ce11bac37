"""How long each row has really been running, and the end of those that took too long.

Counts only time in which the process ran: a gap between two ticks that is longer than any scheduling delay means that
the machine slept or the process stood still, and counts for nobody.
"""

from __future__ import annotations

import anyio

from hermes.runtime.standstill import SUSPENSION

__all__ = ["RowClock"]


class RowClock:
    """Cancels the scope of a row once it has been running for `limit` seconds (None = never)."""

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._ran: dict[str, float] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}

    def enter(self, key: str, scope: anyio.CancelScope) -> None:
        """A row starts to run in `scope`."""
        self._ran[key] = 0.0
        self._scopes[key] = scope

    def leave(self, key: str) -> None:
        """A row has ended."""
        del self._ran[key], self._scopes[key]

    def tick(self, gap: float) -> None:
        """`gap` seconds have passed since the last tick."""
        if self._limit is None or gap > SUSPENSION:
            return
        for key in self._ran:
            self._ran[key] += gap
            if self._ran[key] >= self._limit:
                self._scopes[key].cancel()
