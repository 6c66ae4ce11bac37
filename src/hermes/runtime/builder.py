"""The builder: from a task's specification to its agent. Finds model, tools and environment again by name."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence

from hermes.core.agent import Agent, AgentSpec, Outcome
from hermes.core.clock import Clock
from hermes.core.codec import encode_json
from hermes.core.compaction import Compaction
from hermes.core.environment import Environment
from hermes.core.events import EntryAdded
from hermes.core.history import History, Segment
from hermes.core.kit import Kit, LateKit, Plan
from hermes.core.markers import defused, steer_paragraph
from hermes.core.messages import Entry, User
from hermes.core.model import Model, ToolSpec
from hermes.core.sizing import ToolSizes
from hermes.core.tools import Tool, ToolEnv, Toolset, parameters_of
from hermes.core.toolsets import ToolsetRegistry
from hermes.core.turn import TurnSettings
from hermes.runtime.approval import Gate
from hermes.runtime.control import Control
from hermes.runtime.spec import ModelChoice
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task

__all__ = ["Builder"]


async def _nothing(*_: object) -> None:
    """Nothing to prepare, nothing to judge."""


async def _no_notes(_task: Task) -> str:
    return ""


#: Lists of tools that are kept to be shared; more than that are the tools of outside servers, new with each task.
KEPT_OFFERS = 64


class _Asked:
    """What the loop of one task asks of the runtime. One object with methods: a function each, made for the task, would
    be as large as a dozen entries of its history."""

    __slots__ = ("_builder", "_supervisor", "_task")

    def __init__(self, builder: Builder, supervisor: Supervisor, task: Task) -> None:
        self._builder = builder
        self._supervisor = supervisor
        self._task = task

    def watched(self) -> bool:
        return self._supervisor.bus.watched(self._task.id)

    def restate(self) -> str:
        return _restate(self._task)

    async def rest(self, outcome: Outcome) -> bool:
        """Whether there is more to read; what would be a task's final answer is judged first."""
        task = self._task
        if await self._supervisor.rest(task, outcome):
            return True
        if task.spec.interactive or task.spec.output_schema is None and not task.spec.check:
            return False
        await self._builder.accept(task, outcome)
        return task.inbox.pending


class Builder:
    """Builds agents for the supervisor of one process.

    `models` turns a choice into a model (and may have to start one), `environments` makes the place where a task's
    commands run. `around` is given the model of a task and returns what is asked in its place. `state_dir` returns a
    task's own directory for overflow. `workspace` sees that the task's directory is there, `prepare` is awaited before
    its tools are made. `accept` judges the final answer of a task that has a schema or a check; it leaves a remark in
    the inbox for another turn, or raises when the task has failed.
    """

    def __init__(
        self,
        *,
        registry: ToolsetRegistry,
        models: Callable[[ModelChoice], Awaitable[Model]],
        environments: Callable[[Task], Environment],
        state_dir: Callable[[Task], str],
        gate: Gate,
        clock: Clock,
        redact: Callable[[bytes], bytes],
        compaction: Compaction,
        workspace: Callable[[Task], Awaitable[None]] = _nothing,
        prepare: Callable[[Task], Awaitable[None]] = _nothing,
        accept: Callable[[Task, Outcome], Awaitable[None]] = _nothing,
        project: Callable[[Task], Awaitable[str]] = _no_notes,
        around: Callable[[Task, Model], Model] | None = None,
    ) -> None:
        self._registry = registry
        self._models = models
        self._environments = environments
        self._state_dir = state_dir
        self._gate = gate
        self._clock = clock
        self._redact = redact
        self._compaction = compaction
        self._sizes = ToolSizes()
        self._compared: tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...], bool] | None = None
        self._offers: dict[tuple[tuple[str, str, int], ...], tuple[ToolSpec, ...]] = {}
        self._names: dict[frozenset[str], frozenset[str]] = {}
        #: By toolsets, chosen tools, whether nobody can answer a question, whether the model is tiny.
        self._plans: dict[tuple[tuple[str, ...], tuple[str, ...] | None, bool, bool], Plan] = {}
        self._workspace = workspace
        self._prepare = prepare
        self.accept = accept
        self._project = project
        self._around = around
        self.supervisor: Supervisor | None = None
        self.control: Control | None = None

    async def build(self, task: Task) -> Agent:
        """Make the agent of a task that got its slot; its first history entries are on their way to the disk.

        Raises:
            ModelError, OperatorError, UsageError: model or environment cannot be had.
        """
        supervisor, control = self.supervisor, self.control
        if supervisor is None or control is None:
            raise RuntimeError("the builder was not bound to a supervisor")
        spec = task.spec
        model = await self._models(spec.model)
        task.model = model = model if self._around is None else self._around(task, model)
        await self._workspace(task)
        task.make_environment = self._environments
        await self._prepare(task)
        tools = self._kit(task, model)
        restored = task.history
        journal = control.journal(task)
        task.history = history = restored or History(journal)
        if restored is None:
            first = self._first(task)
            await journal.prepare(first, supervisor.hold)
            self._begin(task, history, await self._notes(task), first)
        elif task.renews or not self._same(restored.segment.tools, task.offered):
            self._renew(task, history)
        asked = _Asked(self, supervisor, task)
        return Agent(
            AgentSpec(
                scope=task.scope,
                interactive=spec.interactive,
                interruptible=task.parent is None or spec.detached,
                turn=TurnSettings(
                    model=model,
                    tools=tools,
                    guard=self._gate.guard(task, read_only=model.profile.tiny),
                    watched=asked.watched,
                    max_tokens=spec.max_tokens,
                    temperature=spec.temperature,
                    top_p=spec.top_p,
                    seed=spec.seed,
                    reasoning_effort=spec.reasoning_effort,
                    prefill=spec.prefill,
                    extra=spec.extra,
                    compaction=self._compaction,
                    restate=asked.restate,
                    tool_sizes=self._sizes,
                    pace=None if spec.interactive else supervisor.admission.in_turn,
                ),
            ),
            history=history,
            inbox=task.inbox,
            budget=task.budget,
            emit=task.emit,
            now=self._clock.now,
            rest=asked.rest,
        )

    def _kit(self, task: Task, model: Model) -> Kit:
        """The tools of a task, which is told what it is offered."""
        spec, tiny = task.spec, model.profile.tiny
        env = ToolEnv(
            scope=task.scope,
            state_dir=self._state_dir(task),
            unattended=spec.unattended,
            tiny=tiny,
        )
        toolsets = self._registry.chosen(spec.toolsets)
        key = (spec.toolsets, spec.tools, spec.unattended, tiny)
        plan = self._plans.get(key)
        if plan is not None and plan.toolsets == toolsets:
            task.offered, task.unsafe = plan.offered, plan.unsafe
            return LateKit(plan, env)
        built = self._registry.build(spec.toolsets, env)
        if spec.tools is not None:
            built = tuple(tool for tool in built if tool.name in spec.tools)
        task.offered, task.unsafe = self._specs_of(built), self._unsafe(built)
        if all(getattr(toolset, "alike", False) for toolset in toolsets):
            owners: dict[str, Toolset] = {}
            for toolset in toolsets:
                for name in toolset.tool_names:
                    owners.setdefault(name, toolset)
            if len(self._plans) >= KEPT_OFFERS:
                self._plans.clear()
            self._plans[key] = Plan(
                toolsets,
                {tool.name: owners[tool.name] for tool in built},
                offered=task.offered,
                unsafe=task.unsafe,
            )
        return Kit(built)

    def _specs_of(self, tools: Sequence[Tool]) -> tuple[ToolSpec, ...]:
        """What the model is told of `tools`: one list for all tasks that are offered the same."""
        # What the ids name is kept alive by the list.
        key = tuple(
            [(tool.name, tool.description, id(tool.parameters or parameters_of(tool.arguments))) for tool in tools]
        )
        known = self._offers.get(key)
        if known is None:
            if len(self._offers) >= KEPT_OFFERS:
                self._offers.clear()
            self._offers[key] = known = tuple(tool.spec for tool in tools)  # keeps alive what the ids name
        return known

    def _unsafe(self, tools: Sequence[Tool]) -> frozenset[str]:
        """The names of those whose calls must not be made twice: one set for all tasks that have the same."""
        names = frozenset([tool.name for tool in tools if not tool.safe_to_repeat])
        if len(self._names) >= KEPT_OFFERS:
            self._names.clear()
        return self._names.setdefault(names, names)

    async def _notes(self, task: Task) -> str:
        """What the project of the workspace says of itself. Rows of a dataset are not the work of a project."""
        root = task
        while root.parent is not None:
            root = root.parent
        tiny = task.model is not None and task.model.profile.tiny
        return "" if tiny or root.spec.kind == "row" else defused(await self._project(task))

    def _same(self, kept: tuple[ToolSpec, ...], offered: tuple[ToolSpec, ...]) -> bool:
        """Whether two lists of tools are written alike. Tasks share their lists, so a thousand compare one pair."""
        known = self._compared
        if known is None or known[0] is not kept or known[1] is not offered:
            self._compared = known = (kept, offered, encode_json(kept) == encode_json(offered))
        return known[2]

    def _first(self, task: Task) -> list[Entry]:
        """What a history begins with."""
        first: list[Entry] = [*task.spec.history]
        if task.spec.goal:
            first.append(User(content=task.spec.goal, source=task.spec.source, at=self._clock.now()))
        return first

    def _begin(self, task: Task, history: History, notes: str, first: Sequence[Entry]) -> None:
        nonce = secrets.token_hex(4)
        tiny = task.model is not None and task.model.profile.tiny
        # A tiny model's window is too dear for a paragraph it cannot follow.
        system = (
            task.spec.system
            if tiny
            else "\n\n".join(part for part in (task.spec.system, notes, steer_paragraph(nonce)) if part)
        )
        history.begin(
            Segment(
                number=0,
                start=0,
                system=system,
                nonce=nonce,
                tools=task.offered,
            ),
            first,
        )
        for position, entry in enumerate(first):
            task.emit(EntryAdded(position=position, entry=entry))

    def _renew(self, task: Task, history: History) -> None:
        """Let a history go on with the tools, or the model, that the task has now."""
        task.renews = False
        position = history.next_position
        history.renew(task.offered, self._clock.now())
        task.emit(EntryAdded(position=position, entry=history.view()[0]))


def _restate(task: Task) -> str:
    """What a compacted conversation must still know: children that have not reported yet."""
    pending = [child for child in task.children if not child.ended or child.delivery == "pending"]
    if not pending:
        return ""
    lines = "\n".join(f"- {child.id} ({child.state}): {child.scope.path[-1]}" for child in pending)
    return f"Children you started that have not reported yet:\n{lines}"
