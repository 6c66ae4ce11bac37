"""A worker's place at its card. Loads nothing of the board, so that whoever starts a program can look for it.

It comes from the variables with which a worker is started; they name card, run, claim and folder, so that it never
looks for its card on another board.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from hermes.core.errors import UsageError
from hermes.kanban.card import Card, Check, Claim

__all__ = ["Seat", "seat_from"]


def _nothing_refused() -> str:
    return ""


async def _all_saved(_card: Card) -> str:
    return ""


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's place: its claim, and the folder it works in.

    `check` runs a card's check command there (None: checks cannot be run, and a card that has one cannot be completed).
    `refused` returns a command that was denied in this run, or nothing. `unsaved` sees that the work is where those who
    build on it find it, and says what the worker has to do first, or nothing.
    """

    claim: Claim
    workspace: str | None = None
    check: Callable[[Card], Awaitable[Check]] | None = None
    refused: Callable[[], str] = _nothing_refused
    unsaved: Callable[[Card], Awaitable[str]] = _all_saved


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
