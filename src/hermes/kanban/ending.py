"""Statements that bring a card to the end of a run or of its life: complete, block, review, answer, schedule, archive.

A running card is moved by its worker, who shows the claim, or by others who show that the worker is gone (`Authority`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from hermes.core.errors import UsageError
from hermes.kanban import tables as t
from hermes.kanban.card import BLOCK_KINDS, BlockKind, Card, Check, Claim, Proof, Question
from hermes.kanban.claiming import held
from hermes.kanban.creating import add_comment, name_of
from hermes.kanban.errors import BoardError, CardNotFound
from hermes.kanban.linking import hold_back, promote, promote_children, wait_for_own_children
from hermes.kanban.moves import Outcome, Status, Verb, check_move
from hermes.kanban.reading import card_by_id, open_parents, questions_open, run_by_id
from hermes.kanban.releasing import check_proof, end_run
from hermes.kanban.store import Tx

__all__ = [
    "Authority",
    "Completion",
    "answer",
    "archive",
    "block",
    "complete",
    "reopen",
    "report_check",
    "request_changes",
    "request_review",
    "schedule",
    "specify",
    "unblock",
]

#: Blocks of the same kind in a row after which a card has to be thought through anew.
BLOCK_LIMIT = 2
#: Failed checks after which a person or a reviewer looks at the card.
CHECK_LIMIT = 2
#: Characters of a summary that an event repeats.
_EVENT_SUMMARY = 400


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """Who moves a card: `author` by name, with the worker's claim, or the proof that its worker is gone."""

    author: str
    claim: Claim | None = None
    proof: Proof | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished card brings. `check` is what came of its check command. `created_cards` are verified.

    `denied` names a command that was refused in this run, after which the work cannot count as done. `override` is a
    person's word that it does, whatever check and refusals say.
    """

    summary: str = ""
    result: str = ""
    metadata: dict[str, Any] | None = None
    created_cards: tuple[str, ...] = ()
    check: Check | None = None
    denied: str = ""
    override: bool = False


def _begin(tx: Tx, card_id: str, verb: Verb, by: Authority) -> Card:
    """Return the card, locked, once it may be moved. Raises `MoveRefused`, `StillRunning`, `ClaimLost`."""
    if by.claim is not None:
        card = held(tx, by.claim)
        check_move(card.id, card.status, verb)
        return card
    card = card_by_id(tx, card_id, lock=True)
    check_move(card.id, card.status, verb)
    if card.status == "running" and card.current_run_id is not None:
        check_proof(tx, run_by_id(tx, card.current_run_id), by.proof)
    return card


def _move(tx: Tx, card: Card, status: Status, by: Authority, outcome: Outcome, /, **values: Any) -> None:
    """Put a card into a state and close its run, whose end becomes `outcome`."""
    run = {name: values.pop(name) for name in ("summary", "metadata", "error") if name in values}
    if card.status == "running":
        end_run(tx, card, outcome, gone=by.claim is None, **run)
    tx.run(t.cards.update().where(t.cards.c.id == card.id).values(status=status, updated_at=tx.now, **values))


def complete(tx: Tx, card_id: str, done: Completion, by: Authority) -> Status:
    """Finish a card, or hand it to its reviewer; returns the state it has now.

    Raises:
        BoardError: a parent is open, cards that were not made, no check that passed, a command that was refused.
    """
    card = _begin(tx, card_id, "complete", by)
    waiting = open_parents(tx, card.id)
    if waiting:
        names = ", ".join(f"{parent.id} ({parent.status})" for parent in waiting)
        raise BoardError(
            f"{card.id} cannot be done before {names}. A worker that waits for them calls block with kind dependency."
        )
    _verify_created(tx, card, done, by)
    if not done.override:
        _verify_effect(tx, card, done, by)
    summary = (done.summary or done.result).strip()
    if by.claim is not None and card.step == "work" and card.reviewer:
        return _to_review(tx, card, summary, done.metadata, None, by, result=done.result)
    if card.status != "running":
        _instant_run(tx, card, summary, by)
    judged = by.claim is not None and card.step == "review" and card.result  # the work's result, not the verdict, stays
    _move(tx, card, "done", by, "completed", summary=summary, metadata=done.metadata)
    tx.run(
        t.cards.update()
        .where(t.cards.c.id == card.id)
        .values(
            summary=(card.summary if judged else summary) or None,
            result=judged or done.result or summary or None,
            completed_at=tx.now,
            consecutive_failures=0,
            block_kind=None,
            block_reason=None,
            block_recurrences=0,
        )
    )
    tx.event("completed", by.author, card.id, card.current_run_id, summary=_line(summary))
    promote_children(tx, by.author, card.id)
    return "done"


def _line(text: str) -> str | None:
    lines = text.strip().splitlines()
    return lines[0][:_EVENT_SUMMARY] if lines else None


def _verify_created(tx: Tx, card: Card, done: Completion, by: Authority) -> None:
    if not done.created_cards:
        return
    made = {str(row[0]) for row in tx.rows(sa.select(t.cards.c.id).where(t.cards.c.created_card == card.id))}
    false = [name for name in done.created_cards if name not in made]
    if false:
        tx.event("completion_blocked_hallucination", by.author, card.id, card.current_run_id, cards=false)
        raise BoardError(
            f"{', '.join(false)} {'was' if len(false) == 1 else 'were'} not made by this worker; it made: "
            f"{', '.join(sorted(made)) or 'none'}. Complete with the true list, or make the cards first.",
            keep=True,
        )


def _verify_effect(tx: Tx, card: Card, done: Completion, by: Authority) -> None:
    if done.denied:
        tx.event("protocol_violation", by.author, card.id, card.current_run_id, denied=done.denied[:200])
        raise BoardError(
            f"the command {done.denied!r} was refused in this run, so {card.id} is not done: block it with what is "
            "missing, or let a person complete it.",
            keep=True,
        )
    if card.check_command and (done.check is None or not done.check.passed):
        output = done.check.output if done.check is not None else "it was not run"
        raise BoardError(
            f"{card.id} is done when its check succeeds: {card.check_command}\n{output}\nA person can complete it "
            "without (override)."
        )


def _instant_run(tx: Tx, card: Card, summary: str, by: Authority) -> None:
    """A card that nobody had claimed still has a record of how it was finished."""
    attempt = card.attempts + 1
    tx.run(
        t.runs.insert().values(
            id=f"r_{card.id[2:]}_{attempt}", card_id=card.id, attempt=attempt, profile=card.assignee,
            step=card.step, manual=True, token="", host_id="", home_id="", boot_id="", process_started="",
            started_at=tx.now, ended_at=tx.now, exited_at=tx.now, outcome="completed", summary=summary, counted=False,
        )
    )  # fmt: skip
    tx.run(t.cards.update().where(t.cards.c.id == card.id).values(attempts=attempt))


def report_check(tx: Tx, claim: Claim, check: Check, author: str) -> str:
    """Write down that a check failed: `again` while the worker may try once more, then `review` (the run has ended).

    Raises:
        ClaimLost: the claim is gone.
    """
    card = held(tx, claim)
    failures = card.check_failures + 1
    tx.run(t.cards.update().where(t.cards.c.id == card.id).values(check_failures=failures, updated_at=tx.now))
    tx.event(
        "edited", author, card.id, claim.run_id, check="failed", exit_code=check.exit_code, output=check.output[-1000:]
    )
    if failures < CHECK_LIMIT:
        return "again"
    note = f"The check failed {failures} times: {card.check_command}\n{check.output}"
    add_comment(tx, card.id, note, author, claim.run_id)
    by = Authority(author=author, claim=claim)
    _to_review(tx, card, "the check of this card fails", None, None, by)
    tx.run(t.cards.update().where(t.cards.c.id == card.id).values(check_failures=0))
    return "review"


def block(
    tx: Tx,
    card_id: str,
    reason: str,
    kind: BlockKind | None,
    by: Authority,
    *,
    choices: Sequence[str] = (),
) -> Status:
    """Set a card aside with a reason; returns the state it has now.

    `dependency` waits for the open cards it needs (cards its worker split off count), else for a person.
    `needs_input` is a question. The same kind twice in a row sends the card to `triage`.
    """
    if kind is not None and kind not in BLOCK_KINDS:
        raise UsageError(f"{kind!r} is no kind of block: {', '.join(BLOCK_KINDS)}")
    if not reason.strip():
        raise UsageError("a block needs a reason: what is missing, and who can provide it")
    card = _begin(tx, card_id, "block", by)
    run_id = card.current_run_id
    if kind == "dependency":
        wait_for_own_children(tx, by.author, card.id)
        if open_parents(tx, card.id):
            _move(tx, card, "todo", by, "dependency_wait", summary=reason, block_reason=reason)
            tx.event("dependency_wait", by.author, card.id, run_id, reason=reason[:_EVENT_SUMMARY])
            return "todo"
        reason = f"{reason} (no card that it needs is open: link one, or say how to go on)"
    recurrences = card.block_recurrences + 1 if kind is not None and kind == card.block_kind else 1
    looping = kind is not None and recurrences >= BLOCK_LIMIT
    status: Status = "triage" if looping else "blocked"
    _move(
        tx, card, status, by, "blocked", summary=reason, block_kind=kind, block_reason=reason,
        block_recurrences=0 if looping else recurrences,
    )  # fmt: skip
    tx.event("blocked", by.author, card.id, run_id, kind=kind, reason=reason[:_EVENT_SUMMARY])
    if looping:
        tx.event("block_loop_detected", by.author, card.id, run_id, kind=kind, times=recurrences)
    elif kind == "needs_input":
        tx.run(
            t.questions.insert().values(
                card_id=card.id, run_id=run_id, question=reason, choices=list(choices), asked_by=by.author,
                asked_at=tx.now,
            )
        )  # fmt: skip
    return status


def _free(tx: Tx, card: Card, author: str, **values: Any) -> Status:
    """Let a card go on: to `review` where it was judged, else to `ready`, or `todo` while it needs an open card."""
    target: Status = "review" if card.step == "review" else "ready"
    tx.run(
        t.cards.update()
        .where(t.cards.c.id == card.id)
        .values(
            status=target, consecutive_failures=0, not_before=None, scheduled_at=None, block_reason=None,
            updated_at=tx.now, **values,
        )
    )  # fmt: skip
    hold_back(tx, author, card.id)
    return card_by_id(tx, card.id).status


def unblock(tx: Tx, card_id: str, author: str) -> Status:
    """Let a blocked or parked card go on; its count of failures starts anew. Open questions are closed."""
    card = _begin(tx, card_id, "unblock", Authority(author=author))
    status = _free(tx, card, author)
    tx.run(
        t.questions.update()
        .where(t.questions.c.card_id == card.id, t.questions.c.answered_at.is_(None))
        .values(answered_at=tx.now, answered_by=author, answer="")
    )
    tx.event("unblocked", author, card.id, None, to=status)
    return status


def answer(tx: Tx, name: str, text: str, author: str) -> Question:
    """Answer the open question of a card (by the card's id, or the question's number); the card goes on.

    Raises:
        CardNotFound: no question is open there.
    """
    if not text.strip():
        raise UsageError("an answer needs a text")
    found = [each for each in questions_open(tx) if str(each.id) == name or each.card_id == name]
    if not found:
        raise CardNotFound(f"no open question {name!r}; `hermes kanban questions` shows those that wait.")
    question = found[-1]
    tx.run(
        t.questions.update()
        .where(t.questions.c.card_id == question.card_id, t.questions.c.answered_at.is_(None))
        .values(answer=text, answered_by=author, answered_at=tx.now)
    )
    add_comment(tx, question.card_id, f"Answer to: {question.question}\n\n{text}", author)
    card = card_by_id(tx, question.card_id, lock=True)
    if card.status == "blocked":
        # A question that was answered is no loop: the next one may be asked.
        status = _free(tx, card, author, block_kind=None, block_recurrences=0)
        tx.event("unblocked", author, card.id, question.run_id, to=status, question=question.id)
    return next(each for each in questions_open(tx, question.card_id, answered=True) if each.id == question.id)


def _to_review(
    tx: Tx,
    card: Card,
    summary: str,
    metadata: dict[str, Any] | None,
    reviewer: str | None,
    by: Authority,
    *,
    result: str = "",
) -> Status:
    run_id = card.current_run_id
    _move(
        tx, card, "review", by, "review_requested", metadata=metadata, step="review",
        reviewer=name_of(reviewer) or card.reviewer, result=result or summary or card.result, consecutive_failures=0,
        block_kind=None, block_reason=None, block_recurrences=0, summary=summary,
    )  # fmt: skip
    tx.run(t.cards.update().where(t.cards.c.id == card.id).values(summary=summary or None))
    tx.event("review_requested", by.author, card.id, run_id, summary=_line(summary), reviewer=reviewer)
    return "review"


def request_review(
    tx: Tx, card_id: str, summary: str, by: Authority, *, metadata: dict[str, Any] | None = None, reviewer: str | None
) -> Status:
    """Hand a card to a reviewer."""
    card = _begin(tx, card_id, "request_review", by)
    return _to_review(tx, card, summary, metadata, reviewer, by)


def request_changes(tx: Tx, card_id: str, reason: str, by: Authority) -> Status:
    """Send a reviewed card back to whoever did it, with the reason as a comment."""
    if not reason.strip():
        raise UsageError("say what has to change")
    card = _begin(tx, card_id, "request_changes", by)
    run_id = card.current_run_id
    if card.status == "running" and card.step != "review":
        raise BoardError(f"{card.id} is being worked on, not reviewed; comment on it, or wait for its review.")
    add_comment(tx, card.id, reason, by.author, run_id)
    _move(tx, card, "ready", by, "changes_requested", summary=reason, step="work", check_failures=0)
    tx.event("changes_requested", by.author, card.id, run_id, reason=reason[:_EVENT_SUMMARY])
    hold_back(tx, by.author, card.id)
    return card_by_id(tx, card.id).status


def schedule(tx: Tx, card_id: str, at: float | None, by: Authority) -> None:
    """Park a card, until a time or for good."""
    card = _begin(tx, card_id, "schedule", by)
    _move(tx, card, "scheduled", by, "scheduled", scheduled_at=at)
    tx.event("scheduled", by.author, card.id, card.current_run_id, until=at)


def specify(
    tx: Tx, card_id: str, author: str, *, title: str | None = None, body: str | None = None, kind: str = "specified"
) -> Status:
    """Make a task of a raw idea; `kind` is the event (`specified`, `decomposed`)."""
    card = _begin(tx, card_id, "specify", Authority(author=author))
    changes = {name: value for name, value in (("title", title), ("body", body)) if value}
    tx.run(
        t.cards.update()
        .where(t.cards.c.id == card.id)
        .values(status="todo", block_kind=None, block_reason=None, updated_at=tx.now, **changes)
    )
    tx.event(kind, author, card.id, None, title=title)
    promote(tx, author, [card.id])
    return card_by_id(tx, card.id).status


def archive(tx: Tx, card_id: str, by: Authority) -> None:
    """Put a card away; what needed it waits no longer."""
    card = _begin(tx, card_id, "archive", by)
    _move(tx, card, "archived", by, "reclaimed")
    tx.event("archived", by.author, card.id, card.current_run_id)
    promote_children(tx, by.author, card.id)


def reopen(tx: Tx, card_id: str, author: str, *, review: bool = True) -> Status:
    """Take a finished card up again, to be judged or worked on; ready cards that need it wait again."""
    card = _begin(tx, card_id, "reopen", Authority(author=author))
    status: Status = "review" if review else "ready"
    tx.run(
        t.cards.update()
        .where(t.cards.c.id == card.id)
        .values(status=status, step="review" if review else "work", completed_at=None, updated_at=tx.now)
    )
    tx.event("review_reopened", author, card.id, None, to=status)
    children = tx.rows(sa.select(t.links.c.child_id).where(t.links.c.parent_id == card.id, t.links.c.kind == "needs"))
    for (child,) in children:
        hold_back(tx, author, str(child), "descendant_invalidated")
    hold_back(tx, author, card.id)
    return card_by_id(tx, card.id).status
