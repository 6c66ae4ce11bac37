"""Who uses the boards within one process: which board, under which name, and a worker's seat at its card.

Boards are opened when they are first used, on a thread. A worker gets its seat from the variables with which it was
started; they name card, run, claim and folder, so that it never looks for its card on another board.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import anyio
import anyio.to_thread
import msgspec

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import UsageError
from hermes.kanban.board import AsyncBoard
from hermes.kanban.boards import Boards
from hermes.kanban.card import Card, Check, Claim

__all__ = ["Access", "Seat", "seat_from"]


def _nothing_refused() -> str:
    return ""


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's place: its claim, and the folder it works in.

    `check` runs a card's check command there (None: checks cannot be run, and a card that has one cannot be completed).
    `refused` returns a command that was denied in this run, or nothing.
    """

    claim: Claim
    workspace: str | None = None
    check: Callable[[Card], Awaitable[Check]] | None = None
    refused: Callable[[], str] = _nothing_refused


def seat_from(environ: Mapping[str, str]) -> Seat | None:
    """Read a worker's seat from its variables; None for whoever is no worker.

    Raises:
        UsageError: only some of them are there.
    """
    card = environ.get("HERMES_KANBAN_TASK", "").strip()
    if not card:
        return None
    run, token = environ.get("HERMES_KANBAN_RUN_ID", "").strip(), environ.get("HERMES_KANBAN_CLAIM_LOCK", "").strip()
    if not run or not token:
        raise UsageError(
            f"HERMES_KANBAN_TASK is {card}, but HERMES_KANBAN_RUN_ID or HERMES_KANBAN_CLAIM_LOCK is missing: workers "
            "are started by `hermes kanban dispatch`; unset HERMES_KANBAN_TASK to work by hand"
        )
    workspace = environ.get("HERMES_KANBAN_WORKSPACE", "").strip() or None
    return Seat(claim=Claim(card_id=card, run_id=run, token=token), workspace=workspace)


class Access:
    """The boards as one profile uses them. `author` is its name, `seat` its place if it is a worker. `close` it."""

    def __init__(self, boards: Boards, *, author: str, seat: Seat | None = None, hold: Hold = NO_HOLD) -> None:
        self.boards = boards
        self.author = author
        self.seat = seat
        self.hold = hold
        self._open: dict[str, AsyncBoard] = {}
        self._opening = anyio.Lock()

    @property
    def home_id(self) -> str:
        """The home's id, which makes a call's key unique among the homes that share a board."""
        return self.boards.here.home_id

    async def board(self, name: str | None = None) -> AsyncBoard:
        """Return the board that is meant, or the one of that name.

        Raises:
            UsageError, OperatorError: it does not exist, or cannot be used.
        """
        key = name or ""
        async with self._opening:
            if key not in self._open:
                with held(self.hold):
                    found = await anyio.to_thread.run_sync(self.boards.open, name or None)
                self._open[key] = AsyncBoard(found, hold=self.hold)
            return self._open[key]

    async def close(self) -> None:
        """Close what was opened."""
        while self._open:
            await self._open.popitem()[1].close()
