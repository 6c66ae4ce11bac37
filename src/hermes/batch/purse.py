"""May another row start? What a run has used, what its rows under way still will, and the limits it was given.

What is used is read from the budget above all rollouts, in which every call is set aside before it is made. The rest of
a row is forecast by the mean of those that ended, so that rows under way come to their end within the limit; none is
cut off by it. Decides about rows, never about calls.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes.batch.record import Head, Used
from hermes.batch.summary import StopCause

__all__ = ["Purse"]

#: What sums of prices may be off by.
ROUNDING = 1 + 1e-9


class Purse:
    """Holds a run to `max_tokens` and `max_cost` (US dollars), None for no limit. `earlier` is what sessions before
    this one used, `spent` gives tokens and dollars of this process with what is set aside."""

    def __init__(
        self, max_tokens: int | None, max_cost: float | None, earlier: Used, spent: Callable[[], tuple[int, float]]
    ) -> None:
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._earlier = earlier
        self._spent = spent
        self.used = earlier

    def settle(self, head: Head) -> None:
        """A rollout has ended."""
        self.used = self.used.plus(head)

    def refusal(self, running: int) -> StopCause | None:
        """Why no row may start while `running` are under way (its remedy is the flag to go on with); None if one
        may."""
        if self._max_tokens is None and self._max_cost is None:
            return None
        tokens, cost = self._spent()
        used, earlier = self.used, self._earlier
        return _over(
            "max_total_tokens", self._max_tokens, "{:,.0f} tokens", earlier.tokens, used.tokens, tokens, used, running
        ) or _over("max_cost", self._max_cost, "${:.4g}", earlier.cost_usd, used.cost_usd, cost, used, running)


def _over(
    flag: str, limit: float | None, unit: str, earlier: float, ended: float, spent: float, used: Used, running: int
) -> StopCause | None:
    """What to say where one of the limits leaves no room for a row more."""
    if limit is None:
        return None
    mean = ended / max(used.rollouts, 1)
    total = max(earlier + spent, ended)
    under_way = max(0.0, running * mean - (total - ended))
    if total < limit and total + under_way + mean <= limit * ROUNDING:
        return None
    more = f", another row takes about {unit.format(mean)}" if mean else ""
    message = (
        f"stopped at --{flag}={limit:g}: {unit.format(total)} are used or set aside{more}. Rows under way came to "
        "their end; the rest stays pending."
    )
    return StopCause(kind="budget", message=message, exit_code=75, remedy=f"--{flag}={2 * limit:g}")
