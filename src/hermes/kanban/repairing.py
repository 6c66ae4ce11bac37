"""Finding rows of a board that contradict each other, and putting them right.

The verbs of a board leave no such rows; a copy of a file that was put back, another program's hand in it, or a fault of
ours may. Ends no process and removes no card: a card that nobody proves to be worked on may be taken again. A damaged
file is only told.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from hermes.kanban import tables as t
from hermes.kanban.linking import hold_back, promote
from hermes.kanban.moves import OPEN
from hermes.kanban.store import Tx

__all__ = ["Mended", "repair"]

_BY = "repair"
_PARENT = t.cards.alias("parent")


class Mended(msgspec.Struct, frozen=True, kw_only=True):
    """Something that contradicts itself. `mended`: it was put right (or would be, in a dry run)."""

    what: str
    card: str | None = None
    mended: bool = True


def repair(tx: Tx, *, dry_run: bool) -> list[Mended]:
    """Look at all rows and put right what can be; the transaction has to be alone in the board."""
    found = _file(tx) if tx.connection.dialect.name == "sqlite" else []
    if any(not each.mended for each in found):
        return found  # nothing is written into a damaged file
    return [*_running(tx, dry_run), *_busy(tx, dry_run), *_waiting(tx, dry_run), *_money(tx, dry_run)]


def _file(tx: Tx) -> list[Mended]:
    said = [str(row[0]) for row in tx.connection.exec_driver_sql("PRAGMA integrity_check(20)")]
    found = [Mended(what=f"the file is damaged: {line}", mended=False) for line in said if line != "ok"]
    for table, row, parent, _ in tx.connection.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(20):
        found.append(Mended(what=f"row {row} of {table} names a row of {parent} that is not there", mended=False))
    return found


def _ids(tx: Tx, statement: sa.Select[tuple[str]]) -> list[str]:
    return [str(row[0]) for row in tx.rows(statement)]


def _each(tx: Tx, ids: Sequence[str], what: str, dry_run: bool) -> list[Mended]:
    if ids and not dry_run:
        tx.events("reconciled", _BY, [(card, None, {"what": what}) for card in ids])
    return [Mended(what=what, card=card) for card in ids]


def _running(tx: Tx, dry_run: bool) -> list[Mended]:
    """Cards that run without a run, and claims of cards that do not run."""
    c, r = t.cards.c, t.runs.c
    living = sa.select(r.id).where(r.ended_at.is_(None))
    lost = _ids(
        tx,
        sa.select(c.id).where(
            c.status == "running", sa.or_(c.current_run_id.is_(None), c.current_run_id.not_in(living))
        ),
    )
    held = _ids(tx, sa.select(c.id).where(c.status != "running", c.current_run_id.is_not(None)))
    if not dry_run:
        free = {"current_run_id": None, "claim_token": None, "claim_expires": None, "stop_requested": None}
        ready = sa.case((c.step == "review", "review"), else_="ready")
        for card in lost:
            tx.run(t.cards.update().where(c.id == card).values(status=ready, updated_at=tx.now, **free))
        for card in held:
            tx.run(t.cards.update().where(c.id == card).values(updated_at=tx.now, **free))
    return [
        *_each(tx, lost, "it was running and no run of it is; it may be taken again", dry_run),
        *_each(tx, held, "it was claimed and is not running; the claim is gone", dry_run),
    ]


def _busy(tx: Tx, dry_run: bool) -> list[Mended]:
    """Cards that wait for a process which is known to be gone."""
    c, r = t.cards.c, t.runs.c
    alive = sa.select(r.id).where(r.exited_at.is_(None))
    ids = _ids(tx, sa.select(c.id).where(c.busy_run.is_not(None), c.busy_run.not_in(alive)))
    if not dry_run:
        for card in ids:
            tx.run(t.cards.update().where(c.id == card).values(busy_run=None))
    return _each(tx, ids, "it waited for a process that is known to be gone", dry_run)


def _waiting(tx: Tx, dry_run: bool) -> list[Mended]:
    """Cards that are ready before their parents, and cards that wait for nothing."""
    c, p = t.cards.c, _PARENT.c
    link = t.links.c
    open_parent = (
        sa.select(link.child_id)
        .select_from(t.links.join(_PARENT, p.id == link.parent_id))
        .where(link.kind == "needs", p.status.in_(OPEN))
    )
    early = _ids(tx, sa.select(c.id).where(c.status == "ready", c.id.in_(open_parent)))
    late = _ids(tx, sa.select(c.id).where(c.status == "todo", c.id.not_in(open_parent)))
    if not dry_run:
        for card in early:
            hold_back(tx, _BY, card)
        promote(tx, _BY, late)
    return [
        *_each(tx, early, "it was ready while a card it needs is open; it waits again", dry_run),
        *_each(tx, late, "it waited for nothing; it is ready", dry_run),
    ]


def _money(tx: Tx, dry_run: bool) -> list[Mended]:
    """Money that is set aside for runs which are over."""
    r = t.reservations.c
    alive = sa.select(t.runs.c.id).where(t.runs.c.exited_at.is_(None))
    # A plan has no run, and may be on its way; what is left of it weighs on its own day alone.
    over = sa.and_(r.settled.is_(False), r.run_id.not_in(alive), r.run_id.not_like("plan%"))
    rows = tx.rows(sa.select(r.card_id, r.reserved_usd, r.reserved_tokens).where(over))
    if rows and not dry_run:
        tx.run(t.reservations.update().where(over).values(settled=True))
    what = "${:g} and {:,} tokens were set aside for a run that is over; they are given back"
    return [Mended(what=what.format(row[1], row[2]), card=row[0]) for row in rows]
