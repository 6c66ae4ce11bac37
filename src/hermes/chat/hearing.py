"""What the events of a conversation mean for whoever holds it: its answer is shown, its end is noticed.

What else happens is told by `tell`; nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.chat.notes import run_ended
from hermes.chat.render import one_line
from hermes.core.events import (
    Envelope,
    StreamRestarted,
    TaskEnded,
    TaskPhase,
    TaskQueued,
    TaskSuspended,
    TextDeltaEvent,
    TurnEnded,
    TurnStarted,
)

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat

__all__ = ["Hearing"]


class Hearing:
    """Hears the stream for one chat."""

    def __init__(self, chat: Chat, tell: Callable[[Envelope], None]) -> None:
        self._chat = chat
        self._tell = tell

    def watches(self, task_id: str) -> bool:
        """Whether the deltas of a task are wanted: of conversations alone."""
        view = self._chat.tree.tasks.get(task_id)
        return view is not None and view.kind == "main"

    def listen(self, envelope: Envelope) -> None:
        """Take one event in."""
        chat, event = self._chat, envelope.event
        if isinstance(event, TaskQueued) and event.kind == "main":
            chat.last_session = envelope.session_id
        if isinstance(event, (TaskEnded, TaskPhase)):
            chat.moved.set()
        if envelope.session_id == chat.last_session:
            if self.watches(envelope.task_id):
                self._answer(envelope)
            elif isinstance(event, TaskEnded) and chat.tree.tasks[envelope.task_id].kind == "background":
                run_ended(chat, envelope.task_id, event)
        chat.aside.hear(envelope)
        self._tell(envelope)

    def _answer(self, envelope: Envelope) -> None:
        chat, event = self._chat, envelope.event
        if isinstance(event, TextDeltaEvent):
            chat.screen.delta(event.text)
        elif isinstance(event, (TurnStarted, TurnEnded, StreamRestarted)):
            chat.screen.finish()
        elif isinstance(event, TaskPhase) and event.phase == "idle":
            chat.screen.finish()
            self._rests(event.detail)
        elif isinstance(event, TaskSuspended):
            chat.screen.finish()
            chat.screen.note(f"this conversation goes on elsewhere: {one_line(event.reason, 200)}")
            chat.session = None
            chat.leave()
        elif isinstance(event, TaskEnded):
            chat.screen.finish()
            if chat.session is not None and chat.session.task.id == envelope.task_id:
                chat.session = None  # it could not be built, or its process ends: the next line starts another
                chat.screen.note(f"✗ the conversation ended: {one_line(event.error or event.exit_reason, 1_000)}")

    def _rests(self, detail: str) -> None:
        chat = self._chat
        if detail and "interrupted" not in detail and "stopped by the user" not in detail:
            chat.screen.note(f"✗ {one_line(detail, 1_000)}")
            if detail.startswith("cost limit"):
                chat.screen.note("/budget shows what was spent, /budget USD raises the limit; then write on")
        chat.ring()
