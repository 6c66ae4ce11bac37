"""Statements by which a worker takes a card, shows that it lives, and loses it.

A claim is one statement, so that of several claimers one wins. Its token stands in every write of the worker: once the
claim is another's, no row fits and the worker learns it (`ClaimLost`). A run whose process is not known to be gone
keeps its card from being taken again, whatever the card's state; only a `Proof` ends that, never the mere passing of
time on one host.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from hermes.core.ids import random_hex
from hermes.kanban import tables as t
from hermes.kanban.budgets import Reserve, reserve
from hermes.kanban.card import Card, Claim, Worker
from hermes.kanban.errors import ClaimLost
from hermes.kanban.moves import Status, Step
from hermes.kanban.reading import CARD_COLUMNS, card_by_id
from hermes.kanban.store import SERVER_NOW, Tx, values_of

__all__ = ["PROCESS_FIELDS", "Beat", "Claimed", "claim", "heartbeat", "held", "note_process"]


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A card that was taken, with the claim that every write of its worker carries."""

    card: Card
    claim: Claim


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a sign of life: until when the claim holds, and where a person wants the card instead (`stop`)."""

    expires: float | None
    stop: Status | None = None
    reason: str | None = None


@functools.cache
def _claim_statement(step: Step, by_hand: bool, one: bool, server_clock: bool) -> sa.Executable:
    """The statement of a claim; built once, since building costs more than running it.

    Parameters: new_run, new_token, ttl (None: no end), on_host; at unless `server_clock`; those_profiles and of_home
    unless `by_hand`; that_card with `one`.
    """
    c = t.cards.c
    now: sa.ColumnElement[float] = SERVER_NOW if server_clock else sa.bindparam("at", type_=sa.Double)
    conditions = [
        c.status == ("ready" if step == "work" else "review"),
        sa.or_(c.not_before.is_(None), c.not_before <= now),
        sa.or_(c.host_id.is_(None), c.host_id == sa.bindparam("on_host")),
        # A ready card needs nothing that is open: whatever changes that moves the card in the same transaction.
        c.busy_run.is_(None),
    ]
    if not by_hand:
        profiles: sa.BindParameter[str] = sa.bindparam("those_profiles", expanding=True)
        # A review without a reviewer of its own is anybody's whom the dispatcher chooses.
        who = c.assignee.in_(profiles) if step == "work" else sa.or_(c.reviewer.is_(None), c.reviewer.in_(profiles))
        conditions += [who, sa.or_(c.home_id.is_(None), c.home_id == sa.bindparam("of_home"))]
    if one:
        conditions.append(c.id == sa.bindparam("that_card"))
    queue = sa.select(c.seq).where(*conditions).order_by(c.priority.desc(), c.seq).limit(1)
    return (
        t.cards.update()
        .where(c.seq == queue.with_for_update(skip_locked=True).correlate(None).scalar_subquery())
        .values(
            status="running",
            step=step,
            current_run_id=sa.bindparam("new_run"),
            busy_run=sa.bindparam("new_run"),
            claim_token=sa.bindparam("new_token"),
            claim_expires=now + sa.bindparam("ttl", type_=sa.Double),
            attempts=c.attempts + 1,
            started_at=sa.func.coalesce(c.started_at, now),
            not_before=None,
            stop_requested=None,
            stop_reason=None,
            updated_at=now,
        )
        .returning(*CARD_COLUMNS)
    )


_NEW_RUN = t.runs.insert()


def claim(
    tx: Tx,
    worker: Worker,
    *,
    profiles: Sequence[str] | None,
    author: str,
    card_id: str | None = None,
    ttl: float | None = 900.0,
    step: Step = "work",
    profile: str | None = None,
    money: Reserve | None = None,
    manual: bool = False,
) -> Claimed | None:
    """Take the first card that fits in the order of the queue, or `card_id` if it does; None if none.

    A `manual` claim is a person's: it has no process, and with `ttl` None no end. `profile` is who runs it, by default
    the assignee.

    Raises:
        BudgetSpent: `money` is not there; nothing was taken.
    """
    run_id, token = f"r_{random_hex(12)}", random_hex(32)
    known = tx.known_now
    parameters: dict[str, Any] = {"new_run": run_id, "new_token": token, "ttl": ttl, "on_host": worker.host_id}
    if known is not None:
        parameters["at"] = known
    if profiles is not None:
        parameters |= {"those_profiles": list(profiles), "of_home": worker.home_id}
    if card_id is not None:
        parameters["that_card"] = card_id
    row = tx.row(_claim_statement(step, profiles is None, card_id is not None, known is None), parameters)
    if row is None:
        return None
    card = values_of(Card, [row])[0]
    tx.known_now = card.updated_at
    who = profile or (card.reviewer if step == "review" else card.assignee)
    tx.run(
        _NEW_RUN,
        {
            "id": run_id, "card_id": card.id, "attempt": card.attempts, "profile": who, "step": step,
            "manual": manual, "token": token, "host_id": worker.host_id, "home_id": worker.home_id,
            "boot_id": worker.boot_id, "pid": worker.pid, "process_started": worker.process_started,
            "started_at": tx.now, "expires": card.claim_expires, "counted": False,
        },
    )  # fmt: skip
    tx.event("claimed", author, card.id, run_id, attempt=card.attempts, profile=who, step=step)
    if money is not None:
        reserve(tx, money, card, run_id, who)
    return Claimed(card=card, claim=Claim(card_id=card.id, run_id=run_id, token=token, expires=card.claim_expires))


def held(tx: Tx, claim: Claim) -> Card:
    """Return the card of a claim that still holds, locked.

    Raises:
        ClaimLost: it does not; the text says what the card is now.
    """
    token = tx.value(sa.select(t.cards.c.claim_token).where(t.cards.c.id == claim.card_id).with_for_update())
    card = card_by_id(tx, claim.card_id)
    if card.status != "running" or card.current_run_id != claim.run_id or token != claim.token:
        raise _lost(claim, card)
    return card


def _lost(claim: Claim, card: Card) -> ClaimLost:
    now = f"running in {card.current_run_id}" if card.status == "running" else card.status
    return ClaimLost(
        f"the claim of {claim.run_id} on {claim.card_id} is lost: the card is {now}. Nothing was written; this worker "
        "has to stop."
    )


def heartbeat(tx: Tx, claim: Claim, author: str, *, ttl: float, note: str = "") -> Beat:
    """Prolong a claim; `ttl` in seconds from now. Raises `ClaimLost`."""
    c = t.cards.c
    row = tx.row(
        t.cards.update()
        .where(
            c.id == claim.card_id,
            c.status == "running",
            c.current_run_id == claim.run_id,
            c.claim_token == claim.token,
        )
        .values(claim_expires=sa.case((c.claim_expires.is_(None), None), else_=tx.now + ttl))
        .returning(c.claim_expires, c.stop_requested, c.stop_reason)
    )
    if row is None:
        raise _lost(claim, card_by_id(tx, claim.card_id))
    tx.run(t.runs.update().where(t.runs.c.id == claim.run_id).values(heartbeat_at=tx.now, expires=row[0]))
    if note:
        tx.event("heartbeat", author, claim.card_id, claim.run_id, note=note[:400])
    return Beat(expires=row[0], stop=row[1], reason=row[2])


#: What a worker's process may tell of itself, as columns of its run.
PROCESS_FIELDS = ("boot_id", "pid", "process_started", "workspace", "session_id", "branch_name", "git_commit")


def note_process(tx: Tx, claim: Claim, author: str, fields: dict[str, str | int | None]) -> None:
    """Write down where a run lives: its process, workspace, session, branch. Raises `ClaimLost`."""
    card = held(tx, claim)
    known = tx.value(sa.select(t.runs.c.pid).where(t.runs.c.id == claim.run_id))
    tx.run(t.runs.update().where(t.runs.c.id == claim.run_id).values(**fields))
    if fields.get("branch_name") and card.branch_name is None:  # cards that build on this one look for it here
        tx.run(t.cards.update().where(t.cards.c.id == card.id).values(branch_name=fields["branch_name"]))
    if fields.get("pid") is not None and fields["pid"] != known:
        tx.event("spawned", author, claim.card_id, claim.run_id, pid=fields["pid"], workspace=fields.get("workspace"))
