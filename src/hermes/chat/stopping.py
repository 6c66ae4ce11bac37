"""Stopping what runs in a conversation: the turn, everything, and the question whether a command may.

It stops through the session and tells what it did; how one leaves is not known here beyond asking for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from hermes.chat.leaving import EXIT_INTERRUPTED
from hermes.chat.notes import stopping
from hermes.chat.tree_text import one_row
from hermes.runtime.task import Task

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat

__all__ = ["Stopping"]

#: Seconds between two presses of Ctrl+C that leave.
TWICE = 2.0


class Stopping:
    """Stops for one chat. `asked` is the command that waits to be given again, empty for none; `twice` is the time in
    seconds within which two presses of Ctrl+C leave."""

    def __init__(self, chat: Chat) -> None:
        self.asked = ""
        self.twice = TWICE
        self.early = False  # whether the turn is to stop that begins with the line which is being taken
        self._chat = chat
        self._interrupted_at = -math.inf

    def interrupt(self) -> None:
        """Ctrl+C: stop the turn, no task; twice within `twice` seconds leave."""
        chat, now = self._chat, anyio.current_time()
        if chat.own.stop():
            return
        if now - self._interrupted_at < self.twice:
            chat.leave(EXIT_INTERRUPTED, suspend=chat.busy, detach=chat.detaches)
            return
        self._interrupted_at = now
        running = len(chat.running())
        going = f"; {running} tasks go on (/agents shows them, /stop stops them)" if running else ""
        if self._turn_stopped():
            chat.screen.note(f"⏹ turn interrupted{going}")
        else:
            chat.screen.note(f"no turn runs{going}. Ctrl+C again within {self.twice:g} s leaves")

    def _turn_stopped(self) -> bool:
        """Stop the turn that runs, or that begins with a line which is just being taken."""
        session = self._chat.session
        if session is not None and session.stop_turn():
            return True
        self.early = self.early or self._chat.taking
        return self.early

    def taken(self) -> None:
        """A message is where it is to be read: stop the turn that it begins, where that was asked for meanwhile."""
        early, self.early = self.early, False
        if early and self._chat.session is not None:
            self._chat.session.stop_turn()

    def interrupt_turn(self) -> None:
        """Stop the turn and no task."""
        chat = self._chat
        if chat.own.stop():
            return
        if self._turn_stopped():
            chat.screen.note("⏹ turn interrupted")

    async def stop(self) -> None:
        """Stop the turn and every task, and report each."""
        chat = self._chat
        if chat.session is None or not (chat.turn_runs or chat.running()):
            chat.screen.note("nothing runs")
            return
        turn = chat.session.task.inbox.in_turn
        going = await chat.session.stop()
        if turn:
            chat.screen.note("⏹ turn stopped")
        self.tell(going)

    def tell(self, going: Sequence[Task]) -> None:
        """Say what became of tasks that were stopped."""
        chat = self._chat
        for task in going:
            chat.screen.note(one_row(chat.tree, chat.tree.tasks[task.id], chat.now(), width=chat.screen.width))

    def confirmed(self, verb: str) -> bool:
        """Whether a command may stop what runs: at once when nothing does, else when it is given twice."""
        chat = self._chat
        if not chat.busy or self.asked == verb:
            self.asked = ""
            return True
        self.asked = verb
        for line in stopping(chat, verb, chat.running()):
            chat.screen.note(line)
        return False
