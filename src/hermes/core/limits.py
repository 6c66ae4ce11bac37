"""Budgets: may a task go on? A tree of counters in which every charge climbs to the root.

All counting is synchronous on one event loop, so a check and its increment cannot be torn apart by a sibling. `turns`
is a task's own cap; requests, tokens, cost and calls are charged to every ancestor too. Wall clock and inactivity are
watched by the supervisor. This module decides nothing about what happens at a limit; it raises `LimitReached`.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from hermes.core.errors import LimitKind, LimitReached
from hermes.core.messages import Usage

__all__ = ["Budget", "Limits", "Reservation", "Warn"]

#: Share of a limit at which the model is told to write up.
WARN_AT = 0.8


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Caps, None for none. `turns`: model calls of the task itself between two user messages. `requests`, `tokens`,
    `cost_usd`, `calls`: of the task and everything under it. `clock`, `inactivity`: seconds. `priced_only`: `cost_usd`
    was asked for by a person, so a model whose price is unknown may not start under it."""

    turns: int | None = None
    requests: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    calls: int | None = None
    clock: float | None = None
    inactivity: float | None = None
    priced_only: bool = False


class Reservation:
    """Tokens and money set aside for one model call; `settle` replaces them by what was really used."""

    __slots__ = ("_budget", "_cost", "_open", "_tokens")

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
        tokens, cost = usage.total - self._tokens, (usage.cost_usd or 0.0) - self._cost
        for budget in self._budget.chain():
            budget.tokens += tokens
            budget.cost += cost
            budget.held_tokens -= self._tokens
            budget.held_cost -= self._cost
        self._budget.root.free()


# Nearly no task is ever warned: sets of its own, empty ones too, would be a fiftieth of its memory.
_UNWARNED: frozenset[tuple[str, LimitKind]] = frozenset()
_UNTOLD: frozenset[LimitKind] = frozenset()
_UNSEEN: tuple[int, tuple[Budget, ...]] = (-1, ())

#: Called with kind, used, limit, whose limit it is, and whether nobody was told of it before.
Warn = Callable[[LimitKind, float, float, str, bool], None]


class Budget:
    """The counters of one task, or of a session, which stands above its tasks.

    `tokens` and `cost` are what was used and what is held for calls under way (`held_tokens`, `held_cost`). `warn` is
    called once for each limit of the chain that reaches 80 % while this task spends: who spends has to finish.
    """

    __slots__ = (
        "_capped",
        "_chain",
        "_changes",
        "_freed",
        "_told",
        "_warned",
        "calls",
        "cost",
        "held_cost",
        "held_tokens",
        "limits",
        "on_warning",
        "parent",
        "requests",
        "scope",
        "tokens",
        "turns",
    )

    def __init__(
        self,
        limits: Limits,
        scope: str,
        parent: Budget | None = None,
        warn: Warn | None = None,
    ) -> None:
        self.limits = limits
        self.scope = scope
        self.parent = parent
        self.turns = 0
        self.requests = 0
        self.tokens = 0
        self.cost = 0.0
        self.calls = 0
        self.held_tokens = 0
        self.held_cost = 0.0
        self.on_warning = warn
        self._warned: frozenset[tuple[str, LimitKind]] = _UNWARNED
        self._told: frozenset[LimitKind] = _UNTOLD
        self._freed: anyio.Event | None = None
        self._chain: tuple[Budget, ...] = (self, *parent.chain()) if parent is not None else (self,)
        self._changes = 0  # of limits under this root
        self._capped: tuple[int, tuple[Budget, ...]] = _UNSEEN  # after how many of these it was found

    def chain(self) -> tuple[Budget, ...]:
        """This budget and its ancestors up to the root."""
        return self._chain

    def capped(self) -> tuple[Budget, ...]:
        """The budgets of the chain that limit what is charged to all of it; mostly none."""
        changes = self._chain[-1]._changes
        if self._capped[0] != changes:
            self._capped = (changes, tuple([budget for budget in self._chain if _caps(budget.limits)]))
        return self._capped[1]

    @property
    def root(self) -> Budget:
        """The budget that everything is charged to."""
        return self._chain[-1]

    def free(self) -> None:
        """Wake whoever waits for a reservation of another task to be settled."""
        freed, self._freed = self._freed, None
        if freed is not None:
            freed.set()

    async def freed(self) -> None:
        """Wait until a reservation anywhere under this root is settled."""
        root = self.root
        if root._freed is None:
            root._freed = anyio.Event()
        await root._freed.wait()

    def limited(self) -> bool:
        """Whether tokens or money are limited anywhere in the chain."""
        for budget in self.capped():
            if budget.limits.tokens is not None or budget.limits.cost_usd is not None:
                return True
        return False

    def priced_only(self) -> float | None:
        """The money limit of the chain that a model of unknown price must not run under, None without one."""
        found = [b.limits.cost_usd for b in self._chain if b.limits.priced_only and b.limits.cost_usd is not None]
        return min(found) if found else None

    def change(self, limits: Limits) -> None:
        """Put other limits in the place of these; the marks at 80 % count anew."""
        self.limits = limits
        self._told = _UNTOLD
        self.root._changes += 1
        self.root.free()

    def recall(self, usage: Usage, *, requests: int, calls: int = 0) -> None:
        """Charge this budget and its ancestors for what was used before this process: nothing is checked."""
        for budget in self._chain:
            budget.tokens += usage.total
            budget.cost += usage.cost_usd or 0.0
            budget.requests += requests
            budget.calls += calls

    def new_exchange(self) -> None:
        """A person spoke: the cap on turns counts from here."""
        self.turns = 0
        self._warned -= {(self.scope, "turns")}
        self._told -= {"turns"}

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
            self._note(self, "turns", self.turns, limit)

    def reserve(self, tokens: int, cost: float = 0.0) -> Reservation:
        """Set aside one request with `tokens` and `cost` in the whole chain, or nothing.

        Raises:
            LimitReached: some budget of the chain has no room left at all. A request larger than the room that is left
                is admitted: `Allowance` is what keeps requests within it.
        """
        for budget in self.capped():
            limits = budget.limits
            if limits.requests is not None and budget.requests >= limits.requests:
                raise LimitReached("requests", budget.scope, limits.requests)
            if limits.tokens is not None and budget.tokens >= limits.tokens:
                raise LimitReached("tokens", budget.scope, limits.tokens)
            if limits.cost_usd is not None and budget.cost >= limits.cost_usd:
                raise LimitReached("cost", budget.scope, limits.cost_usd)
        for budget in self._chain:
            budget.requests += 1
            budget.tokens += tokens
            budget.cost += cost
            budget.held_tokens += tokens
            budget.held_cost += cost
        return Reservation(self, tokens, cost)

    def room(self) -> int | None:
        """Tokens left in the tightest budget of the chain, None without a limit."""
        left = [max(0, b.limits.tokens - b.tokens) for b in self.capped() if b.limits.tokens is not None]
        return min(left) if left else None

    def settled(self) -> None:
        """Look at the marks after a call was settled."""
        for budget in self.capped():
            limits = budget.limits
            if limits.tokens is not None:
                self._note(budget, "tokens", budget.tokens - budget.held_tokens, limits.tokens)
            if limits.cost_usd is not None:
                self._note(budget, "cost", budget.cost - budget.held_cost, limits.cost_usd)

    def take_calls(self, wanted: int) -> int:
        """Charge up to `wanted` tool calls and return how many may run; the rest must be refused."""
        granted = wanted
        capped = self.capped()
        for budget in capped:
            if budget.limits.calls is not None:
                granted = min(granted, max(0, budget.limits.calls - budget.calls))
        for budget in self._chain:
            budget.calls += granted
        for budget in capped:
            if budget.limits.calls is not None:
                self._note(budget, "calls", budget.calls, budget.limits.calls)
        return granted

    def _note(self, budget: Budget, kind: LimitKind, used: float, limit: float) -> None:
        """Warn this task once when `used` reaches 80 % of a limit of its chain."""
        mark = (budget.scope, kind)
        if used < WARN_AT * limit or (mark in self._warned and kind in budget._told):
            return
        first = kind not in budget._told
        budget._told |= {kind}
        self._warned |= {mark}
        if self.on_warning is not None:
            self.on_warning(kind, used, limit, budget.scope, first)


def _caps(limits: Limits) -> bool:
    """Whether anything is limited that is charged to a whole chain."""
    given = (limits.requests, limits.tokens, limits.cost_usd, limits.calls)
    return any(limit is not None for limit in given)
