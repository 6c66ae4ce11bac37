"""The toolset `delegation`: children that the caller waits for (`delegate_task`, `spawn_agent`, `spawn_parallel`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

from hermes.core.errors import AdmissionRefused, ToolError
from hermes.core.ids import random_hex
from hermes.core.tools import CallContext, Tool, ToolEnv, ToolOutput, json_output
from hermes.core.toolsets import ToolsetRegistry
from hermes.delegation.orders import read_orders
from hermes.delegation.policy import ChildOrder, DelegationPolicy, child_spec
from hermes.delegation.report import Reports
from hermes.delegation.schemas import DELEGATE_SCHEMA, PARALLEL_SCHEMA, SPAWN_SCHEMA, TINY_PARALLEL_SCHEMA
from hermes.runtime.control import Control
from hermes.runtime.spec import SpawnRequest
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task

__all__ = ["Delegation", "DelegationToolset"]

#: One answer of ours never carries more children than providers allow calls in a message.
NOT_YET = "No result exists yet. Do not report or guess an outcome; it arrives by itself as a new message."


class Delegation:
    """What both delegation toolsets share: spawning for a call, and formatting. Bound late to its supervisor."""

    def __init__(self, policy: DelegationPolicy, reports: Reports) -> None:
        self.policy = policy
        self.reports = reports
        self._bound: tuple[Supervisor, Control, ToolsetRegistry] | None = None

    def bind(self, supervisor: Supervisor, control: Control, registry: ToolsetRegistry) -> None:
        """Close the circle: children may delegate, so the tools need the supervisor that builds them."""
        self._bound = (supervisor, control, registry)

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor. Raises RuntimeError before `bind`."""
        return self._parts()[0]

    @property
    def control(self) -> Control:
        """The verbs. Raises RuntimeError before `bind`."""
        return self._parts()[1]

    def _parts(self) -> tuple[Supervisor, Control, ToolsetRegistry]:
        if self._bound is None:
            raise RuntimeError("delegation was not bound to a supervisor")
        return self._bound

    def caller(self, context: CallContext) -> Task:
        """The task that makes the call."""
        return self.supervisor.tasks[context.scope.task_id]

    async def spawn(
        self, orders: Sequence[ChildOrder], context: CallContext, *, background: bool
    ) -> tuple[list[Task], list[str], str]:
        """Spawn the children of one call; returns them, notes, and the group's id.

        Raises:
            ToolError: refused, with the reason.
        """
        supervisor, _, registry = self._parts()
        parent = self.caller(context)
        group = f"deleg_{random_hex(8)}"
        notes: list[str] = []
        requests = []
        for index, order in enumerate(orders):
            spec, remarks = child_spec(order, parent, self.policy, registry, background=background)
            notes.extend(remark for remark in remarks if remark not in notes)
            requests.append(SpawnRequest(spec=spec, group=group, index=index, count=len(orders)))
        try:
            tasks = await supervisor.spawn(requests, session_id=parent.scope.session_id, parent=parent, key=context.key)
        except AdmissionRefused as refusal:
            raise ToolError(str(refusal)) from None
        return tasks, notes, group

    async def run_and_wait(self, orders: Sequence[ChildOrder], context: CallContext) -> ToolOutput:
        """Spawn children and wait for all of them; results come in the order of the tasks."""
        began = anyio.current_time()
        tasks, notes, _ = await self.spawn(orders, context, background=False)
        await self.control.collect(tasks, caller=self.caller(context))
        room = self.reports.room_for(len(tasks), context.room())
        answer: dict[str, Any] = {
            "results": [self.reports.delegate_result(index, task, room) for index, task in enumerate(tasks)],
            "total_duration_seconds": round(anyio.current_time() - began, 2),
        }
        if notes:
            answer["notes"] = notes
        done = sum(1 for task in tasks if task.state == "completed")
        return json_output(
            answer,
            delivers=tuple(task.id for task in tasks if task.ended),
            success=done > 0,
            preview=f"{done} of {len(tasks)} children completed",
        )

    async def dispatch(self, orders: Sequence[ChildOrder], context: CallContext) -> ToolOutput:
        """Start children beside the conversation and answer at once (`background: true`)."""
        tasks, notes, group = await self.spawn(orders, context, background=True)
        answer: dict[str, Any] = {
            "status": "dispatched",
            "delegation_id": group,
            "goal": orders[0].goal if len(orders) == 1 else f"{len(orders)} tasks",
            "mode": "background",
            "task_ids": [task.id for task in tasks],
            "note": NOT_YET,
        }
        if notes:
            answer["notes"] = notes
        return json_output(answer, preview=f"{len(tasks)} dispatched")


class _Delegate(msgspec.Struct, kw_only=True):
    goal: Any = None
    prompt: Any = None
    context: Any = None
    toolsets: Any = None
    tasks: Any = None
    role: Any = None
    background: bool = False
    timeout: Any = None
    max_iterations: Any = None
    acp_command: Any = None
    acp_args: Any = None
    skill: Any = None


class DelegationToolset:
    """Builds the synchronous delegation tools."""

    name = "delegation"
    label = "Hand work to child agents and wait for them"
    opt_in = False
    tool_names = ("delegate_task", "spawn_agent", "spawn_parallel")

    def __init__(self, delegation: Delegation) -> None:
        self._delegation = delegation

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """The tools for one task; a tiny model gets the one it can use."""
        if env.tiny:
            return (self._tool("spawn_parallel", "Give two helpers one task each.", TINY_PARALLEL_SCHEMA),)
        return (
            self._tool("delegate_task", _DELEGATE, DELEGATE_SCHEMA),
            self._tool("spawn_agent", _SPAWN, SPAWN_SCHEMA),
            self._tool("spawn_parallel", _PARALLEL, PARALLEL_SCHEMA),
        )

    def _tool(self, name: str, description: str, parameters: dict[str, Any]) -> Tool:
        async def run(arguments: _Delegate, context: CallContext) -> ToolOutput:
            given = {
                key: value
                for key, value in msgspec.to_builtins(arguments).items()
                if value is not None and key != "tasks"
            }
            # Where the configuration wins over the call, the call's value is accepted and not used.
            given.pop("max_iterations", None)
            orders = read_orders(arguments.tasks, given)
            if arguments.background and name == "delegate_task":
                return await self._delegation.dispatch(orders, context)
            return await self._delegation.run_and_wait(orders, context)

        return Tool(
            name=name,
            description=description,
            arguments=_Delegate,
            parameters=parameters,
            run=run,
            safe_to_repeat=True,
            describe=_describe,
        )


def _describe(arguments: dict[str, Any]) -> str:
    tasks = arguments.get("tasks")
    if isinstance(tasks, list):
        goals = [
            str(item.get("goal") or item.get("prompt") or "") if isinstance(item, dict) else str(item) for item in tasks
        ]
        return f"{len(goals)} tasks: " + "; ".join(goals)
    return str(arguments.get("goal") or arguments.get("prompt") or "")


_DELEGATE = (
    "Hand one task (goal) or several independent ones (tasks) to child agents and wait for their reports. Each child "
    "starts with an empty conversation and its own terminal, so its goal must be complete in itself. Use it for work "
    "that is large or can run in parallel; do small steps yourself."
)
_SPAWN = "Hand one self-contained task to a child agent and wait for its report."
_PARALLEL = (
    "Hand several independent tasks to child agents that work in parallel, and wait for all reports, in the order of "
    "the tasks. More than may run at once are queued."
)
