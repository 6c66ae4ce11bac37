"""The verbs on living tasks: check, steer, follow up, collect, wait, cancel, list. Each also exists as a model tool.

None raises for what a caller may have got wrong in naming a task: `find` says what it found, and the verbs answer with
the state they met. A control message is stored before it takes effect and ends as delivered, missed or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Literal

import anyio
import msgspec

from hermes.core.codec import encode_json
from hermes.core.errors import AdmissionRefused, UsageError
from hermes.core.events import ControlDelivered, ControlReceived, ControlRefused
from hermes.core.inbox import FollowUp, SteerMessage
from hermes.core.limits import Limits
from hermes.core.messages import Content, Text, opening
from hermes.core.result import async_status
from hermes.core.scope import TaskScope
from hermes.core.views import TaskView
from hermes.runtime.carrying import carried, packed, pictures, spoken
from hermes.runtime.journal import EncodedTools, Journals, TaskJournal
from hermes.runtime.restoring import close_open_work, load_histories, narrowed
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task
from hermes.store.ops import Fence, InboxRow, MarkInbox, Op, PutInbox, SetTaskSpec, Ticket, TouchSession, Unit

__all__ = ["Control", "Found", "Receipt"]


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a control message: queued, delivered, missed, refused."""

    id: str
    state: str


class Found(msgspec.Struct, frozen=True):
    """A task found by its id, or the ids nearest to what was asked."""

    task: Task | None
    nearest: tuple[str, ...] = ()


class Control:
    """The verbs, for one supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._receipts = 0
        self._journals = Journals(
            supervisor.store,
            redact=supervisor.redact,
            now=supervisor.clock.now,
            consumed=supervisor.consumed,
            delivered=self.delivered,
            tools=EncodedTools(),
        )

    # -- who sees what ----------------------------------------------------------------------------------------------

    def visible(self, caller: TaskScope | None, session_id: str | None = None) -> list[Task]:
        """Tasks the caller may see: its own subtree; the conversation itself sees everything of its session."""
        tasks = list(self._supervisor.tasks.values())
        if caller is None:
            return [task for task in tasks if session_id is None or task.scope.session_id == session_id]
        if caller.depth == 0 and caller.kind == "main":
            return [task for task in tasks if task.scope.session_id == caller.session_id and task.id != caller.task_id]
        own = self._supervisor.tasks.get(caller.task_id)
        return own.subtree()[:-1] if own is not None else []

    def find(self, task_id: str, caller: TaskScope | None = None, session_id: str | None = None) -> Found:
        """Find a task by id or unique prefix among those the caller may see."""
        visible = {task.id: task for task in self.visible(caller, session_id)}
        if task_id in visible:
            return Found(visible[task_id])
        matches = [task for key, task in visible.items() if task_id and key.startswith(task_id)]
        if len(matches) == 1:
            return Found(matches[0])
        if matches:
            return Found(None, tuple(task.id for task in matches[:3]))
        return Found(None, tuple(get_close_matches(task_id, list(visible), n=3, cutoff=0.5)))

    def view(self, task: Task) -> TaskView:
        """What the events say of a task; nothing of one that was let go and is forgotten here."""
        known = self._supervisor.bus.tree.tasks.get(task.id)
        return known or TaskView(task.id, task.scope.session_id, task.scope.parent_id)

    def seconds(self, task: Task) -> float:
        """Elapsed seconds of a task, fixed once it ended; while it is queued, what it ran before."""
        if task.result is not None:
            return task.result.elapsed
        return anyio.current_time() - task.started_at if task.started_at is not None else task.ran

    # -- talking to a task ------------------------------------------------------------------------------------------

    async def steer(
        self, task: Task, said: Content | str, *, sender: str = "user", receipt: str = ""
    ) -> Receipt | None:
        """Store a correction and queue it for the next boundary. None: the task has ended.

        The same `receipt` asks once, however often it is given.
        """
        if known := self.view(task).receipts.get(receipt):
            return Receipt(id=receipt, state=str(known["state"]))
        if task.ended or task.ending:
            return None
        receipt = receipt or self._receipt()
        parts = (Text(said),) if isinstance(said, str) else said
        await self._store(task, receipt, "steer", parts, sender)
        if task.ended or task.ending:
            self._refuse(task, receipt, "steer", "the task ended")
            return None
        now = self._supervisor.clock.now()
        words, seen = spoken(parts), pictures(parts)
        task.inbox.steer(SteerMessage(receipt=receipt, text=words, sender=sender, at=now, pictures=seen))
        return Receipt(id=receipt, state="queued")

    async def follow_up(self, task: Task, content: Content | str) -> Receipt | None:
        """Store the next input of a task that rests between inputs. None: the task has ended."""
        parts = (Text(content),) if isinstance(content, str) else content
        if task.ended or task.ending:
            return None
        receipt = self._receipt()
        ticket = self._submit(task, receipt, "follow_up", parts, "user")
        # It is read at once: the entry that it becomes is committed behind it and before anything acts on it, and a
        # commit of its own would be a third of what a person waits for beside a thousand children.
        task.inbox.follow_up(FollowUp(receipt=receipt, content=parts, at=self._supervisor.clock.now()))
        await ticket.wait()
        # One that was only stopped here has no end: whoever goes on with it reads what is stored.
        ends = (task.ended or task.ending) and task.stop != "shutdown"
        if ends and self.view(task).receipts.get(receipt, {}).get("state") != "delivered":
            return None  # its end says so
        return Receipt(id=receipt, state="queued")

    async def continue_task(
        self, task: Task, message: str, *, sender: str = "user", receipt: str = ""
    ) -> Receipt | str:
        """Let a task that has ended go on with its history and a next input: same id, another attempt.

        Its rights are never wider than its parent's are now; its next end is told anew. The same `receipt` asks once,
        however often it is given. Returns a sentence where the task cannot go on.
        """
        if known := self.view(task).receipts.get(receipt):
            return Receipt(id=receipt, state=str(known["state"]))
        row = self._row(task, receipt or self._receipt(), "continue", message, sender)
        refused = await self.go_on(task, row, (PutInbox(row=row),))
        return Receipt(id=row.receipt, state="queued") if refused is None else refused

    async def go_on(self, task: Task, row: InboxRow, more: Sequence[Op] = ()) -> str | None:
        """`continue_task` with the stored message `row`; `more` is written with it. Returns why it cannot go on."""
        supervisor = self._supervisor
        restored = None
        if task.ended:
            await task.done.wait()  # what it left is cleared away
            (restored,) = await load_histories(supervisor.store, [(task.id, self.journal(task))])
        if not task.ended:  # never, or somebody else was faster
            return f"Task {task.id} has not ended (status: {async_status(task.state)}): use steer_task to correct it."
        parent = task.parent
        if parent is not None and not task.spec.detached and (parent.ended or parent.ending):
            return f"Task {task.id} cannot go on: {parent.id}, which started it, has ended. Continue that one."
        reason = f"the task had ended: {self.view(task).exit_reason}"
        try:
            ticket = supervisor.reopen(task, narrowed(task.spec, parent, supervisor.policy), more)
        except (AdmissionRefused, UsageError) as refusal:
            return f"Task {task.id} cannot go on: {refusal}"
        said = spoken(carried(row.text))
        task.emit(ControlReceived(receipt=row.receipt, verb=row.verb, text=said, sender=row.sender))
        if restored is not None:
            task.history, task.budget.turns = restored.history, restored.turns
            close_open_work(task, restored.history, reason, supervisor.clock.now())
        self.take_follow_up(task, row)
        supervisor.resume(task, ticket)
        await ticket.wait()
        return None

    @staticmethod
    def take_follow_up(task: Task, row: InboxRow) -> None:
        """Put a stored next input where the task reads it."""
        source = "user" if row.sender == "user" else "follow_up"
        task.inbox.follow_up(FollowUp(receipt=row.receipt, content=carried(row.text), at=row.created_at, source=source))

    async def limit_session(self, task: Task, limits: Limits) -> None:
        """Put other limits over the session of a task without a parent, in its specification too."""
        supervisor = self._supervisor
        budget = supervisor.budgets.of(task.scope.session_id)
        if budget is not None:
            budget.change(limits)
        task.spec = msgspec.structs.replace(task.spec, session=limits)
        spec = SetTaskSpec(task_id=task.id, spec=supervisor.redact(encode_json(task.spec)))
        fence = Fence(task_id=task.id, owner=task.owner, epoch=task.epoch)
        await supervisor.store.submit(Unit(ops=(spec,), fences=(fence,))).wait()

    def journal(self, task: Task) -> TaskJournal:
        """Where the history of a task is written."""
        return self._journals.of(task)

    def delivered(self, task: Task, receipt: str, position: int) -> None:
        """A control message stands in the history."""
        task.emit(ControlDelivered(receipt=receipt, verb=self._verb(task, receipt), position=position))

    def _verb(self, task: Task, receipt: str) -> str:
        return str(self.view(task).receipts.get(receipt, {}).get("verb", "steer"))

    def _receipt(self) -> str:
        self._receipts += 1
        return f"{self._supervisor.owner[:8]}-{self._receipts}"

    async def _store(self, task: Task, receipt: str, verb: str, said: Content | str, sender: str) -> None:
        await self._submit(task, receipt, verb, said, sender).wait()

    def _submit(self, task: Task, receipt: str, verb: str, said: Content | str, sender: str) -> Ticket:
        """Hand a message to the journal, and tell that it came."""
        row = self._row(task, receipt, verb, said, sender)
        words = spoken(carried(row.text))
        ops: list[Op] = [PutInbox(row=row)]
        if verb == "follow_up":
            # The session is named after what was said in it first.
            first = task.history is None or task.history.last is None
            title = opening(words, 80) if first and not task.inbox.follow_ups else None
            ops.append(TouchSession(session_id=task.scope.session_id, updated_at=row.created_at, title=title))
        ticket = self._supervisor.store.submit(Unit(ops=tuple(ops), urgent=True))
        task.emit(ControlReceived(receipt=receipt, verb=verb, text=words, sender=sender))
        return ticket

    def _row(self, task: Task, receipt: str, verb: str, said: Content | str, sender: str) -> InboxRow:
        return InboxRow(
            receipt=receipt,
            task_id=task.id,
            verb=verb,
            text=packed((Text(said),) if isinstance(said, str) else said, self._supervisor.redact),
            sender=sender,
            state="queued",
            created_at=self._supervisor.clock.now(),
        )

    def _refuse(self, task: Task, receipt: str, verb: str, reason: str) -> None:
        self._supervisor.store.submit(Unit(ops=(MarkInbox(receipt=receipt, state="refused"),)))
        task.emit(ControlRefused(receipt=receipt, verb=verb, reason=reason))

    # -- waiting for tasks ------------------------------------------------------------------------------------------

    async def collect(
        self,
        tasks: Sequence[Task],
        *,
        mode: Literal["all", "any"] = "all",
        timeout: float | None = None,
        caller: Task | None = None,
    ) -> bool:
        """Wait until all (or any) of the tasks ended; False when the time passed first. The tasks go on.

        The caller's slot is lent meanwhile. While somebody waits no notice is made of the end; if the wait is left
        without taking the result, the notice is made then.
        """
        supervisor = self._supervisor
        for task in tasks:
            task.collectors += 1
        if caller is not None:
            supervisor.admission.lend(caller)
        try:
            with anyio.move_on_after(timeout) as scope:
                if mode == "all":
                    for task in tasks:
                        await task.done.wait()
                else:
                    await self._any(tasks)
            return not scope.cancelled_caught
        finally:
            for task in tasks:
                task.collectors -= 1
            for task in tasks:
                if task.ended:
                    supervisor.tell(task)
            if caller is not None:
                await supervisor.admission.take_back(caller)

    async def _any(self, tasks: Sequence[Task]) -> None:
        if any(task.ended for task in tasks):
            return
        async with anyio.create_task_group() as group:

            async def one(task: Task) -> None:
                await task.done.wait()
                group.cancel_scope.cancel()

            for task in tasks:
                group.start_soon(one, task)

    # -- stopping ---------------------------------------------------------------------------------------------------

    async def cancel(self, tasks: Sequence[Task], text: str, *, sender: str = "user") -> list[Task]:
        """Stop tasks and everything under them; returns those that were still going. Partial results are kept.

        The intent is stored for the whole subtree in one commit and its admission closed first, so that nothing is
        born behind its back. It is answered with the end of each task, so that a crash in between brings none back.
        """
        supervisor = self._supervisor
        going = [task for task in tasks if not task.ended and not task.ending]
        found = {task.id: task for top in going for task in top.subtree()}
        subtree = [task for task in found.values() if not task.ended and not task.ending]
        ops: list[Op] = []
        for task in subtree:
            task.closed = True
            row = self._row(task, self._receipt(), "cancel", text, sender)
            task.cancels.append(row.receipt)
            ops.append(PutInbox(row=row))
            task.emit(ControlReceived(receipt=row.receipt, verb="cancel", text=row.text, sender=sender))
        if not ops:
            return []
        await supervisor.store.submit(Unit(ops=tuple(ops))).wait()
        for task in subtree:
            task.halt("cancelled", text)
        return going
