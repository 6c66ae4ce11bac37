"""From what a model asked for to the specification of a child: rights, model, limits. Decides; starts nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hermes.core.errors import ToolError
from hermes.core.limits import Limits
from hermes.core.messages import Text
from hermes.core.scope import Role
from hermes.core.toolsets import ToolsetRegistry, child_toolsets
from hermes.delegation.brief import child_system, first_message
from hermes.runtime.spec import ModelChoice, TaskSpec
from hermes.runtime.task import Task

__all__ = ["ChildOrder", "DelegationPolicy", "child_spec"]

#: The floor of a child's time limit, in seconds.
MIN_TIMEOUT = 1.0
_LABEL = 55


class DelegationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says about children. Empty model fields mean: as the parent."""

    max_spawn_depth: int = 1
    orchestrator_enabled: bool = True
    max_iterations: int | None = 50
    child_timeout: float | None = None
    inactivity: float | None = None
    model: ModelChoice = ModelChoice()
    reasoning_effort: str | None = None
    default_toolsets: tuple[str, ...] | None = None


class ChildOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One child as a model asked for it, checked for shape only."""

    goal: str
    context: str = ""
    toolsets: tuple[str, ...] | None = None
    role: str = "leaf"
    model: str = ""
    provider: str = ""
    timeout: float | None = None
    max_iterations: int | None = None


def child_spec(
    order: ChildOrder, parent: Task, policy: DelegationPolicy, registry: ToolsetRegistry, *, background: bool
) -> tuple[TaskSpec, tuple[str, ...]]:
    """Return the child's specification and notes for the caller (toolsets left out, a role that was lowered).

    Raises:
        ToolError: a toolset named by the caller is not known at all.
    """
    notes: list[str] = []
    depth = parent.scope.depth + 1
    role: Role = "leaf"
    if order.role == "orchestrator":
        if policy.orchestrator_enabled and depth < policy.max_spawn_depth:
            role = "orchestrator"
        else:
            notes.append("role 'orchestrator' was lowered to 'leaf': children may not delegate at this depth")
    elif order.role != "leaf":
        notes.append(f"unknown role '{order.role}' was read as 'leaf'")
    granted = _toolsets(order.toolsets, parent, policy, registry, role, notes)
    workspace = parent.environment.cwd if parent.environment is not None else parent.scope.workspace
    tiny = parent.model is not None and parent.model.profile.tiny
    spec = TaskSpec(
        kind="async" if background else "child",
        goal=(Text(first_message(order.goal, order.context)),),
        label=" ".join(order.goal.split())[:_LABEL],
        system=child_system(
            order.goal,
            order.context,
            workspace=workspace,
            role=role,
            depth=depth,
            max_depth=policy.max_spawn_depth,
            tiny=tiny,
        ),
        role=role,
        toolsets=granted,
        ceiling=granted,
        model=_model(order, parent, policy),
        limits=_limits(order, policy),
        workspace=workspace,
        unattended=parent.spec.unattended,
        reasoning_effort=policy.reasoning_effort or parent.spec.reasoning_effort,
        temperature=parent.spec.temperature,
        max_tokens=parent.spec.max_tokens,
        prefill=parent.spec.prefill,
        extra=parent.spec.extra,
        source="goal",
    )
    return spec, tuple(notes)


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


def _model(order: ChildOrder, parent: Task, policy: DelegationPolicy) -> ModelChoice:
    """Per call, then configuration, then the parent; an address never travels with another provider's name."""
    inherited = parent.spec.model
    if order.provider:
        return ModelChoice(name=order.model or policy.model.name or inherited.name, provider=order.provider)
    configured = policy.model
    if configured.base_url or configured.provider:
        name = order.model or configured.name or inherited.name
        return ModelChoice(name=name, provider=configured.provider, base_url=configured.base_url)
    name = order.model or configured.name or inherited.name
    return ModelChoice(name=name, provider=inherited.provider, base_url=inherited.base_url)


def _limits(order: ChildOrder, policy: DelegationPolicy) -> Limits:
    timeout = order.timeout if order.timeout is not None else policy.child_timeout
    return Limits(
        turns=policy.max_iterations if order.max_iterations is None else order.max_iterations,
        clock=max(MIN_TIMEOUT, timeout) if timeout is not None else None,
        inactivity=policy.inactivity,
    )
