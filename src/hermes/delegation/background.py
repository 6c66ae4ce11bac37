"""The toolset `async_delegation`: children beside the conversation. None of its tools but `collect_task` waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec

from hermes.core.messages import plain_text
from hermes.core.result import async_status, tokens
from hermes.core.tools import CallContext, Tool, ToolEnv, ToolOutput, error_output, json_output
from hermes.delegation.orders import read_order
from hermes.delegation.schemas import ASYNC_SCHEMA
from hermes.delegation.toolset import NOT_YET, Delegation
from hermes.runtime.task import Task

__all__ = ["AsyncDelegationToolset"]

#: Ended tasks that a listing shows, newest first.
SHOWN_ENDED = 50
_TaskId = Annotated[str, msgspec.Meta(description="Id of the task, or its unique beginning.")]


class _Dispatch(msgspec.Struct, kw_only=True):
    goal: Any = None
    prompt: Any = None
    context: Any = None
    toolsets: Any = None
    role: Any = None
    model: Any = None
    provider: Any = None
    max_iterations: Any = None
    timeout: Any = None
    skill: Any = None


class _One(msgspec.Struct, kw_only=True):
    task_id: _TaskId


class _Steer(msgspec.Struct, kw_only=True):
    task_id: _TaskId
    message: Annotated[str, msgspec.Meta(description="What the child should do differently.")]


class _Collect(msgspec.Struct, kw_only=True):
    task_id: _TaskId
    timeout: Annotated[float | None, msgspec.Meta(description="Seconds to wait at most. Default: until it ends.")] = (
        None
    )


class _None(msgspec.Struct, kw_only=True):
    pass


class AsyncDelegationToolset:
    """Builds the six tools of asynchronous delegation."""

    name = "async_delegation"
    label = "Hand work to child agents that run beside the conversation"
    opt_in = False
    tool_names = ("delegate_task_async", "check_task", "steer_task", "collect_task", "cancel_task", "list_tasks")

    def __init__(self, delegation: Delegation) -> None:
        self._delegation = delegation

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """The tools for one task; a tiny model gets none, its schema would not hold them."""
        if env.tiny:
            return ()
        return (
            _tool("delegate_task_async", _DISPATCH, _Dispatch, self._dispatch, parameters=ASYNC_SCHEMA),
            _tool("check_task", "State and newest output of a task you started. Never waits.", _One, self._check),
            _tool(
                "steer_task", "Send a correction to a running task; it reads it at its next step.", _Steer, self._steer
            ),
            _tool("collect_task", "Wait for a task to end and get its report.", _Collect, self._collect),
            _tool(
                "cancel_task", "Stop a running task and everything under it; partial work is kept.", _One, self._cancel
            ),
            _tool("list_tasks", "All tasks you started, running ones first.", _None, self._list),
        )

    async def _dispatch(self, arguments: _Dispatch, context: CallContext) -> ToolOutput:
        order = read_order(msgspec.to_builtins(arguments), "")
        tasks, notes, _ = await self._delegation.spawn([order], context, background=True)
        task = tasks[0]
        place = self._delegation.supervisor.admission.place(task)
        answer: dict[str, Any] = {
            "task_id": task.id,
            "status": "queued" if place > 1 else "running",
            "message": f"Started in the background. {NOT_YET}",
        }
        if place > 1:
            answer["position"] = place
        if notes:
            answer["notes"] = notes
        return json_output(answer, preview=task.id)

    def _find(self, task_id: str, context: CallContext) -> Task | ToolOutput:
        found = self._delegation.control.find(task_id, context.scope)
        if found.task is not None:
            return found.task
        answer: dict[str, Any] = {"error": f"Task not found: {task_id}"}
        if found.nearest:
            answer["nearest"] = list(found.nearest)
        return json_output(answer, is_error=True)

    async def _check(self, arguments: _One, context: CallContext) -> ToolOutput:
        task = self._find(arguments.task_id, context)
        if isinstance(task, ToolOutput):
            return task
        control = self._delegation.control
        view = control.view(task)
        lines = list(view.lines)
        answer: dict[str, Any] = {
            "task_id": task.id,
            "status": async_status(task.state),
            "elapsed": round(control.seconds(task), 2),
            "output_preview": "\n".join(lines[-10:]),
            "output_lines": len(lines),
            "usage": {"tokens": tokens(view.usage), "cost_usd": view.usage.cost_usd, "api_calls": view.api_calls},
        }
        if task.state == "queued":
            answer["position"] = self._delegation.supervisor.admission.place(task)
        elif not task.ended:
            answer["phase"] = f"{view.phase} {view.phase_detail}".strip()
            limit = task.spec.limits.turns
            answer["turns"] = f"{task.budget.turns}/{limit}" if limit is not None else str(task.budget.turns)
            quiet = max(0.0, self._delegation.supervisor.clock.now() - view.last_activity)
            answer["last_activity_seconds"] = round(quiet, 1)
        if task.result is not None:
            answer |= {"exit_reason": task.result.exit_reason, "truncated": task.result.truncated}
            if task.result.error:
                answer["error"] = task.result.error
        if view.receipts:
            answer["receipts"] = list(view.receipts.values())
        return json_output(answer, preview=str(answer["status"]))

    async def _steer(self, arguments: _Steer, context: CallContext) -> ToolOutput:
        task = self._find(arguments.task_id, context)
        if isinstance(task, ToolOutput):
            return task
        if not arguments.message.strip():
            return error_output("message is required: say what the child should do differently")
        receipt = await self._delegation.control.steer(task, arguments.message, sender=context.scope.task_id)
        if receipt is None:
            return _not_running(task)
        return json_output(
            {
                "ok": True,
                "message": "Queued; the task reads it before its next request.",
                "receipt": {"id": receipt.id, "state": receipt.state},
            }
        )

    async def _collect(self, arguments: _Collect, context: CallContext) -> ToolOutput:
        task = self._find(arguments.task_id, context)
        if isinstance(task, ToolOutput):
            return task
        control = self._delegation.control
        timeout = None if arguments.timeout is None else max(0.0, arguments.timeout)
        ended = task.ended or await control.collect([task], timeout=timeout, caller=self._delegation.caller(context))
        reports = self._delegation.reports
        answer = reports.collected(
            task,
            reports.room_for(1, context.room()),
            timed_out=not ended,
            elapsed=control.seconds(task),
            lines=list(control.view(task).lines),
        )
        return json_output(answer, delivers=(task.id,) if task.ended else (), preview=str(answer["status"]))

    async def _cancel(self, arguments: _One, context: CallContext) -> ToolOutput:
        task = self._find(arguments.task_id, context)
        if isinstance(task, ToolOutput):
            return task
        stopped = await self._delegation.control.cancel(
            [task], f"cancelled by {context.scope.task_id}", sender=context.scope.task_id
        )
        if not stopped:
            return _not_running(task)
        return json_output(
            {
                "ok": True,
                "cancelled": task.id,
                "message": "The task and everything under it are being stopped; partial work is kept.",
            }
        )

    async def _list(self, arguments: _None, context: CallContext) -> ToolOutput:
        control = self._delegation.control
        tasks = control.visible(context.scope)
        order = {"running": 0, "queued": 1, "suspended": 2}
        ended = [task for task in tasks if task.ended][-SHOWN_ENDED:]
        going = sorted((task for task in tasks if not task.ended), key=lambda task: order.get(task.state, 3))
        rows = []
        for task in (*going, *reversed(ended)):
            row: dict[str, Any] = {
                "task_id": task.id,
                "goal": " ".join(plain_text(task.spec.goal).split())[:60],
                "status": async_status(task.state),
                "elapsed": round(control.seconds(task), 2),
                "output_lines": len(control.view(task).lines),
            }
            place = self._delegation.supervisor.admission.place(task)
            if place:
                row["position"] = place
            rows.append(row)
        admission = self._delegation.supervisor.admission
        return json_output(
            {"tasks": rows, "active": len(going), "limit": admission.max_children}, preview=f"{len(rows)} tasks"
        )


def _not_running(task: Task) -> ToolOutput:
    return json_output(
        {"ok": False, "error": f"Task {task.id} is not running (status: {async_status(task.state)})."}, is_error=True
    )


def _tool(
    name: str,
    description: str,
    arguments: type[msgspec.Struct],
    run: Callable[[Any, CallContext], Awaitable[ToolOutput]],
    parameters: dict[str, Any] | None = None,
) -> Tool:
    return Tool(
        name=name,
        description=description,
        arguments=arguments,
        parameters=parameters,
        run=run,
        safe_to_repeat=True,
        describe=lambda given: str(given.get("goal") or given.get("prompt") or given.get("task_id") or ""),
    )


_DISPATCH = (
    "Start a child agent in the background and go on at once with its task_id. Its report arrives by itself as a new "
    "message when it ends; use check_task to look, steer_task to correct it, collect_task to wait for it."
)
