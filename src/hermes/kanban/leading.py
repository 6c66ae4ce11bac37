"""Statements for whoever serves a board: who leads, why cards were left alone, a pause, figures, retention."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from hermes.core.ids import random_hex
from hermes.kanban import tables as t
from hermes.kanban.moves import STATUSES
from hermes.kanban.store import Tx, values_of

__all__ = [
    "Failure", "Lease", "Notification", "Queued", "Reason", "Stats", "failures_since", "lead", "note_reasons",
    "notifications", "put_notification", "queue", "stats",
]  # fmt: skip


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads, until when."""

    holder: str
    token: str
    expires: float


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why the last pass left a card alone: one word, a sentence, and the command that cures it. `since` when first."""

    card_id: str
    reason: str
    detail: str = ""
    cure: str = ""
    since: float = 0.0


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass has to know of a card that could be taken, in the order of the queue."""

    id: str
    assignee: str | None
    reviewer: str | None
    step: str
    status: str
    home_id: str | None
    host_id: str | None
    not_before: float | None
    workspace_kind: str
    attempts: int
    consecutive_failures: int
    busy: bool


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A run that failed; equal fingerprints are the same error."""

    run_id: str
    card_id: str
    ended_at: float
    error: str
    error_fingerprint: str
    counted: bool


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The board in numbers; ages in seconds."""

    by_status: dict[str, int]
    by_assignee: dict[str, dict[str, int]]
    oldest_ready_age_seconds: float | None
    open_questions: int
    now: float


def lead(tx: Tx, name: str, holder: str, token: str | None, ttl: float) -> tuple[bool, Lease]:
    """Take or keep a lease; returns whether `holder` has it, and how it stands.

    `token` is the one of the last success, None for the first try. A lease that ran out is anybody's.
    """
    fresh = random_hex(16)
    key = t.leases.c.name == name
    free = sa.or_(t.leases.c.expires <= tx.now, sa.and_(t.leases.c.holder == holder, t.leases.c.token == (token or "")))
    taken = tx.run(t.leases.update().where(key, free).values(holder=holder, token=token or fresh, expires=tx.now + ttl))
    row = tx.row(sa.select(t.leases.c.holder, t.leases.c.token, t.leases.c.expires).where(key))
    if row is None:
        tx.run(t.leases.insert().values(name=name, holder=holder, token=fresh, expires=tx.now + ttl))
        return True, Lease(holder=holder, token=fresh, expires=tx.now + ttl)
    return bool(taken), Lease(holder=row[0], token=row[1], expires=row[2])


def let_go(tx: Tx, name: str, token: str) -> None:
    """Give a lease back."""
    tx.run(t.leases.delete().where(t.leases.c.name == name, t.leases.c.token == token))


def leader(tx: Tx, name: str) -> Lease | None:
    """Who leads now, None if nobody."""
    row = tx.row(
        sa.select(t.leases.c.holder, t.leases.c.token, t.leases.c.expires).where(
            t.leases.c.name == name, t.leases.c.expires > tx.now
        )
    )
    return Lease(holder=row[0], token="", expires=row[2]) if row is not None else None


def leaders(tx: Tx, prefix: str) -> dict[str, Lease]:
    """The leases that hold now, by name, of those whose names begin with `prefix`."""
    c = t.leases.c
    found = sa.select(c.name, c.holder, c.expires).where(c.name.startswith(prefix, autoescape=True), c.expires > tx.now)
    return {row[0]: Lease(holder=row[1], token="", expires=row[2]) for row in tx.rows(found)}


def queue(tx: Tx) -> list[Queued]:
    """Cards that are ready or wait for a review, in the order in which they are taken."""
    c = t.cards.c
    names = Queued.__struct_fields__[:-1]
    statement = sa.select(*(c[name] for name in names), c.busy_run.is_not(None)).where(
        c.status.in_(("ready", "review"))
    )
    return values_of(Queued, tx.rows(statement.order_by(c.status, c.priority.desc(), c.seq)))


def note_reasons(tx: Tx, reasons: Sequence[Reason]) -> int:
    """Replace what was noted by this pass; only rows that differ are written. Returns how many."""
    r = t.reasons.c
    known = {row[0]: (row[1], row[2], row[3]) for row in tx.rows(sa.select(r.card_id, r.reason, r.detail, r.cure))}
    wanted = {each.card_id: (each.reason, each.detail, each.cure) for each in reasons}
    gone = [card_id for card_id in known if card_id not in wanted]
    changed = [card_id for card_id, value in wanted.items() if known.get(card_id) != value]
    stale = gone + [card_id for card_id in changed if card_id in known]
    for start in range(0, len(stale), 500):
        tx.run(t.reasons.delete().where(r.card_id.in_(stale[start : start + 500])))
    if changed:
        now = tx.now
        rows = [
            {
                "card_id": each,
                "reason": wanted[each][0],
                "detail": wanted[each][1],
                "cure": wanted[each][2],
                "since": now,
            }
            for each in changed
        ]
        tx.run(t.reasons.insert(), rows)
    return len(gone) + len(changed)


def reasons_of(tx: Tx, card_id: str | None = None) -> list[Reason]:
    """What the last pass noted, of one card or of all."""
    statement = sa.select(*(t.reasons.c[name] for name in Reason.__struct_fields__))
    if card_id is not None:
        statement = statement.where(t.reasons.c.card_id == card_id)
    return values_of(Reason, tx.rows(statement.order_by(t.reasons.c.since)))


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A wish to be told of a card. `occasions`: needs_answer, failed, budget, done."""

    card_id: str
    occasions: list[str]
    author: str
    created_at: float


def put_notification(tx: Tx, card_id: str, occasions: Collection[str] | None, author: str) -> None:
    """Note on which occasions a card is told; None forgets it."""
    n = t.notifications
    known = tx.value(sa.select(n.c.occasions).where(n.c.card_id == card_id))
    wanted = None if occasions is None else sorted(set(occasions))
    if known == wanted:
        return
    tx.run(n.delete().where(n.c.card_id == card_id))
    if wanted is not None:
        tx.run(n.insert().values(card_id=card_id, occasions=wanted, author=author, created_at=tx.now))


def notifications(tx: Tx) -> list[Notification]:
    """All of them, oldest first."""
    columns = [t.notifications.c[name] for name in Notification.__struct_fields__]
    return values_of(Notification, tx.rows(sa.select(*columns).order_by(t.notifications.c.created_at)))


def failures_since(tx: Tx, since: float) -> list[Failure]:
    """Failed runs that ended after `since`, oldest first."""
    r = t.runs.c
    statement = (
        sa.select(r.id, r.card_id, r.ended_at, r.error, r.error_fingerprint, r.counted)
        .where(r.ended_at > since, r.error_fingerprint.is_not(None))
        .order_by(r.ended_at)
    )
    return values_of(Failure, tx.rows(statement))


def stats(tx: Tx) -> Stats:
    """Count the board."""
    c = t.cards.c
    by_status: dict[str, int] = dict.fromkeys(STATUSES, 0)
    by_assignee: dict[str, dict[str, int]] = {}
    for status, assignee, count in tx.rows(
        sa.select(c.status, c.assignee, sa.func.count()).group_by(c.status, c.assignee)
    ):
        by_status[status] += count
        if status != "archived":
            by_assignee.setdefault(assignee or "", {})[status] = count
    oldest = tx.value(sa.select(sa.func.min(c.updated_at)).where(c.status == "ready"))
    now = tx.now
    waiting = tx.value(sa.select(sa.func.count()).select_from(t.questions).where(t.questions.c.answered_at.is_(None)))
    return Stats(
        by_status=by_status,
        by_assignee=by_assignee,
        oldest_ready_age_seconds=None if oldest is None else max(0.0, now - float(oldest)),
        open_questions=int(waiting or 0),
        now=now,
    )


def get_meta(tx: Tx) -> dict[str, Any]:
    """Everything noted of the board itself."""
    return {str(key): value for key, value in tx.rows(sa.select(t.meta.c.key, t.meta.c.value))}


def put_meta(tx: Tx, values: Mapping[str, Any]) -> None:
    """Note something of the board itself; None removes it."""
    for key, value in values.items():
        tx.run(t.meta.delete().where(t.meta.c.key == key))
        if value is not None:
            tx.run(t.meta.insert().values(key=key, value=value))


def prune(tx: Tx, *, before: float) -> int:
    """Remove events and remembered answers older than `before` of cards that are done or archived; returns how many."""
    ended = sa.select(t.cards.c.id).where(t.cards.c.status.in_(("done", "archived")))
    e = t.events.c
    # The newest stays whatever its age, so that its number is never given again.
    newest = sa.select(sa.func.max(e.id)).scalar_subquery()
    removed = tx.run(t.events.delete().where(e.created_at < before, e.card_id.in_(ended), e.id < newest))
    return removed + tx.run(t.calls.delete().where(t.calls.c.created_at < before))
