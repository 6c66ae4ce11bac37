"""The toolset `async_delegation`: children beside the conversation. Only `collect_task` and `wait_tasks` wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import msgspec

from hermes.core.errors import ToolError
from hermes.core.tools import CallContext, Tool, ToolEnv, ToolOutput, json_output
from hermes.delegation.orders import read_names, read_order
from hermes.delegation.schemas import WAIT_SCHEMA, async_schema
from hermes.delegation.toolset import Delegation
from hermes.delegation.verbs import NOT_YET
from hermes.runtime.task import Task

__all__ = ["AsyncDelegationToolset"]

_TaskId = Annotated[str, msgspec.Meta(description="Id of the task, or its unique beginning.")]


class _Dispatch(msgspec.Struct, kw_only=True):
    goal: Any = None
    prompt: Any = None
    context: Any = None
    toolsets: Any = None
    role: Any = None
    agent: Any = None
    model: Any = None
    route: Any = None
    provider: Any = None
    output_schema: Any = None
    check: Any = None
    max_iterations: Any = None
    max_tokens_total: Any = None
    max_cost: Any = None
    timeout: Any = None
    workspace: Any = None
    skill: Any = None


class _One(msgspec.Struct, kw_only=True):
    task_id: _TaskId


class _Steer(msgspec.Struct, kw_only=True):
    task_id: _TaskId
    message: Annotated[str, msgspec.Meta(description="What the child should do differently.")]


class _Continue(msgspec.Struct, kw_only=True):
    task_id: _TaskId
    message: Annotated[str, msgspec.Meta(description="What the child should do next; it knows all it did before.")]


class _Collect(msgspec.Struct, kw_only=True):
    task_id: _TaskId
    timeout: Annotated[float | None, msgspec.Meta(description="Seconds to wait at most. Default: until it ends.")] = (
        None
    )


class _Wait(msgspec.Struct, kw_only=True):
    task_ids: Any
    mode: str = "all"
    timeout: float | None = None


class _None(msgspec.Struct, kw_only=True):
    pass


class AsyncDelegationToolset:
    """Builds the tools of asynchronous delegation."""

    name = "async_delegation"
    label = "Hand work to child agents that run beside the conversation"
    opt_in = False
    tool_names = (
        "delegate_task_async",
        "check_task",
        "steer_task",
        "continue_task",
        "collect_task",
        "wait_tasks",
        "cancel_task",
        "list_tasks",
    )

    def __init__(self, delegation: Delegation) -> None:
        self._delegation = delegation

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """The tools for one task; a tiny model gets none, its schema would not hold them."""
        if env.tiny:
            return ()
        schema = async_schema(self._delegation.offer(env.scope.workspace))
        return (
            _tool("delegate_task_async", _DISPATCH, _Dispatch, self._dispatch, parameters=schema),
            _tool("check_task", "State and newest output of a task you started. Never waits.", _One, self._check),
            _tool(
                "steer_task", "Send a correction to a running task; it reads it at its next step.", _Steer, self._steer
            ),
            _tool(
                "continue_task",
                "Let a task that has ended go on, with everything it knows and a next message.",
                _Continue,
                self._continue,
            ),
            _tool("collect_task", "Wait for a task to end and get its report.", _Collect, self._collect),
            _tool("wait_tasks", _WAIT, _Wait, self._wait, parameters=WAIT_SCHEMA),
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
        found = self._delegation.verbs.find(task_id, context.scope)
        return found if isinstance(found, Task) else _output(found)

    async def _check(self, arguments: _One, context: CallContext) -> ToolOutput:
        task = self._find(arguments.task_id, context)
        return task if isinstance(task, ToolOutput) else _output(self._delegation.verbs.check(task))

    async def _steer(self, arguments: _Steer, context: CallContext) -> ToolOutput:
        task = self._find(arguments.task_id, context)
        if isinstance(task, ToolOutput):
            return task
        sender, receipt = context.scope.task_id, str(context.key)
        return _output(await self._delegation.verbs.steer(task, arguments.message, sender=sender, receipt=receipt))

    async def _continue(self, arguments: _Continue, context: CallContext) -> ToolOutput:
        task = self._find(arguments.task_id, context)
        if isinstance(task, ToolOutput):
            return task
        sender, receipt = context.scope.task_id, str(context.key)
        return _output(
            await self._delegation.verbs.continue_task(task, arguments.message, sender=sender, receipt=receipt)
        )

    async def _collect(self, arguments: _Collect, context: CallContext) -> ToolOutput:
        task = self._find(arguments.task_id, context)
        if isinstance(task, ToolOutput):
            return task
        answer = await self._delegation.verbs.collect(
            task, timeout=arguments.timeout, caller=self._delegation.caller(context), room_tokens=context.room()
        )
        # A child that failed is an answer, not a call that went wrong.
        return json_output(answer, delivers=(task.id,) if task.ended else (), preview=str(answer["status"]))

    async def _wait(self, arguments: _Wait, context: CallContext) -> ToolOutput:
        names = read_names(arguments.task_ids, "task_ids")
        if arguments.mode not in ("all", "any"):
            raise ToolError(f"mode is all or any, not {arguments.mode!r}.")
        found = {name: self._delegation.verbs.find(name, context.scope) for name in names}
        missing = [name for name, task in found.items() if not isinstance(task, Task)]
        if missing:
            near = sorted({other for name in missing for other in _nearest(found[name])})
            return _output({"error": f"Task not found: {', '.join(missing)}", **({"nearest": near} if near else {})})
        tasks = list({task.id: task for task in found.values() if isinstance(task, Task)}.values())
        answer = await self._delegation.verbs.await_tasks(
            tasks,
            mode="any" if arguments.mode == "any" else "all",
            timeout=arguments.timeout,
            caller=self._delegation.caller(context),
            room_tokens=context.room(),
        )
        ended = tuple(answer["ended"])
        return json_output(answer, delivers=ended, preview=f"{len(ended)} of {len(tasks)} ended")

    async def _cancel(self, arguments: _One, context: CallContext) -> ToolOutput:
        task = self._find(arguments.task_id, context)
        if isinstance(task, ToolOutput):
            return task
        sender = context.scope.task_id
        return _output(await self._delegation.verbs.cancel(task, f"cancelled by {sender}", sender=sender))

    async def _list(self, arguments: _None, context: CallContext) -> ToolOutput:
        answer = self._delegation.verbs.list(self._delegation.control.visible(context.scope))
        return json_output(answer, preview=f"{len(answer['tasks'])} tasks")


def _nearest(answer: Task | dict[str, Any]) -> tuple[str, ...]:
    return tuple(answer.get("nearest", ())) if isinstance(answer, dict) else ()


def _output(answer: dict[str, Any]) -> ToolOutput:
    """An answer for the model; what the caller got wrong is an error result, an error of the task itself is not."""
    failed = "error" in answer and ("status" not in answer)
    return json_output(answer, is_error=failed, preview=str(answer.get("status", "")))


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
        describe=lambda given: str(
            given.get("goal") or given.get("prompt") or given.get("task_id") or given.get("task_ids") or ""
        ),
    )


_WAIT = "Wait until all (or any) of several tasks ended and get the reports of those that did."
_DISPATCH = (
    "Start a child agent in the background and go on at once with its task_id. Its report arrives by itself as a new "
    "message when it ends; use check_task to look, steer_task to correct it, collect_task to wait for it."
)
