"""Another model answers where the configured one cannot: a wrapper of the `Model` protocol, outermost of all.

It holds for one request: the next one starts with the configured model again. What another model cannot cure either (a
request that is too long, content that is refused) is raised as it came. Which models stand in, and with which keys, is
decided by whoever makes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from hermes.core.errors import HermesError, ModelError, ModelErrorReason
from hermes.core.events import FallbackUsed
from hermes.core.model import Announced, Delta, Model, ModelProfile, ModelRequest, Restarted
from hermes.providers.retrying import Meter

__all__ = ["FEWER_ATTEMPTS", "Fallback"]

#: Failures that no other model cures.
_KEPT: frozenset[ModelErrorReason] = frozenset({"context_overflow", "payload_too_large", "content_policy_blocked"})

#: Attempts in all at a model that is not the last one: a broken connection is not waited for as long.
FEWER_ATTEMPTS = {"timeout": 2, "unreachable": 2, "overloaded": 2}


class Fallback:
    """A `Model` that asks `first`, and where that fails for good the others in their order.

    Args:
        first: the configured model; name and profile are its.
        others: make the models that stand in, when they are needed. One that cannot be made is passed over.
    """

    def __init__(self, first: Model, others: Sequence[Callable[[], Model]]) -> None:
        self.first = first
        self.others = tuple(others)

    @property
    def name(self) -> str:
        """The name of the configured model."""
        return self.first.name

    @property
    def profile(self) -> ModelProfile:
        """The profile of the configured model."""
        return self.first.profile

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply, by the first model that can give it."""
        return _FallbackStream(self, request)


class _FallbackStream:
    def __init__(self, fallback: Fallback, request: ModelRequest) -> None:
        self._request = request
        self._model = fallback.first
        self._left = deque(fallback.others)
        self._context: AbstractAsyncContextManager[AsyncIterator[Delta]] | None = None
        self._deltas: AsyncIterator[Delta] | None = None
        self._told: deque[Delta] = deque()
        self._meter = Meter()
        self._attempt = 1

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context, self._context, self._deltas = self._context, None, None
        if context is not None:
            await context.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        if self._told:
            return self._told.popleft()
        try:
            if self._deltas is None:
                context = self._model.stream(self._request)
                self._deltas = await context.__aenter__()
                self._context = context
            delta = await self._deltas.__anext__()
        except ModelError as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            if error.reason in _KEPT or self._meter.stopped or not self._next(error):
                raise
            return self._told.popleft()
        self._meter.note(delta)
        if isinstance(delta, Restarted):
            self._attempt = delta.attempt
        return delta

    def _next(self, error: ModelError) -> bool:
        """Go to the next model that can be had, and say so; False if there is none."""
        while self._left:
            make = self._left.popleft()
            try:
                model = make()
            except HermesError as reason:
                error.add_note(f"no fallback: {reason}")
                continue
            usage, self._meter = self._meter.lost(self._request, self._model.profile), Meter()
            self._attempt += 1
            self._model = model
            self._told.append(Announced(FallbackUsed(model=model.name, reason=error.reason)))
            self._told.append(Restarted(self._attempt, f"{error.reason}: {model.name} answers instead", 0.0, usage))
            return True
        return False
