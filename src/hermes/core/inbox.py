"""The inbox of a task: what reaches it from outside, each kind with its own moment.

- steer: a correction, delivered at the next boundary, never interrupts;
- follow_up: the next input, delivered when the task would stop;
- notify: the end of a child, delivered at a boundary, all pending ones together;
- remark: what the runtime has to say itself, delivered at a boundary;
- interrupt: cancels the turn that runs, and nothing else.

Persistence is the supervisor's: it stores a message before it puts it here, and the history's append marks it taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import msgspec

from hermes.core.messages import Content, Image

__all__ = ["ChildEnd", "FollowUp", "Inbox", "Remark", "SteerMessage"]


class SteerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A correction with its receipt."""

    receipt: str
    text: str
    sender: str = "user"
    at: float = 0.0
    pictures: tuple[Image, ...] = ()


class FollowUp(msgspec.Struct, frozen=True, kw_only=True):
    """A next input with its receipt. `source` says whose words it is: a person's (`user`), or a task's (`goal`)."""

    receipt: str
    content: Content
    at: float = 0.0
    source: str = "user"


class ChildEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a child as its parent will read it."""

    task_id: str
    text: str
    at: float = 0.0


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something the runtime tells the model, by the kind of its notice; `refs` name what it tells of."""

    kind: str
    text: str
    refs: tuple[str, ...] = ()


class Inbox:
    """Queues of one task. Only the event loop's thread touches it. A queue is made when something joins it: nearly all
    of a thousand tasks get nothing in all their life."""

    __slots__ = (
        "_begun", "_changed", "_early", "_ends", "_follow_ups", "_interrupt", "_remarks", "_steers", "_turn", "closed",
        "keep",
    )  # fmt: skip

    def __init__(self) -> None:
        self._steers: list[SteerMessage] | None = None
        self._follow_ups: list[FollowUp] | None = None
        self._ends: dict[str, ChildEnd] | None = None  # by task: thousands may come and be collected at once
        self._remarks: list[Remark] | None = None
        self.closed = False
        self.keep: Callable[[ChildEnd], bool] | None = None  # takes an end that is not to be read yet
        self._turn: anyio.CancelScope | None = None
        self._begun = False
        self._interrupt: str | None = None
        self._early: str | None = None  # why the turn that begins next is not to go on
        self._changed: anyio.Event | None = None  # while somebody waits

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    @property
    def steers(self) -> Sequence[SteerMessage]:
        """Corrections that wait."""
        return self._steers or ()

    @property
    def follow_ups(self) -> Sequence[FollowUp]:
        """Next inputs that wait."""
        return self._follow_ups or ()

    @property
    def remarks(self) -> Sequence[Remark]:
        """Remarks that wait."""
        return self._remarks or ()

    @property
    def ends(self) -> Sequence[ChildEnd]:
        """Ends of children that wait, in order of arrival."""
        return list(self._ends.values()) if self._ends else ()

    def take_steers(self) -> Sequence[SteerMessage]:
        """Take the corrections out."""
        steers, self._steers = self._steers, None
        return steers or ()

    def next_follow_up(self) -> FollowUp:
        """Take the next input out. Raises LookupError when none waits."""
        if not self._follow_ups:
            raise LookupError("no input waits")
        return self._follow_ups.pop(0)

    def take_ends(self) -> Sequence[ChildEnd]:
        """Take the ends of children out."""
        ends, self._ends = self._ends, None
        return list(ends.values()) if ends else ()

    def take_remarks(self) -> Sequence[Remark]:
        """Take the remarks out."""
        remarks, self._remarks = self._remarks, None
        return remarks or ()

    @property
    def pending(self) -> bool:
        """Whether anything waits to be taken."""
        return bool(self._steers or self._follow_ups or self._ends or self._remarks)

    def holds(self, task_id: str) -> bool:
        """Whether the end of a child waits here."""
        return self._ends is not None and task_id in self._ends

    def steer(self, message: SteerMessage) -> None:
        """Queue a correction."""
        self._steers = [*self.steers, message]
        self._wake()

    def follow_up(self, message: FollowUp) -> None:
        """Queue a next input."""
        self._follow_ups = [*self.follow_ups, message]
        self._wake()

    def notify(self, end: ChildEnd, *, now: bool = False) -> None:
        """Queue the end of a child; with `now` also one that was kept back."""
        if not now and self.keep is not None and self.keep(end):
            return
        if self._ends is None:
            self._ends = {}
        self._ends[end.task_id] = end
        self._wake()

    def remark(self, remark: Remark) -> None:
        """Queue a remark. It is not stored: whoever makes it makes it again after a crash."""
        self._remarks = [*self.remarks, remark]
        self._wake()

    def withdraw(self, task_id: str) -> None:
        """Take the end of a child back: somebody collected it."""
        if self._ends is not None:
            self._ends.pop(task_id, None)

    def close(self) -> None:
        """Nothing more will come; a task at rest may end."""
        self.closed = True
        self._wake()

    def wake(self) -> None:
        """Let waiters look again."""
        self._wake()

    def interrupt(self, reason: str) -> bool:
        """Cancel the turn that runs; False when none does."""
        if self._turn is None:
            return False
        self._interrupt = reason
        self._turn.cancel()
        return True

    def interrupt_beginning(self, reason: str) -> bool:
        """Cancel the turn that is about to begin, with the task or with what was said to it; False where none is."""
        if self._turn is not None or self._begun and not (self.follow_ups or self.steers):
            return False
        self._early = reason
        return True

    def begin_turn(self, scope: anyio.CancelScope) -> None:
        """The loop starts a turn that `interrupt` may cancel."""
        self._turn = scope
        self._begun = True
        self._interrupt, self._early = self._early, None
        if self._interrupt is not None:
            scope.cancel()

    def end_turn(self) -> str | None:
        """The turn is over; returns why it was interrupted, if it was."""
        self._turn = None
        reason, self._interrupt = self._interrupt, None
        return reason

    @property
    def in_turn(self) -> bool:
        """Whether a turn runs."""
        return self._turn is not None

    async def changed(self) -> None:
        """Wait for the next change."""
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()
