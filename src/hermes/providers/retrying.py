"""Asking again after failures that may pass: a wrapper of the `Model` protocol.

Before each further attempt it yields `Restarted`, so that whoever folds the deltas drops the lost ones, a view shows
the wait, and what the lost attempt cost is counted. It changes nothing in the request and knows no keys; an error that
waiting does not cure is raised at once. A request that was dropped because the machine slept is asked again without
using up an attempt, and so is what fails while its network comes back.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

import anyio
import msgspec

from hermes.core.errors import ModelError, ModelErrorReason
from hermes.core.messages import Assistant, Interrupted, Notice, Steer, Summary, ToolResult, Usage, User, plain_text
from hermes.core.model import (
    Announced,
    CallArguments,
    Delta,
    Model,
    ModelProfile,
    ModelRequest,
    Restarted,
    Stop,
    TextDelta,
    ThinkingDelta,
    UsageReport,
)
from hermes.providers.profiles import with_cost
from hermes.providers.wrapping import Wrapping

__all__ = ["Backoff", "Meter", "Retrying", "estimate_input"]

_TEXTS = frozenset((TextDelta, ThinkingDelta, CallArguments))
#: What a network that is not back yet looks like.
_OFFLINE: frozenset[ModelErrorReason] = frozenset({"unreachable", "timeout"})
#: The longest wait, in seconds, for a network that comes back.
OFFLINE_CAP = 8.0
#: Characters a token stands for, on average, where nobody counted.
CHARS_PER_TOKEN = 4


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Waits in seconds: `base · 2^(n-1)` after the n-th failure up to `cap`, plus up to half of it at random.

    For rate limits the provider's own time holds, up to `rate_limit_named_cap`, else their own base and cap; a server
    that cannot be reached has a short base.
    """

    base: float = 5.0
    cap: float = 120.0
    rate_limit_base: float = 2.0
    rate_limit_cap: float = 60.0
    rate_limit_named_cap: float = 600.0
    unreachable_base: float = 0.5

    def wait(self, error: ModelError, failures: int, jitter: float) -> float:
        """Seconds to wait after failure number `failures` (from 1); `jitter` is between 0 and 1."""
        if error.retry_after is not None:
            return min(error.retry_after, self.rate_limit_named_cap)
        base, cap = self.base, self.cap
        if error.reason == "rate_limit":
            base, cap = self.rate_limit_base, self.rate_limit_cap
        elif error.reason == "unreachable":
            base = self.unreachable_base  # a server that is not there is seldom there five seconds later
        wait = min(base * 2.0 ** (failures - 1), cap)
        return wait + wait / 2 * jitter


def estimate_input(request: ModelRequest) -> int:
    """Return about how many tokens a request has, by its characters; for replies whose usage was never reported."""
    size = len(request.system)
    for tool in request.tools:
        size += len(tool.name) + len(tool.description) + 40 * len(tool.parameters.get("properties", {}))
    for entry in request.entries:
        if isinstance(entry, (User, ToolResult)):
            size += len(plain_text(entry.content))
        elif isinstance(entry, Assistant):
            size += len(entry.text) + sum(len(call.name) + len(call.raw) for call in entry.calls)
        elif isinstance(entry, (Steer, Notice, Summary)):
            size += len(entry.text)
        elif isinstance(entry, Interrupted):
            size += len(entry.partial) + len(entry.reason)
    return size // CHARS_PER_TOKEN


class Meter:
    """Counts what an attempt brought, for the case that it is lost."""

    def __init__(self) -> None:
        self.stopped = False
        self._started = False
        self._chars = 0
        self._reported: Usage | None = None

    def note(self, delta: Delta) -> None:
        """Count one delta."""
        kind = type(delta)
        if kind in _TEXTS:
            self._chars += len(delta.text)  # type: ignore[union-attr]
        elif kind is Announced:
            return
        self._started = True
        if kind is Stop:
            self.stopped = True
        elif kind is UsageReport:
            self._reported = delta.usage  # type: ignore[union-attr]
        elif kind is Restarted:  # what was lost before is reported by it
            self.stopped, self._started, self._chars, self._reported = False, False, 0, None

    def lost(self, request: ModelRequest, profile: ModelProfile) -> Usage:
        """What the attempt cost, as far as it can be known: nothing where it brought nothing."""
        if self._reported is not None:
            return self._reported
        if not self._started:
            return Usage()
        usage = Usage(input=estimate_input(request), output=-(-self._chars // CHARS_PER_TOKEN), estimated=True)
        return with_cost(profile, usage)


class Retrying(Wrapping):
    """A `Model` that asks `inner` up to `attempts` times.

    Args:
        inner: the model asked.
        attempts: requests in all, at least 1.
        fewer: requests in all by the reason of the failure, where that is less.
        backoff: how long to wait between them.
        jitter: gives a number between 0 and 1, so that many tasks do not ask again in the same instant.
        sleep: waits; cancelled like any await.
        woke: whether the machine woke from a sleep a moment ago.
    """

    def __init__(
        self,
        inner: Model,
        attempts: int = 3,
        *,
        fewer: Mapping[str, int] = {},  # noqa: B006 - never changed
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        woke: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(inner)
        self.attempts = max(1, attempts)
        self.fewer = fewer
        self.backoff = backoff
        self.jitter = jitter
        self.sleep = sleep
        self.woke = woke

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply, over as many attempts as it takes."""
        return _RetryingStream(self, request)


class _RetryingStream:
    def __init__(self, retrying: Retrying, request: ModelRequest) -> None:
        self._retrying = retrying
        self._request = request
        self._context: AbstractAsyncContextManager[AsyncIterator[Delta]] | None = None
        self._deltas: AsyncIterator[Delta] | None = None
        self._attempt = 1
        self._offline = 0
        self._wait = 0.0
        self._meter = Meter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context, self._context = self._context, None
        if context is not None:
            await context.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        try:
            deltas = self._deltas
            delta = await (self._next() if deltas is None else deltas.__anext__())
        except ModelError as error:
            return await self._failed(error)
        self._meter.note(delta)
        return delta

    def ready(self) -> Sequence[Delta]:
        """The deltas that came with the one just given."""
        come: Sequence[Delta] = getattr(self._deltas, "ready", tuple)()
        for delta in come:
            self._meter.note(delta)
        return come

    async def _next(self) -> Delta:
        """Begin an attempt; return its first delta."""
        if self._wait:
            wait, self._wait = self._wait, 0.0
            await self._retrying.sleep(wait)
        context = self._retrying.inner.stream(self._request)
        self._deltas = await context.__aenter__()
        self._context = context
        return await self._deltas.__anext__()

    async def _failed(self, error: ModelError) -> Delta:
        """Close the attempt; return the delta that announces the next one, or raise `error`."""
        context, self._context, self._deltas = self._context, None, None
        if context is not None:
            await context.__aexit__(type(error), error, error.__traceback__)
        retrying = self._retrying
        suspended = error.reason == "suspended"
        if self._meter.stopped:
            raise error
        if suspended:
            self._wait, self._offline = 0.0, 0
        elif error.reason in _OFFLINE and retrying.woke():
            self._wait = min(retrying.backoff.unreachable_base * 2.0**self._offline, OFFLINE_CAP)
            self._offline += 1
        else:
            attempts = min(retrying.attempts, retrying.fewer.get(error.reason, retrying.attempts))
            if not error.retryable or error.permanent or self._attempt >= attempts:
                raise error
            self._wait = retrying.backoff.wait(error, self._attempt, retrying.jitter())
            self._attempt += 1
        usage, self._meter = self._meter.lost(self._request, retrying.profile), Meter()
        return Restarted(self._attempt, error.reason, self._wait, usage, str(error) if suspended else "")
