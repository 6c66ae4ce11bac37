"""The states of a card and every way from one to another, as one table.

Whoever changes a card's status asks here first; a move that is not in the table is refused with the moves that are.
What a move needs beside the state (a claim, the proof that a worker is gone, finished parents) is checked where it is
made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from hermes.kanban.errors import MoveRefused

__all__ = [
    "MOVES",
    "OPEN",
    "OUTCOMES",
    "STATUSES",
    "Move",
    "Outcome",
    "OutcomeRule",
    "Status",
    "Step",
    "Verb",
    "allowed",
    "check_move",
]

Status = Literal["triage", "todo", "scheduled", "ready", "running", "blocked", "review", "done", "archived"]
#: What a run does with its card: the work itself, or judging it.
Step = Literal["work", "review"]
Verb = Literal[
    "specify",
    "promote",
    "demote",
    "schedule",
    "claim",
    "complete",
    "block",
    "request_review",
    "request_changes",
    "unblock",
    "release",
    "reopen",
    "archive",
]
Outcome = Literal[
    "completed",
    "blocked",
    "crashed",
    "timed_out",
    "spawn_failed",
    "gave_up",
    "reclaimed",
    "stale",
    "rate_limited",
    "scheduled",
    "review_requested",
    "changes_requested",
    "dependency_wait",
    "precondition_failed",
]

STATUSES: tuple[Status, ...] = get_args(Status)
#: States in which a card still has something ahead of it, and holds up the cards that need it.
OPEN: tuple[Status, ...] = ("triage", "todo", "scheduled", "ready", "running", "blocked", "review")


class Move(msgspec.Struct, frozen=True):
    """From which states a verb may start, to which it may lead, and what it is for."""

    sources: tuple[Status, ...]
    targets: tuple[Status, ...]
    meaning: str


MOVES: Mapping[Verb, Move] = {
    "specify": Move(("triage",), ("todo", "ready"), "a raw idea has become a task"),
    "promote": Move(("triage", "todo", "scheduled"), ("todo", "ready"), "nothing is in its way any more"),
    "demote": Move(("ready",), ("todo",), "a card it needs is open (again)"),
    "schedule": Move(
        ("triage", "todo", "ready", "running", "blocked", "review"), ("scheduled",), "parked; no worker takes it"
    ),
    "claim": Move(("ready", "review"), ("running",), "a worker has taken it"),
    "complete": Move(("running", "ready", "blocked", "review"), ("done", "review"), "finished"),
    "block": Move(
        ("running", "ready", "todo", "triage"), ("blocked", "todo", "triage"), "it cannot go on without something"
    ),
    "request_review": Move(("running", "ready", "blocked"), ("review",), "finished, somebody has to judge it"),
    "request_changes": Move(("running", "review"), ("ready", "todo"), "judged, more work is needed"),
    "unblock": Move(("blocked", "scheduled"), ("ready", "todo", "review"), "it may go on"),
    "release": Move(("running",), ("ready", "todo", "review", "blocked"), "its worker is gone"),
    "reopen": Move(("done",), ("review", "ready", "todo"), "finished too early"),
    "archive": Move((*OPEN, "done"), ("archived",), "put away"),
}


#: What the board does and nobody asks for.
_BY_ITSELF = ("demote", "release")


class OutcomeRule(msgspec.Struct, frozen=True):
    """What an outcome means for the circuit breaker: `counts` as a failure, or `resets` the count."""

    counts: bool = False
    resets: bool = False


#: Every way a run may end.
OUTCOMES: Mapping[Outcome, OutcomeRule] = {
    "completed": OutcomeRule(resets=True),
    "review_requested": OutcomeRule(resets=True),
    "changes_requested": OutcomeRule(),
    "blocked": OutcomeRule(),
    "dependency_wait": OutcomeRule(),
    "scheduled": OutcomeRule(),
    "rate_limited": OutcomeRule(),
    # Whoever takes a claim away by hand has looked at it.
    "reclaimed": OutcomeRule(resets=True),
    "crashed": OutcomeRule(counts=True),
    "timed_out": OutcomeRule(counts=True),
    # A claim given up for silence counts too, or a card that dies at its start is started for ever; a run that sent a
    # sign of life before is excused where it is released.
    "stale": OutcomeRule(counts=True),
    "spawn_failed": OutcomeRule(counts=True),
    "precondition_failed": OutcomeRule(counts=True),
    "gave_up": OutcomeRule(counts=True),
}


def allowed(status: Status) -> tuple[Verb, ...]:
    """The verbs that may start from a state, in the order of the table."""
    return tuple(verb for verb, move in MOVES.items() if status in move.sources)


def check_move(card_id: str, status: Status, verb: Verb) -> None:
    """Check that a verb may start from a state.

    Raises:
        MoveRefused: it may not; the text says which may.
    """
    move = MOVES[verb]
    if status not in move.sources:
        possible = [each for each in allowed(status) if each not in _BY_ITSELF]
        raise MoveRefused(
            f"{card_id} is {status}: {verb} starts from {', '.join(move.sources)}. "
            f"Possible from {status}: {', '.join(possible) or 'nothing'}. Nothing was changed."
        )
