"""How a task ends: the state decided once, the result folded from its events, the end committed, then told."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec

from hermes.core.agent import Outcome
from hermes.core.codec import encode_json
from hermes.core.errors import HermesError, StoreError
from hermes.core.events import ControlDelivered, ControlMissed, TaskSuspended, TurnEnded
from hermes.core.messages import plain_text
from hermes.core.result import ChildRef, TaskResult, Verdict, async_status, exit_reason
from hermes.core.views import TaskView
from hermes.runtime.diagnosis import write_diagnosis
from hermes.runtime.rows import ended_event, queued_event
from hermes.runtime.spec import SpawnRequest, TaskSpec
from hermes.runtime.task import Task
from hermes.store.ops import (
    DeliveryRow,
    EndTask,
    Fence,
    MarkInbox,
    Op,
    PutDelivery,
    ReopenTask,
    SetTaskState,
    Ticket,
    Unit,
)

if TYPE_CHECKING:
    from hermes.runtime.supervisor import Supervisor

__all__ = ["Ending"]

logger = logging.getLogger(__name__)

#: Seconds that the end of a task waits for its children to stop.
GRACE = 10.0

State = Literal["completed", "exhausted", "timed_out", "cancelled", "failed"]


class Ending:
    """Ends tasks for the supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def end(self, task: Task, outcome: Outcome | None, failure: Exception | None) -> None:
        """Record the end of a task and tell whoever listens. Runs shielded."""
        supervisor = self._supervisor
        state, error = self._state(task, outcome, failure)
        if state != "completed":
            await self._stop_children(task)
        told = task.parent is not None and not task.spec.detached
        try:
            await self.clean(task)
            result = await self._summed_up(task, state, error, outcome, told)
            encoded = supervisor.redact(encode_json(result))
        except StoreError:
            raise
        except Exception as broken:  # noqa: BLE001  what breaks here must not take every other task along
            logger.error("task %s ended badly: %s", task.id, self._trace(broken))
            state, error = "failed", f"it could not be ended cleanly: {type(broken).__name__}: {broken}"
            result = TaskResult(task_id=task.id, state=state, exit_reason=exit_reason(state), error=error)
            encoded = supervisor.redact(encode_json(result))
        supervisor.admission.release(task)
        ops: list[Op] = [
            EndTask(task_id=task.id, state=state, ended_at=supervisor.clock.now(), end=encoded),
        ]
        missed = [*((steer.receipt, "steer", steer.text) for steer in task.inbox.steers)]
        missed.extend((item.receipt, "follow_up", plain_text(item.content)) for item in task.inbox.follow_ups)
        if state == "cancelled":
            ops.extend(MarkInbox(receipt=receipt, state="delivered") for receipt in task.cancels)
        else:
            missed.extend((receipt, "cancel", "") for receipt in task.cancels)
        ops.extend(MarkInbox(receipt=receipt, state="missed") for receipt, _, _ in missed)
        if told:
            target = supervisor.listener(task)
            ops.append(
                PutDelivery(
                    row=DeliveryRow(
                        child_id=task.id,
                        target_id=target.id if target is not None else task.scope.root_id,
                        created_at=supervisor.clock.now(),
                    )
                )
            )
        ticket = supervisor.store.submit(
            Unit(ops=tuple(ops), fences=(Fence(task_id=task.id, owner=task.owner, epoch=task.epoch),))
        )
        await ticket.wait()
        task.state, task.result = state, result
        task.delivery = "pending" if told else "none"
        for receipt, verb, text in missed:
            task.emit(ControlMissed(receipt=receipt, verb=verb, text=text))
        for receipt in task.cancels if state == "cancelled" else ():
            task.emit(ControlDelivered(receipt=receipt, verb="cancel", position=None))
        task.emit(ended_event(result))
        # An ended task keeps its result, not its conversation, nor the loop that its budget would warn.
        task.history, task.budget.on_warning = None, None
        supervisor.left(task)
        supervisor.tell(task)
        for end in task.inbox.take_ends():  # nobody reads them here any more
            child = supervisor.tasks.get(end.task_id)
            if child is not None:
                supervisor.tell(child)

    async def _summed_up(self, task: Task, state: State, error: str, outcome: Outcome | None, told: bool) -> TaskResult:
        """The result of a task with the files that belong to it."""
        result = self._result(task, state, error, outcome)
        settle = self._supervisor.policy.settle_workspace
        if settle is not None and (workspace := await settle(task)) is not None:
            view = self._supervisor.bus.tree.tasks.get(task.id)
            escaped = tuple(view.escaped) if view is not None else ()
            result = msgspec.structs.replace(result, workspace=msgspec.structs.replace(workspace, escaped=escaped))
        if task.diagnosis:
            result = msgspec.structs.replace(result, diagnostic_path=await self._diagnosed(task))
        if told:
            result = msgspec.structs.replace(result, report_path=await self._kept(task, result.summary))
        return result

    def take_back(self, task: Task, spec: TaskSpec, more: Sequence[Op]) -> Ticket:
        """Take the end back, in memory and on its way to the disk in one step."""
        supervisor = self._supervisor
        view = supervisor.bus.tree.tasks[task.id]
        request = SpawnRequest(spec=spec, group=view.group, index=view.index, count=max(1, len(task.together)))
        task.reopen(spec)
        ticket = supervisor.store.submit(
            Unit(
                ops=(ReopenTask(task_id=task.id, spec=supervisor.redact(encode_json(spec))), *more),
                fences=(Fence(task_id=task.id, owner=task.owner, epoch=task.epoch),),
            )
        )
        task.emit(queued_event(task, request, supervisor.admission.waiting() + 1))
        return ticket

    async def _kept(self, task: Task, text: str) -> str:
        """Keep the whole report for a reader whose context has little room; the path, empty where it is not kept."""
        supervisor = self._supervisor
        keep = supervisor.policy.keep_report
        if keep is None:
            return ""
        try:
            return await keep(
                task.id, task.scope.session_id, supervisor.redact(text.encode("utf-8", "replace")).decode()
            )
        except OSError as error:
            logger.warning("the report of task %s could not be kept: %s", task.id, error)
            return ""

    async def _diagnosed(self, task: Task) -> str:
        """Write what a child was doing that never got an answer; the path, empty where there is none."""
        supervisor = self._supervisor
        logs = supervisor.policy.logs
        if logs is None:
            return ""
        text = supervisor.redact(task.diagnosis.encode("utf-8", "replace"))
        try:
            return await write_diagnosis(logs, task.id, supervisor.clock.now(), text)
        except OSError as error:
            logger.warning("the diagnosis of task %s could not be written: %s", task.id, error)
            return ""

    async def clean(self, task: Task) -> None:
        """End what the task's environment still runs. Safe to call twice."""
        environment, task.environment = task.opened, None
        if environment is None:
            return
        with anyio.move_on_after(GRACE, shield=True):
            await environment.close()

    def suspend(self, task: Task, reason: str) -> None:
        """Note that a task stops here without an end."""
        self._supervisor.store.submit(
            Unit(
                ops=(SetTaskState(task_id=task.id, state="suspended"),),
                fences=(Fence(task_id=task.id, owner=task.owner, epoch=task.epoch),),
            )
        )
        task.emit(TaskSuspended(reason=reason))

    async def _stop_children(self, task: Task) -> None:
        task.closed = True
        for child in task.subtree()[:-1]:
            child.halt("cancelled", f"its parent {task.id} ended")
        with anyio.move_on_after(GRACE):
            for child in task.children:
                if not child.spec.detached:
                    await child.done.wait()

    def _trace(self, error: Exception) -> str:
        text = "".join(traceback.format_exception(error))
        return self._supervisor.redact(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def _state(self, task: Task, outcome: Outcome | None, failure: Exception | None) -> tuple[State, str]:
        """The state and the one most informative line about it. What really happened wins over what was asked."""
        if failure is not None:
            if not isinstance(failure, HermesError):
                logger.error("task %s failed: %s", task.id, self._trace(failure))
                return "failed", f"{type(failure).__name__}: {failure}"
            return "failed", str(failure)
        if outcome is not None and not task.cancel_scope.cancelled_caught:
            if outcome.state == "cancelled":
                return "cancelled", outcome.error
            return outcome.state, outcome.error
        if task.stop in ("clock", "inactivity"):
            return "timed_out", task.stop_text
        return "cancelled", task.stop_text or "cancelled"

    def _result(self, task: Task, state: State, error: str, outcome: Outcome | None) -> TaskResult:
        tree = self._supervisor.bus.tree
        view = tree.tasks.get(task.id) or TaskView(task.id, task.scope.session_id, task.scope.parent_id)
        now = anyio.current_time()
        text = outcome.text if outcome is not None else self._last_text(task)
        note = ""
        if state in ("completed", "exhausted", "timed_out") and not text.strip():
            done = ", ".join(trace.tool for trace in view.trace) or "no tool calls"
            note = f"The task ended without a final text. Calls made: {done}."
        return TaskResult(
            task_id=task.id,
            state=state,
            exit_reason=exit_reason(state, outcome.limit if outcome is not None else None),
            summary=text,
            error=error,
            note=note,
            truncated=state in ("exhausted", "timed_out"),
            partial=outcome.partial if outcome is not None else state != "completed",
            permanent=outcome.permanent if outcome is not None else False,
            error_reason=outcome.reason if outcome is not None else "",
            retry_after=outcome.retry_after if outcome is not None else None,
            elapsed=now - task.started_at if task.started_at is not None else 0.0,
            api_calls=view.api_calls,
            usage=view.usage,
            subtree_usage=tree.subtree_usage(task.id),
            model=view.model,
            tool_trace=tuple(view.trace),
            files_read=tuple(view.files_read),
            files_written=tuple(view.files_written),
            missed_steer=tuple(steer.text for steer in task.inbox.steers),
            children=tuple(ChildRef(task_id=child.id, status=async_status(child.state)) for child in task.children),
            output=tuple(view.lines),
            agent=task.spec.agent,
            verdict=_verdict(task),
            conflicts=tuple(view.conflicts),
        )

    @staticmethod
    def _last_text(task: Task) -> str:
        """The newest text of a task that was stopped: its partial result."""
        if task.history is None:
            return ""
        for entry in reversed(task.history.view()):
            text = getattr(entry, "text", "")
            if type(entry).__name__ == "Assistant" and text.strip():
                return str(text)
        return ""


def _verdict(task: Task) -> Verdict:
    """What was found of the answer; one that was never looked at has not been found valid."""
    if task.spec.output_schema is None or task.verdict.schema_valid is not None:
        return task.verdict
    return Verdict(schema_valid=False, schema_errors=("the task ended before its answer was checked",))


def first_of(error: Exception) -> Exception:
    """The first plain error in a group of errors; groups wrap even a single one."""
    while isinstance(error, ExceptionGroup):
        plain = [inner for inner in error.exceptions if isinstance(inner, HermesError)]
        error = plain[0] if plain else error.exceptions[0]
    return error


def with_unfinished(event: TurnEnded, task: Task) -> TurnEnded:
    """The end of a conversation's turn; an answer given while children still work says which."""
    pending = () if event.calls or event.error or event.purpose != "main" else task.living_children()
    if not pending:
        return event
    return msgspec.structs.replace(event, unfinished_children=tuple(child.id for child in pending))
