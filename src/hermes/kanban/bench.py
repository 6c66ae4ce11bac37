"""What the tools of a worker need of a task that starts after they were made: its checks run in the task's place, its
work is looked at before others build on it, and a command that was refused is remembered.
"""

from __future__ import annotations

import anyio.to_thread

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import OperatorError
from hermes.core.events import ApprovalAnswered, Envelope
from hermes.kanban.card import Card, Check
from hermes.kanban.placing import commit_rest, work_state
from hermes.runtime.approval import Gate
from hermes.runtime.checking import run_check
from hermes.runtime.task import Task

__all__ = ["Bench"]

#: Files that are named where not all are committed.
_NAMED = 20


class Bench:
    """What the seat of a worker needs of its task. Takes it once it has begun."""

    def __init__(self, timeout: float, *, hold: Hold = NO_HOLD) -> None:
        self._timeout = timeout
        self._hold = hold
        self._denied = ""
        self._told = False  # what it has not committed
        self._task: Task | None = None
        self._gate: Gate | None = None

    def take(self, task: Task, gate: Gate) -> None:
        """The task that works at the card."""
        self._task, self._gate = task, gate

    def hear(self, envelope: Envelope) -> None:
        """Remember a refusal until a later command is allowed."""
        event = envelope.event
        if isinstance(event, ApprovalAnswered):
            self._denied = "" if event.allowed else f"{event.tool}: {event.reason}"[:200]

    def refused(self) -> str:
        """The newest command that was refused, empty without one."""
        return self._denied

    async def unsaved(self, card: Card) -> str:
        """What the worker has to do before others find its work on the card's branch; nothing once they do.

        What it leaves all the same is committed for it, or the cards that follow would begin without it.
        """
        isolation = self._task.spec.isolation if self._task is not None else None
        if isolation is None or isolation.mode != "worktree" or card.step == "review":
            return ""
        top, branch = isolation.top, isolation.branch
        try:
            with held(self._hold):
                state = await anyio.to_thread.run_sync(work_state, top, branch)
                if state is None or not state.dirty:
                    return ""
                if self._told:
                    await anyio.to_thread.run_sync(commit_rest, top, card)
                    return ""
        except OperatorError as error:
            return str(error)
        self._told = True
        files = ", ".join(state.dirty[:_NAMED]) + (", …" if len(state.dirty) > _NAMED else "")
        return (
            f"{card.id} is not done: {files} {'is' if len(state.dirty) == 1 else 'are'} not committed on its branch "
            f"{branch}, so nobody who builds on it would have that. Commit what belongs to the work, remove the rest "
            "or name it in .gitignore, then do this again; what is left then is committed as it is."
        )

    async def check(self, card: Card) -> Check:
        """Run the check of a card."""
        if self._task is None or self._gate is None or card.check_command is None:
            return Check(passed=False, output="there is nothing to run it in")
        try:
            found = await run_check(self._gate, self._task, card.check_command, timeout=self._timeout)
        except OperatorError as error:
            return Check(passed=False, output=str(error))
        return Check(passed=found.passed, output=found.output, exit_code=found.exit_code)
