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
from hermes.kanban.card import Card, Claim, Proof, Run, Worker, fingerprint
from hermes.kanban.errors import BoardError, ClaimLost, StillRunning
from hermes.kanban.linking import HELD_BACK, promote_children
from hermes.kanban.moves import OUTCOMES, Outcome, Status, Step
from hermes.kanban.reading import CARD_COLUMNS, card_by_id, run_by_id
from hermes.kanban.store import SERVER_NOW, Tx, values_of

__all__ = [
    "Beat",
    "Claimed",
    "Released",
    "claim",
    "end_run",
    "forgive",
    "heartbeat",
    "held",
    "mark_exited",
    "note_process",
    "release",
]

#: Failures in a row after which a card waits for a person, where neither card nor configuration says otherwise.
FAILURE_LIMIT = 2


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A card that was taken, with the claim that every write of its worker carries."""

    card: Card
    claim: Claim


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a sign of life: until when the claim holds, and where a person wants the card instead (`stop`)."""

    expires: float | None
    stop: Status | None = None
    reason: str | None = None


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a card whose worker is gone. `gave_up` says that the circuit breaker put it aside."""

    card: Card
    counted: bool = False
    gave_up: bool = False


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
) -> Claimed | None:
    """Take the first card that fits in the order of the queue, or `card_id` if it does; None if none.

    `ttl` None makes a claim by hand: it has no end and no process. `profile` is who runs it, by default the assignee.

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
            "manual": ttl is None, "token": token, "host_id": worker.host_id, "home_id": worker.home_id,
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
    held(tx, claim)
    tx.run(t.runs.update().where(t.runs.c.id == claim.run_id).values(**fields))
    if fields.get("pid") is not None:
        tx.event("spawned", author, claim.card_id, claim.run_id, pid=fields["pid"], workspace=fields.get("workspace"))


def end_run(
    tx: Tx,
    card: Card,
    outcome: Outcome,
    *,
    summary: str | None = None,
    metadata: dict[str, object] | None = None,
    error: str | None = None,
    gone: bool = False,
    counted: bool = False,
) -> None:
    """Close the current run of a card and take the claim away; the caller moves the card.

    The process may still be there unless `gone` (or the claim was made by hand), and keeps the card from being taken.
    """
    if card.current_run_id is None:
        return
    gone = gone or card.claim_expires is None
    tx.run(
        t.runs.update()
        .where(t.runs.c.id == card.current_run_id)
        .values(
            ended_at=tx.now,
            exited_at=tx.now if gone else None,
            outcome=outcome,
            summary=summary,
            metadata_=metadata,
            error=error,
            error_fingerprint=fingerprint(error) if error else None,
            counted=counted,
        )
    )
    tx.run(
        t.cards.update()
        .where(t.cards.c.id == card.id)
        .values(
            current_run_id=None,
            busy_run=None if gone else card.current_run_id,
            claim_token=None,
            claim_expires=None,
            stop_requested=None,
            stop_reason=None,
        )
    )


def check_proof(tx: Tx, run: Run, proof: Proof | None) -> None:
    """Check that a run's worker can write nothing more.

    Raises:
        StillRunning: that is not proven.
    """
    where = f"{run.card_id} is held by {run.id} ({run.profile or 'a person'}, host {run.host_id[:8]}, pid {run.pid})"
    if run.manual:
        return
    if proof is None:
        raise StillRunning(
            f"{where}. It has to end first: `hermes kanban reclaim {run.card_id}` stops it. Nothing was changed."
        )
    if proof.kind != "lease":
        if proof.host_id != run.host_id:
            raise StillRunning(f"{where}: whether its process lives is not known on host {proof.host_id[:8]}.")
        return
    if proof.host_id == run.host_id:
        raise StillRunning(f"{where}: on the same host its process has to be looked for, a lease proves nothing.")
    if run.expires is None or run.expires >= tx.now:
        raise StillRunning(f"{where}, and its lease has not run out.")


def release(
    tx: Tx,
    run_id: str,
    outcome: Outcome,
    proof: Proof,
    *,
    author: str,
    error: str = "",
    failure_limit: int | None = None,
    cooldown: float = 0.0,
) -> Released:
    """Record that a run's worker is gone, and make its card free again if that run still held it.

    `failure_limit` is the configured one, `cooldown` seconds before the card may be taken again. A run that had ended
    properly keeps its outcome.

    Raises:
        CardNotFound: no such run.
        StillRunning: the proof does not hold.
    """
    run = run_by_id(tx, run_id)
    card = card_by_id(tx, run.card_id, lock=True)
    run = run_by_id(tx, run_id)  # as it is under the lock: a sign of life may have come meanwhile
    check_proof(tx, run, proof)
    if card.current_run_id != run.id:
        if run.exited_at is None:
            mark_exited(tx, run.id)
        return Released(card=card)
    excused = outcome == "stale" and run.heartbeat_at is not None
    rule = OUTCOMES[outcome]
    counted = rule.counts and not excused
    failures = 0 if rule.resets else card.consecutive_failures + (1 if counted else 0)
    limit, source = _limit(card, failure_limit)
    gave_up = counted and failures >= limit
    target: Status = "blocked" if gave_up else ("review" if card.step == "review" else "ready")
    if card.stop_requested is not None:
        target, gave_up = card.stop_requested, False
    end_run(tx, card, outcome, error=error or proof.detail or None, gone=True, counted=counted)
    tx.run(
        t.cards.update()
        .where(t.cards.c.id == card.id)
        .values(
            status=target,
            consecutive_failures=failures,
            last_failure_error=(error or None) if counted else card.last_failure_error,
            block_reason=(error or f"{failures} failures in a row") if gave_up else (card.stop_reason or None),
            not_before=tx.now + cooldown if cooldown > 0 else None,
            updated_at=tx.now,
        )
    )
    kind = outcome if outcome in _EVENT_OF_ITS_OWN else "reclaimed"
    short = error[:400] or None
    tx.event(kind, author, card.id, run.id, outcome=outcome, error=short, proof=proof.kind, failures=failures)
    if gave_up:
        told = {"failures": failures, "effective_limit": limit, "limit_source": source, "error": error[:400]}
        tx.event("gave_up", author, card.id, run.id, **told)
    _settle(tx, card, target, author)
    return Released(card=card_by_id(tx, card.id), counted=counted, gave_up=gave_up)


def _settle(tx: Tx, card: Card, target: Status, author: str) -> None:
    """Do what the new state of a released card brings with it."""
    if target == "ready":
        _hold_or_keep(tx, author, card.id)
    elif target == "archived":
        tx.event("archived", author, card.id)
        promote_children(tx, author, card.id)
    elif card.stop_requested is not None:
        tx.event("status", author, card.id, **{"from": "running", "to": target, "reason": card.stop_reason})


_EVENT_OF_ITS_OWN = ("crashed", "timed_out", "stale", "spawn_failed", "rate_limited")


def _limit(card: Card, configured: int | None) -> tuple[int, str]:
    if card.max_retries is not None:
        return max(1, card.max_retries), "card"
    if configured is not None:
        return max(1, configured), "configuration"
    return FAILURE_LIMIT, "default"


def _hold_or_keep(tx: Tx, author: str, card_id: str) -> None:
    """A card that a worker split while it ran waits for the parts now."""
    moved = tx.run(
        t.cards.update().where(t.cards.c.id == card_id, t.cards.c.status == "ready", HELD_BACK).values(status="todo")
    )
    if moved:
        tx.event("dependency_wait", author, card_id)


def mark_exited(tx: Tx, run_id: str) -> None:
    """Note that a run's process is gone; its card may be taken again."""
    tx.run(t.cards.update().where(t.cards.c.busy_run == run_id).values(busy_run=None))
    tx.run(t.runs.update().where(t.runs.c.id == run_id, t.runs.c.exited_at.is_(None)).values(exited_at=tx.now))


def forgive(tx: Tx, run_ids: Sequence[str], author: str) -> None:
    """Take failures off the cards' counts again: what broke was not theirs (a provider that was down for all)."""
    for run_id in run_ids:
        run = run_by_id(tx, run_id)
        if not run.counted:
            continue
        tx.run(t.runs.update().where(t.runs.c.id == run_id).values(counted=False))
        tx.run(
            t.cards.update()
            .where(t.cards.c.id == run.card_id, t.cards.c.consecutive_failures > 0)
            .values(consecutive_failures=t.cards.c.consecutive_failures - 1)
        )
        tx.event("reconciled", author, run.card_id, run_id, forgiven=True)


def request_stop(tx: Tx, card: Card, then: Status, reason: str, author: str) -> None:
    """Ask the worker of a running card to stop; once it is gone the card goes to `then`."""
    if card.status != "running":
        raise BoardError(f"{card.id} is {card.status}: no worker has to be stopped. Nothing was changed.")
    tx.run(
        t.cards.update()
        .where(t.cards.c.id == card.id)
        .values(stop_requested=then, stop_reason=reason or None, updated_at=tx.now)
    )
    tx.event("reclaim_deferred", author, card.id, card.current_run_id, then=then, reason=reason or None)
