"""What other processes ask of the tasks of this one: read from the journal, done as `Control` does it, answered there.

A process that wants something of a task writes a row and rings; the owner of the task looks when it is rung, and twice
a second by itself while it has living tasks. Each row ends as delivered, missed or refused, once. The asking side is in
`remote.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from hermes.core.errors import StoreError
from hermes.core.events import ControlDelivered, ControlMissed, ControlReceived, ControlRefused
from hermes.core.inbox import FollowUp, SteerMessage
from hermes.runtime.carrying import carried, pictures, spoken
from hermes.runtime.control import Control
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task
from hermes.store.ops import AdoptTasks, InboxRow, MarkInbox, Unit

__all__ = ["ADOPT", "LOOK_EVERY", "NOBODY", "RELEASE", "Outside", "apply_message"]

#: Seconds between two looks of an owner that nobody rang.
LOOK_EVERY = 0.5
#: The owner of tasks that were let go: no process ever has this id.
NOBODY = ""
#: Verbs of a row on a conversation: the host may take the session up; its owner shall let it go.
ADOPT, RELEASE = "adopt", "release"


class Outside:
    """Answers other processes for one supervisor. `rung` waits until somebody rings; None: nobody can."""

    def __init__(
        self,
        supervisor: Supervisor,
        control: Control,
        rung: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._control = control
        self._rung = rung

    async def run(self) -> None:
        """Look again and again; ends only by cancellation."""
        while True:
            with anyio.move_on_after(LOOK_EVERY) as scope:
                await (self._rung() if self._rung is not None else anyio.sleep_forever())
            supervisor = self._supervisor
            rung = not scope.cancelled_caught
            if supervisor.broken is None and (rung or any(not task.ended for task in supervisor.tasks.values())):
                try:
                    await self.look()
                except StoreError as error:
                    supervisor.break_off(error)

    async def look(self) -> None:
        """Do what is asked now."""
        supervisor = self._supervisor
        for row in await supervisor.store.queued(supervisor.owner):
            task = supervisor.tasks.get(row.task_id)
            if supervisor.closing or supervisor.adopting:  # whoever takes a session up reads what was asked of it
                return
            if row.verb == RELEASE:
                await self._release(row, task)
            elif task is not None and not self._known(task, row):
                await apply_message(supervisor, self._control, task, row)
            elif task is None:
                supervisor.store.submit(Unit(ops=(MarkInbox(receipt=row.receipt, state="missed"),)))

    def _known(self, task: Task, row: InboxRow) -> bool:
        """Whether a message is on its way already: written here, or taken up with the task."""
        return row.receipt in self._control.view(task).receipts

    async def _release(self, row: InboxRow, task: Task | None) -> None:
        """Let a session go: its tasks stop without an end, and belong to nobody."""
        supervisor = self._supervisor
        mark = MarkInbox(receipt=row.receipt, state="delivered")
        if task is None:
            supervisor.store.submit(Unit(ops=(mark,)))
            return
        session = task.scope.session_id
        with anyio.CancelScope(shield=True):
            await supervisor.let_go(session, row.text or "another process goes on with it")
            gone = AdoptTasks(session_id=session, from_owner=supervisor.owner, to_owner=NOBODY)
            await supervisor.store.submit(Unit(ops=(gone, mark))).wait()


async def apply_message(
    supervisor: Supervisor, control: Control, task: Task, row: InboxRow, *, taken_up: bool = False
) -> None:
    """Do to a task of this process what a queued row says, and answer in the row. `taken_up`: the task comes from a
    lost process, so that a message may be one that it had begun to go on with."""
    store = supervisor.store
    refused: str | None = None
    if row.verb == "continue" and (task.ended or not taken_up):
        refused = await control.go_on(task, row)
        if refused is None:
            return
    if row.verb in (ADOPT, RELEASE):  # it is being done by whoever has the task now
        store.submit(Unit(ops=(MarkInbox(receipt=row.receipt, state="delivered"),)))
        return
    words = spoken(carried(row.text))
    if row.receipt not in control.view(task).receipts:
        task.emit(ControlReceived(receipt=row.receipt, verb=row.verb, text=words, sender=row.sender))

    def answer(state: str, reason: str = "") -> None:
        store.submit(Unit(ops=(MarkInbox(receipt=row.receipt, state=state),)))
        if state == "delivered":
            task.emit(ControlDelivered(receipt=row.receipt, verb=row.verb, position=None))
        elif state == "missed":
            task.emit(ControlMissed(receipt=row.receipt, verb=row.verb, text=words))
        else:
            task.emit(ControlRefused(receipt=row.receipt, verb=row.verb, reason=reason))

    if refused is not None:
        answer("refused", refused)
    elif task.ended or task.ending:
        answer("missed")
    elif row.verb == "continue":
        control.take_follow_up(task, row)
    elif row.verb == "steer":
        said = carried(row.text)
        task.inbox.steer(
            SteerMessage(
                receipt=row.receipt,
                text=spoken(said),
                sender=row.sender,
                at=row.created_at,
                pictures=pictures(said),
            )
        )
    elif row.verb == "follow_up":
        task.hushed = False
        task.inbox.follow_up(FollowUp(receipt=row.receipt, content=carried(row.text), at=row.created_at))
    elif row.verb == "cancel":
        answer("delivered" if await control.cancel([task], row.text, sender=row.sender) else "missed")
    elif row.verb == "interrupt":
        answer("delivered" if task.inbox.interrupt(row.text or "interrupted from another terminal") else "missed")
    else:
        answer("refused", f"nothing here is called {row.verb}")
