"""The boards as one process uses them: which board, and under which name. Opened when first used, on a thread."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.to_thread

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.kanban.board import AsyncBoard
from hermes.kanban.boards import Boards
from hermes.kanban.seat import Seat

__all__ = ["Access"]


class Access:
    """The boards as one profile uses them; `boards` is called on a thread once one is wanted.

    `author` is the profile's name, `seat` its place if it is a worker. `close` it.
    """

    def __init__(
        self, boards: Callable[[], Boards], *, author: str, seat: Seat | None = None, hold: Hold = NO_HOLD
    ) -> None:
        self._boards = boards
        self.author = author
        self.seat = seat
        self.hold = hold
        self._open: dict[str, AsyncBoard] = {}
        self._opening = anyio.Lock()

    async def board(self, name: str | None = None) -> AsyncBoard:
        """Return the board that is meant, or the one of that name.

        Raises:
            UsageError, OperatorError: it does not exist, or cannot be used.
        """
        key = name or ""
        async with self._opening:
            if key not in self._open:
                with held(self.hold):
                    found = await anyio.to_thread.run_sync(lambda: self._boards().open(name or None))
                self._open[key] = AsyncBoard(found, hold=self.hold)
            return self._open[key]

    async def close(self) -> None:
        """Close what was opened."""
        while self._open:
            await self._open.popitem()[1].close()
