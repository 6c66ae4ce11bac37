"""A conversation: the main task that rests between inputs, as whoever talks to it sees it."""

from __future__ import annotations

import anyio

from hermes.core.agent import Outcome
from hermes.core.errors import OperatorError
from hermes.core.limits import Limits
from hermes.core.messages import Content
from hermes.runtime.control import Control, Receipt
from hermes.runtime.task import Task

__all__ = ["Session"]


class Session:
    """One conversation of this process."""

    def __init__(self, task: Task, control: Control) -> None:
        self.task = task
        self._control = control

    @property
    def id(self) -> str:
        """The session's id, such as `20260225_143052_a1b2c3`."""
        return self.task.scope.session_id

    @property
    def busy(self) -> bool:
        """Whether a turn runs or something waits to be read."""
        inbox = self.task.inbox
        return not self.task.resting or bool(
            inbox.follow_ups or inbox.steers or ((inbox.ends or inbox.remarks) and not self.task.hushed)
        )

    def running(self) -> list[Task]:
        """Tasks of the session that have not ended, without the conversation itself."""
        return [task for task in self._control.visible(self.task.scope) if not task.ended]

    async def say(self, content: Content | str) -> Receipt:
        """Queue the next input; it never interrupts.

        Raises:
            OperatorError: the conversation has ended.
        """
        self.task.hushed = False
        receipt = await self._control.follow_up(self.task, content)
        if receipt is None:
            raise OperatorError(f"session {self.id} has ended; start a new one")
        return receipt

    async def exchange(self, content: Content | str) -> Outcome:
        """Say something and wait until the conversation rests after it; returns how that turn went.

        Turns that follow at once, for ends of children, are not waited for.

        Raises:
            OperatorError: the conversation ended before it answered.
        """
        receipt = await self.say(content)
        view = self._control.view(self.task)
        while True:
            position = view.receipts.get(receipt.id, {}).get("position")
            if isinstance(position, int) and position < self.task.rested_at and self.task.outcome is not None:
                return self.task.outcome
            if self.task.done.is_set():
                why = f": {self.task.stop_text}" if self.task.stop_text else ""
                raise OperatorError(f"session {self.id} ended before it answered{why}")
            await self.task.rested.wait()

    def interrupt(self, reason: str = "interrupted by the user") -> bool:
        """Stop the turn that runs; children go on. False when none runs."""
        return self.task.inbox.interrupt(reason)

    def stop_turn(self, reason: str = "interrupted by the user") -> bool:
        """Stop the turn that runs, or the one that is about to begin; children go on. False when there is neither."""
        inbox = self.task.inbox
        if self.task.ended:
            return False
        return inbox.interrupt(reason) or self._begins() and inbox.interrupt_beginning(reason)

    def _begins(self) -> bool:
        """Whether there is anything that a turn could begin with: else the next line would be stopped for it."""
        task, history = self.task, self.task.history
        if task.inbox.pending:
            return True
        return bool(task.spec.goal) if history is None or history.last is None else not history.at_rest

    def composing(self, typing: bool) -> None:
        """Say whether a person is typing: ends of children wait up to two seconds for them."""
        if self.task.composing != typing:
            self.task.composing = typing
            self.task.inbox.wake()

    async def limit(self, limits: Limits) -> None:
        """Put other limits over everything the session spends, from now on and after a restart."""
        await self._control.limit_session(self.task, limits)

    async def stop(self, text: str = "stopped by the user") -> list[Task]:
        """Stop the turn and every task of the session; returns the tasks that were still going.

        Their ends start no turn by themselves: they reach the model with the next input.
        """
        self.task.hushed = True
        self.interrupt(text)
        going = self.running()
        await self._control.cancel(going, text)
        with anyio.move_on_after(5):
            for task in going:
                await task.done.wait()
        return going

    async def close(self) -> None:
        """End the conversation; children that still run are stopped with their partial results."""
        self.task.inbox.close()
        self.interrupt("the conversation was closed")
        await self._control.cancel(self.running(), "the conversation was closed")
        with anyio.move_on_after(10):
            await self.task.done.wait()
