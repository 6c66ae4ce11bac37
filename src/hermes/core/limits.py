"""Budgets: may a task go on? A tree of counters in which every charge climbs to the root.

All counting is synchronous on one event loop, so a check and its increment cannot be torn apart by a sibling. `turns`
is a task's own cap; requests, tokens, cost and calls are charged to every ancestor too. Wall clock and inactivity are
watched by the supervisor. This module decides nothing about what happens at a limit; it raises `LimitReached`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from hermes.core.errors import LimitKind, LimitReached
from hermes.core.messages import Usage

__all__ = ["Budget", "Limits", "Reservation"]

#: Share of a limit at which the model is told to write up.
WARN_AT = 0.8


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Caps, None for none. `turns`: model calls of the task itself between two user messages. `requests`, `tokens`,
    `cost_usd`, `calls`: of the task and everything under it. `clock`, `inactivity`: seconds."""

    turns: int | None = None
    requests: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    calls: int | None = None
    clock: float | None = None
    inactivity: float | None = None


class Reservation:
    """Tokens and money set aside for one model call; `settle` replaces them by what was really used."""

    def __init__(self, budget: Budget, tokens: int, cost: float) -> None:
        self._budget = budget
        self._tokens = tokens
        self._cost = cost
        self._open = True

    def settle(self, usage: Usage) -> None:
        """Charge `usage` in place of the reservation. Repeating it changes nothing."""
        if not self._open:
            return
        self._open = False
        for budget in self._budget.chain():
            budget.tokens += usage.total - self._tokens
            budget.cost += (usage.cost_usd or 0.0) - self._cost

    def release(self) -> None:
        """Give everything back: no call was made."""
        if self._open:
            self.settle(Usage())
            for budget in self._budget.chain():
                budget.requests -= 1


class Budget:
    """The counters of one task. `warn(kind, used, limit, scope)` is called once for each limit at 80 %."""

    def __init__(
        self,
        limits: Limits,
        scope: str,
        parent: Budget | None = None,
        warn: Callable[[LimitKind, float, float, str], None] | None = None,
    ) -> None:
        self.limits = limits
        self.scope = scope
        self.parent = parent
        self.turns = 0
        self.requests = 0
        self.tokens = 0
        self.cost = 0.0
        self.calls = 0
        self.on_warning = warn
        self._warned: set[LimitKind] = set()

    def chain(self) -> Iterator[Budget]:
        """This budget and its ancestors up to the root."""
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget.parent

    def new_exchange(self) -> None:
        """A person spoke: the cap on turns counts from here."""
        self.turns = 0
        self._warned.discard("turns")

    def turn(self) -> None:
        """Charge one turn of the task itself.

        Raises:
            LimitReached: of kind `turns`; nothing was charged.
        """
        limit = self.limits.turns
        if limit is not None and self.turns >= limit:
            raise LimitReached("turns", self.scope, limit)
        self.turns += 1
        # A cap of a few turns leaves no room to act on a warning before the last one.
        if limit is not None and limit >= 5:
            self.note("turns", self.turns, limit)

    def reserve(self, tokens: int, cost: float = 0.0) -> Reservation:
        """Set aside one request with `tokens` and `cost` in the whole chain, or nothing.

        Raises:
            LimitReached: some budget of the chain has no room left at all. A request larger than the room that is left
                is admitted with what is left, since the caller sends `room()` as its cap.
        """
        for budget in self.chain():
            limits = budget.limits
            if limits.requests is not None and budget.requests >= limits.requests:
                raise LimitReached("turns", budget.scope, limits.requests)
            if limits.tokens is not None and budget.tokens >= limits.tokens:
                raise LimitReached("tokens", budget.scope, limits.tokens)
            if limits.cost_usd is not None and budget.cost >= limits.cost_usd:
                raise LimitReached("cost", budget.scope, limits.cost_usd)
        for budget in self.chain():
            budget.requests += 1
            budget.tokens += tokens
            budget.cost += cost
        return Reservation(self, tokens, cost)

    def room(self) -> int | None:
        """Tokens left in the tightest budget of the chain, None without a limit."""
        left = [max(0, b.limits.tokens - b.tokens) for b in self.chain() if b.limits.tokens is not None]
        return min(left) if left else None

    def settled(self) -> None:
        """Look at the marks after a call was settled."""
        for budget in self.chain():
            limits = budget.limits
            if limits.tokens is not None:
                budget.note("tokens", budget.tokens, limits.tokens)
            if limits.cost_usd is not None:
                budget.note("cost", budget.cost, limits.cost_usd)

    def take_calls(self, wanted: int) -> int:
        """Charge up to `wanted` tool calls and return how many may run; the rest must be refused."""
        granted = wanted
        for budget in self.chain():
            if budget.limits.calls is not None:
                granted = min(granted, max(0, budget.limits.calls - budget.calls))
        for budget in self.chain():
            budget.calls += granted
            if budget.limits.calls is not None:
                budget.note("calls", budget.calls, budget.limits.calls)
        return granted

    def note(self, kind: LimitKind, used: float, limit: float) -> None:
        """Warn once when `used` reaches 80 % of `limit`."""
        if used >= WARN_AT * limit and kind not in self._warned:
            self._warned.add(kind)
            if self.on_warning is not None:
                self.on_warning(kind, used, limit, self.scope)
