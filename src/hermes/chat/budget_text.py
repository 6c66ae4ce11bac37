"""What people read about the limits of a session, and how they change them. Counting is not done here."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from hermes.compose import Assembly
from hermes.core.errors import UsageError
from hermes.core.limits import Budget, Limits
from hermes.runtime.budgets import unknown_price
from hermes.runtime.spec import TaskSpec

__all__ = ["budget_rows", "price_note", "read_money", "with_money"]


def price_note(assembly: Assembly, spec: TaskSpec) -> str | None:
    """What has to be said where the limit that nobody asked for cannot count anything; None where it can."""
    limits, profile = spec.session, assembly.model.profile
    if limits is None or limits.cost_usd is None or limits.priced_only:
        return None
    if profile.price_input is not None and profile.price_output is not None:
        return None
    return (
        f"the price of {assembly.model.name} is unknown: the usual limit of ${limits.cost_usd:g} counts only what the "
        "provider names (set a price under `models:`, or --max-cost 0)"
    )


def read_money(text: str) -> float | None:
    """Read an amount such as `20`, `$0.5`, or `none` and 0 for no limit.

    Raises:
        UsageError: it is no amount.
    """
    word = text.strip().lower().removeprefix("$").removesuffix("usd").strip()
    if word in ("none", "unlimited", "off"):
        return None
    try:
        amount = float(word)
    except ValueError:
        amount = -1.0
    if not math.isfinite(amount) or amount < 0:
        raise UsageError(f"{text!r} is no amount of US dollars: /budget 20, /budget 0.5, /budget none")
    return amount or None


def with_money(assembly: Assembly, limits: Limits, amount: float | None) -> Limits:
    """`limits` with another limit of money.

    Raises:
        UsageError: the price of the model is unknown, so the limit could not be held.
    """
    profile = assembly.model.profile
    if amount is not None and (profile.price_input is None or profile.price_output is None):
        raise UsageError(unknown_price(assembly.model.name, amount))
    return msgspec.structs.replace(limits, cost_usd=amount, priced_only=amount is not None)


def budget_rows(limits: Limits | None, budget: Budget | None) -> Sequence[tuple[str, str]]:
    """Limit by limit, how much of it is used and held for calls under way."""
    limits = budget.limits if budget is not None else limits or Limits()
    used = budget.cost - budget.held_cost if budget is not None else 0.0
    held = f", ${budget.held_cost:.4f} held for calls under way" if budget is not None and budget.held_cost > 0 else ""
    money = f"of ${limits.cost_usd:g}" if limits.cost_usd is not None else "and no limit"
    rows = [("money", f"${max(0.0, used):.4f} {money}{held}")]
    if limits.tokens is not None:
        tokens = budget.tokens - budget.held_tokens if budget is not None else 0
        rows.append(("tokens", f"{tokens} of {limits.tokens}"))
    return rows
