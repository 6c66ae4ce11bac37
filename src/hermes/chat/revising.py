"""What the flags of a command that reopens a session change about it, for good. What was not named stays as stored."""

from __future__ import annotations

import msgspec

from hermes.chat.options import UNSET, GlobalOptions
from hermes.compose import Assembly, select_toolsets
from hermes.core.limits import Limits
from hermes.runtime.recovery import Revise
from hermes.runtime.spec import ModelChoice, TaskSpec
from hermes.runtime.task import Task

__all__ = ["model_lines", "revision"]


def revision(assembly: Assembly, options: GlobalOptions) -> Revise:
    """The change that the flags ask for; the settings of `assembly` have them in already."""
    settings = assembly.settings

    def revise(spec: TaskSpec) -> TaskSpec:
        if options.model or options.provider:
            endpoint = assembly.endpoint
            choice = ModelChoice(name=endpoint.model, provider=endpoint.provider, base_url=endpoint.base_url)
            spec = msgspec.structs.replace(spec, model=choice)
        if options.reasoning:
            spec = msgspec.structs.replace(spec, reasoning_effort=options.reasoning)
        if options.toolsets is not None:
            names = select_toolsets(settings, assembly.runtime.registry, options.toolsets).names
            spec = msgspec.structs.replace(spec, toolsets=names, ceiling=names)
        if options.max_turns != UNSET:
            limits = msgspec.structs.replace(spec.limits, turns=settings.agent.max_turns)
            spec = msgspec.structs.replace(spec, limits=limits)
        if options.max_cost is not None:
            amount = options.max_cost or None
            session = spec.session or Limits()
            session = msgspec.structs.replace(session, cost_usd=amount, priced_only=amount is not None)
            spec = msgspec.structs.replace(spec, session=session)
        return spec

    return revise


def model_lines(assembly: Assembly, before: str, task: Task) -> list[str]:
    """Which model a session goes on with, where that is not the one that a person expects; `before` had it so far."""
    now = task.spec.model.name
    if now != before:
        return [f"from here on {now} answers (so far {before})"]
    return [f"it goes on with {now} (-m MODEL changes that)"] if now != assembly.endpoint.model else []
