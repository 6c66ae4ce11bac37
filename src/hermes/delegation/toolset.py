"""The toolset `delegation`: children that the caller waits for (`delegate_task`, `spawn_agent`, `spawn_parallel`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import AdmissionRefused, HermesError, OperatorError, ToolError
from hermes.core.ids import random_hex
from hermes.core.tools import CallContext, Tool, ToolEnv, ToolOutput, json_output
from hermes.core.toolsets import DELEGATION_TOOLSETS, ToolsetRegistry
from hermes.delegation.library import AgentLibrary
from hermes.delegation.orders import read_orders
from hermes.delegation.policy import ChildOrder, DelegationPolicy, Site, child_spec, folder_of, workspace_mode
from hermes.delegation.report import Reports
from hermes.delegation.schemas import TINY_PARALLEL_SCHEMA, Offer, delegate_schema, parallel_schema, spawn_schema
from hermes.delegation.structured import check_schema
from hermes.delegation.verbs import NOT_YET, TaskVerbs
from hermes.runtime.control import Control
from hermes.runtime.isolation import WorkspaceMode
from hermes.runtime.spec import ModelChoice, SpawnRequest, TaskSpec
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task
from hermes.runtime.workspaces import Workspaces

__all__ = ["Delegation", "DelegationToolset"]


def _any_model(_choice: ModelChoice) -> None:
    """Every model can be had."""


class Delegation:
    """What both delegation toolsets share: spawning for a call, and formatting. Bound late to its supervisor.

    `agents` are the agent types to choose from; `resolve` raises for a model that cannot be had (no such provider, no
    key), so that the caller hears of it and not the child. `workspaces` makes workspaces of children's own; without it
    all of them share their parent's.
    """

    def __init__(
        self,
        policy: DelegationPolicy,
        reports: Reports,
        *,
        agents: AgentLibrary | None = None,
        resolve: Callable[[ModelChoice], None] = _any_model,
        workspaces: Workspaces | None = None,
        hold: Hold = NO_HOLD,
    ) -> None:
        self.policy = policy
        self.reports = reports
        self.agents = agents if agents is not None else AgentLibrary()
        self._resolve = resolve
        self._workspaces = workspaces
        self._hold = hold
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

    @property
    def verbs(self) -> TaskVerbs:
        """The verbs with their answers. Raises RuntimeError before `bind`."""
        supervisor, control, _ = self._parts()
        return TaskVerbs(supervisor, control, self.reports)

    def _parts(self) -> tuple[Supervisor, Control, ToolsetRegistry]:
        if self._bound is None:
            raise RuntimeError("delegation was not bound to a supervisor")
        return self._bound

    def caller(self, context: CallContext) -> Task:
        """The task that makes the call."""
        return self.supervisor.tasks[context.scope.task_id]

    async def prepare(self, task: Task) -> None:
        """Read the agent types of a task that may delegate, before its tools are made."""
        if not DELEGATION_TOOLSETS.isdisjoint(task.spec.toolsets):
            await self.agents.read(task.scope.workspace)

    def offer(self, workspace: str) -> Offer:
        """What an agent in this workspace may choose by name."""
        return Offer(agents=self.agents.known(workspace).listing(), routes=self.policy.routing.listing())

    async def spawn(
        self, orders: Sequence[ChildOrder], context: CallContext, *, background: bool
    ) -> tuple[list[Task], list[str], str]:
        """Spawn the children of one call; returns them, notes, and the group's id. Repeated, it finds them again.

        Raises:
            ToolError: refused, with the reason.
        """
        supervisor, control, _ = self._parts()
        parent = self.caller(context)
        known = supervisor.spawned(parent, context.key)
        if known:
            return known, [], control.view(known[0]).group
        group = f"deleg_{random_hex(8)}"
        notes: list[str] = []
        requests = []
        for index, order in enumerate(orders):
            child = supervisor.new_id("async" if background else "child")
            spec, remarks = await self._spec(order, parent, child, background=background)
            notes.extend(remark for remark in remarks if remark not in notes)
            requests.append(SpawnRequest(spec=spec, group=group, index=index, count=len(orders), task_id=child))
        try:
            tasks = await supervisor.spawn(requests, session_id=parent.scope.session_id, parent=parent, key=context.key)
        except AdmissionRefused as refusal:
            raise ToolError(str(refusal)) from None
        return tasks, notes, group

    async def _site(self, mode: WorkspaceMode, parent: Task, child: str) -> tuple[Site, list[str]]:
        """Where a child works, found out before it exists: what cannot be had is said to the caller."""
        folder = folder_of(parent)
        if mode == "shared" or self._workspaces is None:
            return Site(workspace=folder), []
        try:
            workspace, isolation, notes = await self._workspaces.plan(mode, folder, child)
        except OperatorError as error:
            raise ToolError(f"{error} Nothing was started.") from None
        return Site(workspace=workspace, isolation=isolation), notes

    async def _spec(
        self, order: ChildOrder, parent: Task, child: str, *, background: bool
    ) -> tuple[TaskSpec, tuple[str, ...]]:
        agent = await self.agents.find(order.agent, parent.scope.workspace) if order.agent else None
        if order.output_schema is not None:
            with held(self._hold):
                schema = await anyio.to_thread.run_sync(check_schema, order.output_schema)
            order = msgspec.structs.replace(order, output_schema=schema)
        _, _, registry = self._parts()
        site, remarks = await self._site(workspace_mode(order, agent, self.policy), parent, child)
        spec, notes = child_spec(order, parent, self.policy, registry, background=background, agent=agent, site=site)
        try:
            self._resolve(spec.model)
        except HermesError as error:
            raise ToolError(f"the child's model cannot be had: {error}") from None
        return spec, (*notes, *remarks)

    async def _first_success(self, tasks: Sequence[Task], caller: Task) -> Task | None:
        """Wait until a task succeeded, and stop the others; None when none did."""
        while True:
            winner = next((task for task in tasks if _succeeded(task)), None)
            going = [task for task in tasks if not task.ended]
            if winner is not None or not going:
                break
            await self.control.collect(going, mode="any", caller=caller)
        if going and winner is not None:
            await self.control.cancel(going, f"{winner.id} succeeded first", sender=caller.id)
            await self.control.collect(going, caller=caller)
        return winner

    async def run_and_wait(
        self, orders: Sequence[ChildOrder], context: CallContext, *, merge: str = "all"
    ) -> ToolOutput:
        """Spawn children and wait for them; results come in the order of the tasks.

        `merge` is `all`, or `first_success`: the others are stopped once one completed, and reported too.
        """
        if merge not in ("all", "first_success"):
            raise ToolError(f"merge is all or first_success, not {merge!r}.")
        began = anyio.current_time()
        tasks, notes, _ = await self.spawn(orders, context, background=False)
        caller = self.caller(context)
        winner: Task | None = None
        if merge == "first_success":
            winner = await self._first_success(tasks, caller)
        else:
            await self.control.collect(tasks, caller=caller)
        answer: dict[str, Any] = {
            "results": self.reports.delegated(tasks, context.room()),
            "total_duration_seconds": round(anyio.current_time() - began, 2),
        }
        if merge == "first_success":
            answer["winner"] = tasks.index(winner) if winner is not None else None
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


def _succeeded(task: Task) -> bool:
    result = task.result
    return result is not None and result.state == "completed" and result.verdict.schema_valid is not False


class _Delegate(msgspec.Struct, kw_only=True):
    goal: Any = None
    prompt: Any = None
    context: Any = None
    toolsets: Any = None
    tasks: Any = None
    role: Any = None
    agent: Any = None
    model: Any = None
    route: Any = None
    provider: Any = None
    output_schema: Any = None
    check: Any = None
    workspace: Any = None
    merge: str = "all"
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
        offer = self._delegation.offer(env.scope.workspace)
        return (
            self._tool("delegate_task", _DELEGATE, delegate_schema(offer)),
            self._tool("spawn_agent", _SPAWN, spawn_schema(offer)),
            self._tool("spawn_parallel", _PARALLEL, parallel_schema(offer)),
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
            return await self._delegation.run_and_wait(orders, context, merge=arguments.merge)

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
