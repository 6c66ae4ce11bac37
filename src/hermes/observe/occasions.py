"""Which events a person wants to be told of: a fold over the stream that finds them, each once. Sends nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from hermes.core.events import (
    ApprovalAsked,
    BudgetReached,
    BudgetWarned,
    CardMoved,
    Envelope,
    TaskEnded,
    TaskPhase,
    TaskQueued,
    TurnStarted,
)
from hermes.core.messages import opening

__all__ = ["LOOKED_AT", "Occasion", "Occasions"]

#: Events that may be an occasion, or say how a conversation stands.
LOOKED_AT = frozenset(
    (TaskQueued, TurnStarted, TaskPhase, TaskEnded, ApprovalAsked, BudgetWarned, BudgetReached, CardMoved)
)

#: Characters of a goal and of a report that a message shows.
GOAL, TEXT = 80, 500
#: Words in the detail of a resting conversation that say a person stopped it.
_BY_HAND = ("interrupted", "stopped by the user")


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell. `event`: needs_answer, failed, budget, done. `at`: seconds since the epoch; `show`: a command.

    `turn` is not None where it only counts if the conversation is still at rest a moment later.
    """

    event: str
    at: float
    session_id: str
    task_id: str
    title: str
    text: str = ""
    details: dict[str, Any] = {}
    show: str = ""
    turn: int | None = None


class _Session:
    """How a conversation stands."""

    def __init__(self) -> None:
        self.goal = ""
        self.main = ""
        self.turn = 0
        self.told = -1  # the turn whose end was told
        self.idle = False
        self.live: set[str] = set()
        self.budgets: set[tuple[str, str, str]] = set()


class Occasions:
    """Finds occasions among the events in `on`."""

    def __init__(self, on: Collection[str]) -> None:
        self._on = frozenset(on)
        self._sessions: dict[str, _Session] = {}
        self._goals: dict[str, str] = {}  # of background runs

    def of(self, envelope: Envelope) -> Occasion | None:
        """What an event is an occasion for, if any."""
        event = envelope.event
        session = self._sessions.setdefault(envelope.session_id, _Session())
        found: Occasion | None = None
        if isinstance(event, TaskQueued):
            self._queued(session, envelope, event)
        elif isinstance(event, TurnStarted):
            if envelope.task_id == session.main:
                session.idle = False
                session.turn += 1
        elif isinstance(event, TaskPhase):
            found = self._phase(session, envelope, event)
        elif isinstance(event, TaskEnded):
            found = self._ended(session, envelope, event)
        elif isinstance(event, ApprovalAsked):
            found = self._asked(envelope, event)
        elif isinstance(event, CardMoved):
            found = self._card(envelope, event)
        elif isinstance(event, (BudgetWarned, BudgetReached)):
            found = self._budget(session, envelope, event)
        return found if found is not None and found.event in self._on else None

    def still(self, occasion: Occasion) -> bool:
        """Whether an occasion with a `turn` still counts; if so it is told now, and not again."""
        session = self._sessions[occasion.session_id]
        if occasion.turn != session.turn or not session.idle or session.live or session.told == session.turn:
            return False
        session.told = session.turn
        return True

    def _queued(self, session: _Session, envelope: Envelope, event: TaskQueued) -> None:
        goal = opening(event.goal, GOAL)
        if envelope.parent_id is None and event.kind == "main":
            session.main, session.goal, session.idle = envelope.task_id, goal, False
            session.live.clear()
        else:
            session.live.add(envelope.task_id)
            if event.kind == "background":
                self._goals[envelope.task_id] = goal

    def _phase(self, session: _Session, envelope: Envelope, event: TaskPhase) -> Occasion | None:
        if event.phase != "idle" or envelope.task_id != session.main:
            return None
        session.idle = True
        if any(words in event.detail for words in _BY_HAND):
            session.told = session.turn
            return None
        if event.detail:
            session.told = session.turn
            return self._made("failed", envelope, f"failed: {session.goal}", event.detail)
        return self._at_rest(session, envelope)

    def _at_rest(self, session: _Session, envelope: Envelope) -> Occasion | None:
        if not session.idle or session.live or session.told == session.turn:
            return None
        return msgspec.structs.replace(
            self._made("done", envelope, f"done: {session.goal}"), turn=session.turn, task_id=session.main
        )

    def _ended(self, session: _Session, envelope: Envelope, event: TaskEnded) -> Occasion | None:
        session.live.discard(envelope.task_id)
        background = self._goals.pop(envelope.task_id, None)
        main = envelope.task_id == session.main
        if main or background is not None:
            goal = session.goal if main else background
            if event.state in ("failed", "timed_out"):
                return self._made("failed", envelope, f"failed: {goal}", event.error or event.exit_reason)
            if main:
                told, session.told = session.told == session.turn, session.turn
                if event.state == "cancelled" or told:
                    return None
                return self._made("done", envelope, f"done: {goal}", event.summary, status=event.status)
        return self._at_rest(session, envelope)

    def _asked(self, envelope: Envelope, event: ApprovalAsked) -> Occasion:
        title = f"needs an answer: {event.tool}" if event.choices is None else "asks you something"
        text = f"{event.what} ({event.reason})" if event.choices is None else event.what
        details = {"tool": event.tool, "what": event.what, "reason": event.reason, "path": list(event.path)}
        return self._made("needs_answer", envelope, title, text, **details)

    def _card(self, envelope: Envelope, event: CardMoved) -> Occasion | None:
        if not event.asks:
            return None
        details = {"card": event.card, "status": event.status, "answer": f"hermes kanban answer {event.card} TEXT"}
        return self._made("needs_answer", envelope, f"needs an answer: {event.title}", event.reason, **details)

    def _budget(self, session: _Session, envelope: Envelope, event: BudgetWarned | BudgetReached) -> Occasion | None:
        share = 100 if isinstance(event, BudgetReached) else 80
        key = (event.scope, event.kind, str(share))
        # A cap on turns is the shape of a task, not a budget, and each of many children has one.
        if event.kind == "turns" or key in session.budgets:
            return None
        session.budgets.add(key)
        title = f"{share} % of the {event.kind} budget used"
        details = {"kind": event.kind, "limit": event.limit, "share": share, "scope": event.scope}
        return self._made("budget", envelope, title, f"limit {event.limit:g}, of {event.scope}", **details)

    @staticmethod
    def _made(event: str, envelope: Envelope, title: str, text: str = "", **details: Any) -> Occasion:
        return Occasion(
            event=event,
            at=envelope.at,
            session_id=envelope.session_id,
            task_id=envelope.task_id,
            title=f"Hermes {title}".rstrip(" :"),
            text=text[:TEXT],
            details=details,
        )
