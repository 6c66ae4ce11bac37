"""What a conversation is, by the settings: its toolsets, limits, model and system text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hermes.compose.parts import Assembly
from hermes.config import Settings
from hermes.core.limits import Limits
from hermes.core.messages import Text
from hermes.core.scope import TaskKind
from hermes.core.toolsets import Selection, ToolsetRegistry, configured_toolsets
from hermes.runtime.isolation import WorkspaceMode
from hermes.runtime.prompt import conversation_system
from hermes.runtime.spec import ModelChoice, TaskSpec

__all__ = ["UNATTENDED_USD", "conversation_spec", "isolated_spec", "select_toolsets", "session_limits"]

#: US dollars for a single request and everything under it, unless something else is set.
UNATTENDED_USD = 5.0


def select_toolsets(settings: Settings, registry: ToolsetRegistry, named: Sequence[str] | None = None) -> Selection:
    """The toolsets that are on: `named` stand for themselves, None takes the configured ones. Disabled ones are off
    however they were named."""
    disabled = settings.agent.disabled_toolsets
    names = (
        tuple(named)
        if named is not None
        else configured_toolsets(settings.platform_toolsets.get("cli"), settings.toolsets, disabled)
    )
    selection = registry.expand(names)
    return Selection(tuple(name for name in selection.names if name not in disabled), selection.notes)


def session_limits(settings: Settings, *, unattended: bool) -> Limits:
    """What a session may spend. Where nothing is said, one that nobody watches stops at `UNATTENDED_USD`."""
    budget = settings.budget
    asked = budget.session_usd is not None
    money = budget.session_usd if asked else UNATTENDED_USD if unattended else None
    return Limits(tokens=budget.session_tokens or None, cost_usd=money or None, priced_only=bool(asked and money))


def conversation_spec(
    assembly: Assembly,
    *,
    goal: str = "",
    interactive: bool,
    workspace: str,
    toolsets: Sequence[str] | None = None,
    unattended: bool = True,
    extra_system: str = "",
) -> tuple[TaskSpec, tuple[str, ...]]:
    """The specification of a conversation as configured, and notes about toolsets that were left out.

    `toolsets` stand for themselves; None takes the configured ones.
    """
    settings = assembly.settings
    selection = select_toolsets(settings, assembly.runtime.registry, toolsets)
    chosen = selection.names
    if unattended and toolsets is None:  # nobody would answer
        chosen = tuple(name for name in chosen if name != "clarify")
    tiny = assembly.model.profile.tiny
    spec = TaskSpec(
        kind="main",
        goal=(Text(goal),) if goal else (),
        system=extra_system
        if tiny
        else conversation_system(
            chosen, workspace=workspace, finite=not interactive, persona=assembly.persona, extra=extra_system
        ),
        role="orchestrator",
        toolsets=chosen,
        ceiling=chosen,
        model=ModelChoice(
            name=assembly.endpoint.model, provider=assembly.endpoint.provider, base_url=assembly.endpoint.base_url
        ),
        limits=Limits(
            turns=settings.agent.max_turns,
            clock=None if interactive else settings.agent.run_budget_seconds,
        ),
        session=session_limits(settings, unattended=not interactive),
        workspace=workspace,
        interactive=interactive,
        unattended=unattended,
        reasoning_effort=settings.agent.reasoning_effort or None,
    )
    return spec, selection.notes


async def isolated_spec(
    assembly: Assembly, mode: WorkspaceMode, *, workspace: str, kind: TaskKind = "main", **options: Any
) -> tuple[TaskSpec, tuple[str, ...]]:
    """As `conversation_spec`, for a task with a workspace of its own that stands for `workspace`.

    Raises:
        OperatorError: it cannot be had.
    """
    task_id = assembly.runtime.supervisor.new_id(kind)
    place, isolation, remarks = await assembly.workspaces.plan(mode, workspace, task_id)
    spec, notes = conversation_spec(assembly, workspace=place, **options)
    return msgspec.structs.replace(spec, kind=kind, isolation=isolation), (*notes, *remarks)
