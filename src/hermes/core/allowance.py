"""What the next model call of a task may use: enough is set aside in every budget above it before the call is made.

A call that does not fit now waits while calls of other tasks hold what it needs, and is refused once nothing more can
come free. So tasks that share a limit cannot pass it together, and none ends because others only might spend. What a
reply has to say in which form is not decided here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from hermes.core.errors import LimitKind, LimitReached
from hermes.core.limits import Budget, Reservation
from hermes.core.messages import Usage
from hermes.core.model import ModelProfile

__all__ = ["Allowance", "Grant"]

#: Tokens set aside for a reply where no cap is given: a reply of ordinary length.
RESERVED_OUTPUT = 4_096
#: A reply of fewer tokens says nothing: the call waits for more room if there is any to wait for.
LEAST_OUTPUT = 256
#: Tokens for a closing report.
REPORT_OUTPUT = 512


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may be made. `cap` is the most tokens its reply may have, None where nothing limits it. `most` is
    what counts where the provider reports no usage, None where nothing is limited."""

    reservation: Reservation
    cap: int | None
    most: Usage | None


class _Tightest(msgspec.Struct, frozen=True):
    """Tokens of output that fit, and the limit that says so."""

    output: float
    kind: LimitKind
    scope: str
    limit: float


class Allowance:
    """Grants the model calls of one task. `budget` is the task's, `profile` its model's."""

    __slots__ = ("_budget", "_profile", "_widened")

    def __init__(self, budget: Budget, profile: ModelProfile) -> None:
        self._budget = budget
        self._profile = profile
        # Reasoning counts as output: a reply cut before its first word would cost a call and bring nothing.
        self._widened = 4 if profile.thinking else 1

    def widen(self) -> None:
        """A reply was cut by a cap that nobody asked for: the next one may be twice as long."""
        self._widened *= 2

    async def grant(
        self, input_tokens: int, max_tokens: int | None, on_wait: Callable[[], None] | None = None
    ) -> Grant:
        """Set aside `input_tokens` and the reply, as soon as they fit. `on_wait` is called before it has to wait.

        Raises:
            LimitReached: they do not fit, and nothing that others hold could change that.
        """
        wanted = self._wanted(max_tokens)
        tightest = self._tightest(input_tokens, held=True)
        while tightest is not None and tightest.output < min(wanted, LEAST_OUTPUT):
            hoped = self._tightest(input_tokens, held=False)
            if hoped is None or hoped.output < 1 or hoped.output <= tightest.output:
                break
            if on_wait is not None:
                on_wait()
            await self._budget.freed()
            tightest = self._tightest(input_tokens, held=True)
        if tightest is None:
            reservation = self._budget.reserve(input_tokens + wanted, self.price(input_tokens, wanted))
            return Grant(reservation=reservation, cap=max_tokens, most=None)
        if tightest.output < 1:
            raise LimitReached(tightest.kind, tightest.scope, tightest.limit)
        cap = int(min(wanted, tightest.output))
        reservation = self._budget.reserve(input_tokens + cap, self.price(input_tokens, cap))
        return Grant(reservation=reservation, cap=cap, most=Usage(input=input_tokens, output=cap, estimated=True))

    def nearly_out(self, input_tokens: int, max_tokens: int | None) -> LimitReached | None:
        """The limit that would leave no room for a closing report after one more ordinary call, None while all do.

        Also None where not even the report fits any more.
        """
        wanted = self._wanted(max_tokens)
        after = self._tightest(2 * input_tokens + wanted + REPORT_OUTPUT, held=False)
        if after is None or after.output >= 0:
            return None
        if not self.fits(input_tokens):
            return None
        return LimitReached(after.kind, after.scope, after.limit)

    def fits(self, input_tokens: int) -> bool:
        """Whether a short reply to so many tokens still fits, were nobody else to spend."""
        now = self._tightest(input_tokens, held=False)
        return now is None or now.output >= 1

    def price(self, tokens_in: int, tokens_out: int) -> float:
        """US dollars of a call, 0 where the price is unknown."""
        profile = self._profile
        dearest = max(profile.price_input or 0.0, profile.price_cache_write or 0.0)
        return (tokens_in * dearest + tokens_out * (profile.price_output or 0.0)) / 1e6

    def priced(self, usage: Usage) -> Usage:
        """`usage` with its cost, where the provider named none and the price is known."""
        profile = self._profile
        if usage.cost_usd is not None or profile.price_input is None or profile.price_output is None:
            return usage
        cached = profile.price_cached if profile.price_cached is not None else profile.price_input
        written = profile.price_cache_write if profile.price_cache_write is not None else profile.price_input
        fresh = max(0, usage.input - usage.cached - usage.cache_write)
        prompt = fresh * profile.price_input + usage.cached * cached + usage.cache_write * written
        cost = (prompt + usage.output * profile.price_output) / 1e6
        return msgspec.structs.replace(usage, cost_usd=cost)

    def _wanted(self, max_tokens: int | None) -> int:
        return max_tokens or min(RESERVED_OUTPUT * self._widened, self._profile.max_output)

    def _tightest(self, input_tokens: int, *, held: bool) -> _Tightest | None:
        """How long a reply may be by the tightest limit of the chain; `held`: what others set aside counts as used."""
        found: _Tightest | None = None
        pays = self._profile.price_input is not None and self._profile.price_output is not None
        for budget in self._budget.capped():
            limits = budget.limits
            if limits.tokens is not None:
                used = budget.tokens if held else budget.tokens - budget.held_tokens
                left: float = limits.tokens - used - input_tokens
                if found is None or left < found.output:
                    found = _Tightest(left, "tokens", budget.scope, limits.tokens)
            if limits.cost_usd is not None and pays:
                left = self._affordable(limits.cost_usd, budget, input_tokens, held=held)
                if found is None or left < found.output:
                    found = _Tightest(left, "cost", budget.scope, limits.cost_usd)
        return found if found is not None and found.output != math.inf else None

    def _affordable(self, limit: float, budget: Budget, input_tokens: int, *, held: bool) -> float:
        money = limit - (budget.cost if held else budget.cost - budget.held_cost) - self.price(input_tokens, 0)
        price = (self._profile.price_output or 0.0) / 1e6
        if price > 0:
            # Sums of money are rounded: a last token must not pass the limit by that.
            return math.floor(money / price + 1e-6) if money > 0 else money / price - 1
        return math.inf if money >= 0 else -math.inf
