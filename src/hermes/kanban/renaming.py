"""Another name for a profile on a board: its cards, what it spent, and its runs, by whose profile their sessions are
found.

Cards that are put away keep the name they had: nothing is done with them any more. Whoever has the same name in another
home that shares the database is somebody else.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from hermes.kanban import tables as t
from hermes.kanban.card import Worker
from hermes.kanban.moves import OPEN
from hermes.kanban.store import Tx

__all__ = ["rename_profile"]


def rename_profile(tx: Tx, here: Worker, old: str, new: str, author: str) -> list[str]:
    """Give everything that is for `old` to `new`; returns the open cards among it. May be done again."""
    c, r = t.cards.c, t.runs.c
    ours = sa.or_(c.home_id.is_(None), c.home_id == here.home_id)
    told: dict[str, dict[str, Any]] = {"assigned": {"from": old, "to": new}, "edited": {"fields": {"reviewer": new}}}
    moved: dict[str, None] = {}
    for column, kind in ((c.assignee, "assigned"), (c.reviewer, "edited")):
        its = (column == old, ours, c.status != "archived")
        rows = tx.rows(sa.select(c.id, c.status).where(*its).order_by(c.seq))
        tx.run(t.cards.update().where(*its).values({column: new}))
        if rows:
            tx.events(kind, author, [(str(card_id), None, told[kind]) for card_id, _ in rows])
        moved.update((str(card_id), None) for card_id, status in rows if status in OPEN)
    # What planning a card took belongs to no run; it is whose the card is.
    money = t.reservations
    known = sa.exists().where(r.id == money.c.run_id)
    planned = sa.and_(~known, sa.exists().where(c.id == money.c.card_id, ours))
    spent = sa.or_(known.where(r.home_id == here.home_id), planned)
    tx.run(money.update().where(money.c.profile == old, spent).values(profile=new))
    tx.run(t.runs.update().where(r.profile == old, r.home_id == here.home_id).values(profile=new))
    return list(moved)
