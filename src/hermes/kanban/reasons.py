"""Why a card is not worked on, in a word, a sentence, and the command that cures it. Decides nothing.

Of cards that could be taken the dispatcher notes it with every pass; of all others the state itself says it (`why`).
"""

from __future__ import annotations

import time
from collections.abc import Collection

from hermes.kanban.board import Board
from hermes.kanban.card import Card
from hermes.kanban.leading import Queued, Reason
from hermes.kanban.moves import OPEN
from hermes.kanban.reading import CardView
from hermes.kanban.run_process import RunFiles

__all__ = ["SERVED_BY", "noted", "serving", "why"]

#: How the leases of dispatchers begin; a machine's id follows.
SERVED_BY = "dispatcher:"


def serving(board: Board) -> list[str]:
    """Who serves a board now, in words; empty when nobody does."""
    return [lease.holder for lease in board.leaders(SERVED_BY).values()]


def when(seconds: float) -> str:
    """A moment for people, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


#: What cures a reason of the dispatcher; `{id}` is the card, `{who}` the profile it is for.
_CURES = {
    "unassigned": "hermes kanban assign {id} PROFILE",
    "no_profile": "hermes profile create {who}   or   hermes kanban assign {id} PROFILE",
    "review": "hermes config set kanban.reviewer_profile PROFILE   or   hermes kanban complete {id}",
    "cap": "hermes config set kanban.max_in_progress N",
    "pass": "hermes kanban dispatch",
    "profile_cap": "hermes config set kanban.max_in_progress_per_profile N",
    "memory": "free some memory, or wait",
    "paused": "hermes kanban pause --off",
    "budget": "hermes kanban edit {id} --budget-usd N   or   hermes config set kanban.day_usd N",
    "other_host": "start a dispatcher on that machine: hermes kanban daemon --detach",
    "other_home": "start a dispatcher in that home: hermes kanban daemon --detach",
    "still_running": "hermes kanban reclaim {id}",
    "failing": "hermes kanban pause --off",
}


def noted(card: Queued | Card, word: str, detail: str = "") -> Reason:
    """A reason of the dispatcher with its cure."""
    cure = _CURES.get(word, "")
    if "{" in cure:
        cure = cure.format(id=card.id, who=card.assignee or card.reviewer)
    return Reason(card_id=card.id, reason=word, detail=detail, cure=cure)


def why(board: Board, view: CardView, profiles: Collection[str] | None = None, files: RunFiles | None = None) -> Reason:
    """Why a card is where it is, and what brings it on. With the `files` of runs a worker that is gone is told."""
    card = view.task
    found = _unnoticed(board, view, files) or _of_state(view)
    if found is None or card.status == "triage":
        kept = board.reasons(card.id)
        found = kept[0] if kept else found
    if found is None and card.assignee is None and card.status == "ready":
        found = Reason(
            card_id=card.id, reason="unassigned", detail="nobody is named for it",
            cure=f"hermes kanban assign {card.id} PROFILE",
        )  # fmt: skip
    if found is None and profiles is not None and card.assignee and card.assignee not in profiles:
        found = Reason(
            card_id=card.id, reason="no_profile", detail=f"there is no profile {card.assignee!r} here",
            cure=f"hermes profile create {card.assignee}   or   hermes kanban assign {card.id} PROFILE",
        )  # fmt: skip
    if card.status in ("ready", "review") and not serving(board):
        told = f"no dispatcher serves the board{f'; {found.detail}' if found is not None and found.detail else ''}"
        return Reason(card_id=card.id, reason="no_dispatcher", detail=told, cure="hermes kanban daemon --detach")
    return found or Reason(card_id=card.id, reason="next", detail="a worker starts with the next pass")


def _unnoticed(board: Board, view: CardView, files: RunFiles | None) -> Reason | None:
    """A worker that ended and that no dispatcher has looked after since."""
    run = next((each for each in view.runs if each.id == view.task.current_run_id), None)
    if files is None or run is None or run.manual or view.task.status != "running":
        return None
    if files.state(run, board.here) != "gone":
        return None
    note = files.note(run.id)
    said = f": {note.error}" if note is not None and note.error else ""
    cure = "hermes kanban dispatch" if not serving(board) else ""
    return Reason(card_id=view.task.id, reason="worker_gone", cure=cure,
                  detail=f"its worker has ended and no dispatcher has looked after it yet{said}")  # fmt: skip


def _of_state(view: CardView) -> Reason | None:
    card = view.task

    def reason(word: str, detail: str, cure: str = "") -> Reason:
        return Reason(card_id=card.id, reason=word, detail=detail, cure=cure)

    if card.status in ("done", "archived"):
        return reason(card.status, f"it is {card.status}")
    if card.status == "running":
        run = next((each for each in view.runs if each.id == card.current_run_id), None)
        who = (
            "a person" if run is not None and run.manual else f"{run.profile}, process {run.pid}" if run else "a worker"
        )
        beat = f", last sign of life {when(run.heartbeat_at)}" if run is not None and run.heartbeat_at else ""
        return reason("running", f"{who} works on it{beat}", f"hermes kanban log {card.id}")
    if card.status == "triage":
        return reason(
            "triage", card.block_reason or "it is an idea that has to become a task",
            f"hermes kanban specify {card.id}   or   hermes kanban decompose {card.id}",
        )  # fmt: skip
    if card.status == "scheduled":
        until = f"until {when(card.scheduled_at)}" if card.scheduled_at else "for good"
        return reason("scheduled", f"parked {until}", f"hermes kanban unblock {card.id}")
    if card.status == "blocked":
        open_question = next((each for each in view.questions if each.answered_at is None), None)
        if open_question is not None:
            return reason("question", open_question.question, f"hermes kanban answer {card.id} TEXT")
        text = card.block_reason or card.last_failure_error or "set aside"
        return reason("blocked", text, f"hermes kanban unblock {card.id}")
    if card.status == "todo":
        waits = [each for each in view.parents if each.kind == "needs" and each.status in OPEN]
        names = ", ".join(f"{each.id} ({each.status})" for each in waits)
        parked = [each for each in waits if each.status in ("blocked", "triage", "scheduled", "review")]
        cure = f"hermes kanban why {(parked or waits)[0].id}" if waits else f"hermes kanban promote {card.id}"
        return reason("parent", f"it waits for {names}" if waits else "nothing holds it back", cure)
    return None
