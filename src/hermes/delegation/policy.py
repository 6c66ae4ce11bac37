"""From what a model asked for to the specification of a child: rights, model, limits. Decides; starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hermes.core.errors import ToolError
from hermes.core.limits import Limits
from hermes.core.messages import Text, opening
from hermes.core.scope import Role
from hermes.core.toolsets import COMPOSITES, DELEGATION_TOOLSETS, KNOWN_TOOLSETS, ToolsetRegistry, child_toolsets
from hermes.delegation.agent_types import AgentType
from hermes.delegation.brief import child_system, first_message
from hermes.delegation.routing import Chosen, Routing
from hermes.delegation.structured import schema_text
from hermes.runtime.isolation import Isolation, WorkspaceMode
from hermes.runtime.spec import TaskSpec
from hermes.runtime.task import Task

__all__ = ["ChildOrder", "DelegationPolicy", "Site", "child_spec", "folder_of", "typed_spec", "workspace_mode"]

#: The floor of a child's time limit, in seconds.
MIN_TIMEOUT = 1.0
_LABEL = 55


class DelegationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says about children. `routing` chooses models."""

    max_spawn_depth: int = 1
    orchestrator_enabled: bool = True
    max_iterations: int | None = 50
    child_timeout: float | None = None
    inactivity: float | None = None
    routing: Routing = Routing()
    default_toolsets: tuple[str, ...] | None = None
    workspace: WorkspaceMode = "shared"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where a child will work, and how that is its own (None: shared)."""

    workspace: str
    isolation: Isolation | None = None


class ChildOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One child as a model asked for it, checked for shape only."""

    goal: str
    context: str = ""
    toolsets: tuple[str, ...] | None = None
    role: str = ""
    agent: str = ""
    model: str = ""
    route: str = ""
    provider: str = ""
    timeout: float | None = None
    max_iterations: int | None = None
    max_tokens_total: int | None = None
    max_cost: float | None = None
    output_schema: Mapping[str, Any] | None = None
    check: str = ""
    workspace: WorkspaceMode | None = None


def folder_of(parent: Task) -> str:
    """The directory that a child of this task stands for: where its terminal is, if that is a directory of this
    machine that the task itself may use."""
    opened, own = parent.opened, parent.scope.workspace
    if opened is None:
        return own
    inside = opened.cwd == own or opened.cwd.startswith(own.rstrip("/") + "/")
    return opened.cwd if inside or opened.kind == "local" else own


def workspace_mode(order: ChildOrder, agent: AgentType | None, policy: DelegationPolicy) -> WorkspaceMode:
    """Per call, then agent type, then configuration."""
    return order.workspace or (agent.workspace if agent is not None else None) or policy.workspace


def child_spec(
    order: ChildOrder,
    parent: Task,
    policy: DelegationPolicy,
    registry: ToolsetRegistry,
    *,
    background: bool,
    agent: AgentType | None = None,
    site: Site | None = None,
) -> tuple[TaskSpec, tuple[str, ...]]:
    """Return the child's specification and notes for the caller (toolsets left out, a role that was lowered). `site`
    is where it works, None for where its parent does.

    What the call says wins over its agent type, which wins over the configuration; rights are only ever narrowed.

    Raises:
        ToolError: a toolset, route or model that is not known, a check that the parent could not run itself.
    """
    notes: list[str] = []
    order = _allowed(_typed(order, agent), parent)
    role = _role(order, policy, parent.scope.depth + 1, notes)
    granted = _toolsets(order.toolsets, parent, policy, registry, role, notes)
    chosen = _model(order, parent, policy, agent)
    notes.extend(chosen.notes)
    site = site or Site(workspace=folder_of(parent))
    tiny = chosen.choice == parent.spec.model and parent.model is not None and parent.model.profile.tiny
    spec = TaskSpec(
        kind="async" if background else "child",
        goal=(Text(first_message(order.goal, order.context)),),
        label=opening(order.goal, _LABEL),
        system=_system(order, site, agent, role, parent, policy, tiny=tiny),
        role=role,
        toolsets=granted,
        ceiling=granted,
        tools=_tools(parent, agent, role),
        model=chosen.choice,
        limits=_limits(order, policy),
        workspace=site.workspace,
        environment=parent.spec.environment,
        image=parent.spec.image,
        isolation=site.isolation,
        unattended=parent.spec.unattended,
        reasoning_effort=chosen.effort or parent.spec.reasoning_effort,
        temperature=parent.spec.temperature,
        top_p=parent.spec.top_p,
        seed=parent.spec.seed,
        max_tokens=parent.spec.max_tokens,
        prefill=parent.spec.prefill,
        extra={**({} if chosen.elsewhere else parent.spec.extra), **chosen.extra},
        source="goal",
        agent=agent.name if agent is not None else "",
        output_schema=order.output_schema,
        check=order.check,
    )
    return spec, tuple(notes)


def _system(
    order: ChildOrder,
    site: Site,
    agent: AgentType | None,
    role: Role,
    parent: Task,
    policy: DelegationPolicy,
    *,
    tiny: bool,
) -> str:
    return child_system(
        order.goal,
        order.context,
        workspace=site.workspace,
        role=role,
        depth=parent.scope.depth + 1,
        max_depth=policy.max_spawn_depth,
        tiny=tiny,
        prompt=agent.prompt if agent is not None else "",
        schema=schema_text(order.output_schema) if order.output_schema is not None else "",
        check=order.check,
        isolation=site.isolation,
    )


def typed_spec(
    spec: TaskSpec,
    agent: AgentType | None,
    routing: Routing,
    *,
    route: str = "",
    named: bool = False,
    given: bool = False,
) -> TaskSpec:
    """A task without a parent as an agent type and a route would have it. `named` says that its model, `given` that its
    toolsets were asked for: these stay.

    Raises:
        ToolError: there is no such route.
    """
    asks = agent is not None and not named and bool(agent.model or agent.provider)
    if route or asks:
        chosen = routing.choose(
            spec.model,
            route=route,
            provider=agent.provider if agent is not None and not route else "",
            agent_model=agent.model if agent is not None and not route else "",
        )
        extra = {**({} if chosen.elsewhere else spec.extra), **chosen.extra}
        effort = chosen.effort or spec.reasoning_effort
        spec = msgspec.structs.replace(spec, model=chosen.choice, reasoning_effort=effort, extra=extra)
    if agent is None:
        return spec
    limits = {"clock": agent.timeout, "turns": agent.max_iterations}
    kept = {name: value for name, value in limits.items() if value is not None}
    toolsets = spec.toolsets
    if agent.toolsets is not None and not given:
        toolsets = tuple(name for name in spec.toolsets if name in agent.toolsets)
    return msgspec.structs.replace(
        spec,
        agent=agent.name,
        system="\n\n".join(part for part in (spec.system, agent.prompt) if part),
        tools=agent.tools,
        toolsets=toolsets,
        ceiling=tuple(name for name in spec.ceiling if name in toolsets),
        limits=msgspec.structs.replace(spec.limits, **kept),
    )


def _model(order: ChildOrder, parent: Task, policy: DelegationPolicy, agent: AgentType | None) -> Chosen:
    """Per call, then agent type, then configuration, then the parent."""
    silent = not (order.model or order.route or order.provider)
    return policy.routing.choose(
        parent.spec.model,
        model=order.model,
        route=order.route,
        provider=agent.provider if silent and agent is not None else order.provider,
        agent_model=agent.model if agent is not None else "",
    )


def _typed(order: ChildOrder, agent: AgentType | None) -> ChildOrder:
    """The order with what its agent type adds where it is silent; toolsets are those that both name."""
    if agent is None:
        return order
    toolsets = agent.toolsets if order.toolsets is None else order.toolsets
    if order.toolsets is not None and agent.toolsets is not None:
        named = {part for name in order.toolsets for part in COMPOSITES.get(name, (name,))}
        everything = not named.isdisjoint(("all", "*"))
        toolsets = tuple(name for name in agent.toolsets if everything or name in named)
    return msgspec.structs.replace(
        order,
        toolsets=toolsets,
        role=order.role or agent.role,
        timeout=agent.timeout if order.timeout is None else order.timeout,
        max_iterations=agent.max_iterations if order.max_iterations is None else order.max_iterations,
    )


def _allowed(order: ChildOrder, parent: Task) -> ChildOrder:
    """The order, unless it would let the parent do what it cannot do itself."""
    without = "terminal" not in parent.spec.ceiling or "terminal" not in (parent.spec.tools or ("terminal",))
    if order.check and without:
        raise ToolError("check runs a command, and you have no terminal to give. Leave it out.")
    return order


def _role(order: ChildOrder, policy: DelegationPolicy, depth: int, notes: list[str]) -> Role:
    if order.role == "orchestrator":
        if policy.orchestrator_enabled and depth < policy.max_spawn_depth:
            return "orchestrator"
        notes.append("role 'orchestrator' was lowered to 'leaf': children may not delegate at this depth")
    elif order.role not in ("", "leaf"):
        notes.append(f"unknown role '{order.role}' was read as 'leaf'")
    return "leaf"


def _tools(parent: Task, agent: AgentType | None, role: Role) -> tuple[str, ...] | None:
    """The only tools a child keeps, None for all of its toolsets: within those of its parent."""
    own = agent.tools if agent is not None else None
    given = parent.spec.tools
    if own is None or given is None:
        kept = own if given is None else given
    else:
        kept = tuple(name for name in own if name in given)
    if kept is None or role == "leaf":
        return kept
    delegating = [tool for info in KNOWN_TOOLSETS if info.name in DELEGATION_TOOLSETS for tool in info.tools]
    return tuple(dict.fromkeys((*kept, *delegating)))


def _toolsets(
    requested: Sequence[str] | None,
    parent: Task,
    policy: DelegationPolicy,
    registry: ToolsetRegistry,
    role: Role,
    notes: list[str],
) -> tuple[str, ...]:
    """The child's toolsets: what was asked, within what the parent may give and the configured ceiling."""
    if requested is not None:
        selection = registry.expand(requested)
        notes.extend(selection.notes)
        unknown = [note for note in selection.notes if note.startswith("unknown")]
        if unknown and not selection.names:
            raise ToolError(f"{unknown[0]}.")
        requested = selection.names
    ceiling = parent.spec.ceiling
    if policy.default_toolsets is not None:
        ceiling = tuple(name for name in ceiling if name in policy.default_toolsets)
    granted, refused = child_toolsets(requested, ceiling, orchestrator=role == "orchestrator")
    notes.extend(f"toolset '{name}' was not given: a child has at most what its parent may give" for name in refused)
    return tuple(name for name in granted if name in registry.names)


def _limits(order: ChildOrder, policy: DelegationPolicy) -> Limits:
    timeout = order.timeout if order.timeout is not None else policy.child_timeout
    return Limits(
        turns=policy.max_iterations if order.max_iterations is None else order.max_iterations,
        clock=max(MIN_TIMEOUT, timeout) if timeout is not None else None,
        inactivity=policy.inactivity,
        tokens=order.max_tokens_total,
        cost_usd=order.max_cost,
        priced_only=order.max_cost is not None,
    )
