"""One answer of a model as JSON, without a tool: for commands that let a model plan or describe something.

What it is asked and what comes of the answer is the caller's. Its cost counts where the caller says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hermes.cli.opening import parts_of
from hermes.cli.options import Sources
from hermes.compose import open_runtime
from hermes.compose.conversation import session_limits
from hermes.core.errors import OperatorError
from hermes.core.limits import Limits
from hermes.core.messages import Text
from hermes.runtime.spec import ModelChoice, TaskSpec

__all__ = ["CLOCK", "NoAnswer", "Question", "answered"]

#: Seconds and model calls that an answer may take: one that does not fit is sent back.
CLOCK, TURNS = 180.0, 3


class NoAnswer(OperatorError):
    """The model gave no answer that fits."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked. `label` names the task in lists, `source` its session, `limits` what it may spend."""

    system: str
    goal: str
    schema: Mapping[str, Any]
    label: str
    source: str
    limits: Limits = Limits()


def _less(one: float | None, other: float | None) -> float | None:
    known = [each for each in (one, other) if each is not None]
    return min(known, default=None)


def _nobody(usd: float, tokens: int) -> None:
    """What it took counts for nobody but the session."""


async def answered(
    sources: Sources, question: Question, *, refusal: str, spend: Callable[[float, int], None] = _nobody
) -> object:
    """Ask once; `spend` is told the dollars and tokens it took, whatever came of it.

    Raises:
        NoAnswer: none fits the schema; begins with `refusal`. Another OperatorError: it cannot be asked.
    """
    # Nobody follows such a task as such: what comes of it is told by who asked.
    parts = msgspec.structs.replace(parts_of(sources), observed=False)
    async with open_runtime(parts) as assembly:
        endpoint = assembly.endpoint
        session = session_limits(assembly.settings, unattended=True)
        tokens = _less(question.limits.tokens, session.tokens)
        spec = TaskSpec(
            kind="main",
            goal=(Text(question.goal),),
            label=question.label,
            system=question.system,
            model=ModelChoice(name=endpoint.model, provider=endpoint.provider, base_url=endpoint.base_url),
            limits=Limits(turns=TURNS, clock=CLOCK),
            session=msgspec.structs.replace(
                session,
                cost_usd=_less(question.limits.cost_usd, session.cost_usd),
                tokens=None if tokens is None else int(tokens),
            ),
            workspace=str(assembly.home.path),
            output_schema=question.schema,
        )
        task = await assembly.runtime.start(spec, source=question.source)
        try:
            result = await assembly.runtime.result(task)
        finally:
            usage = assembly.runtime.bus.tree.subtree_usage(task.id)
            spend(usage.cost_usd or 0.0, usage.total)
    if result.state != "completed" or not result.verdict.schema_valid:
        why = "; ".join(result.verdict.schema_errors) or result.error or result.summary[:200] or result.exit_reason
        raise NoAnswer(f"{refusal} ({why}).")
    return result.verdict.output
