"""Statements by which a run ends and its card is free again: closing it, the proof that its worker is gone, failures.

`claiming` is how a card is taken. Nothing here looks at a process; whoever did brings a `Proof`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hermes.kanban import tables as t
from hermes.kanban.card import Card, Proof, Run, fingerprint
from hermes.kanban.errors import BoardError, StillRunning
from hermes.kanban.linking import hold_back, promote_children
from hermes.kanban.moves import OUTCOMES, Outcome, Status
from hermes.kanban.reading import card_by_id, run_by_id
from hermes.kanban.store import Tx

__all__ = [
    "FAILURE_LIMIT",
    "Released",
    "check_proof",
    "end_run",
    "forgive",
    "mark_exited",
    "note_work",
    "release",
    "request_stop",
]

#: Failures in a row after which a card waits for a person, where neither card nor configuration says otherwise.
FAILURE_LIMIT = 2


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a card whose worker is gone. `gave_up` says that the circuit breaker put it aside."""

    card: Card
    counted: bool = False
    gave_up: bool = False


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


def note_work(tx: Tx, run_id: str, commit: str, uncommitted: Sequence[str]) -> None:
    """Keep with a run that is over where its branch stands, and which files it left uncommitted (50 are kept)."""
    run = run_by_id(tx, run_id)
    metadata = {**(run.metadata or {}), "uncommitted": list(uncommitted[:50])} if uncommitted else run.metadata
    tx.run(t.runs.update().where(t.runs.c.id == run_id).values(git_commit=commit, metadata_=metadata))


def check_proof(tx: Tx, run: Run, proof: Proof | None) -> None:
    """Check that a run's worker can write nothing more.

    Raises:
        StillRunning: that is not proven.
    """
    where = f"{run.card_id} is held by {run.id} ({run.profile or 'a person'}, host {run.host_id[:8]}, pid {run.pid})"
    if run.manual:
        if proof is not None and proof.kind == "lease" and (run.expires is None or run.expires >= tx.now):
            raise StillRunning(f"{where}, and the time it was taken for has not run out.")
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
        hold_back(tx, author, card.id, "dependency_wait")  # a card that a worker split waits for the parts now
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
