"""Keeping what a model answered, and answering with what was kept: two wrappers of the `Model` protocol.

What came of a reply is kept as a whole, in as few deltas as say the same; a lost attempt leaves its cost alone. Where
replies are kept, for whom, and in which order they are given again is decided by whoever makes these.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

import anyio
import msgspec

from hermes.core.errors import ModelError, ModelErrorReason
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
)
from hermes.providers.wrapping import Wrapping

__all__ = ["Failure", "KeptReply", "Recorded", "Replayed"]


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `ModelError` as data."""

    message: str
    reason: ModelErrorReason = "unknown"
    status: int | None = None
    retry_after: float | None = None
    permanent: bool = False

    @classmethod
    def of(cls, error: ModelError) -> Failure:
        """What there is to keep of an error."""
        return cls(
            message=str(error),
            reason=error.reason,
            status=error.status,
            retry_after=error.retry_after,
            permanent=error.permanent,
        )

    def error(self) -> ModelError:
        """The error again."""
        return ModelError(
            self.message,
            reason=self.reason,
            status=self.status,
            retry_after=self.retry_after,
            permanent=self.permanent,
        )


class KeptReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one request. With a `failure` it broke after its deltas; `cut`: whoever asked left earlier."""

    deltas: tuple[Delta, ...] = ()
    failure: Failure | None = None
    cut: bool = False


#: Called when a request is made; what it returns is called once with what came of it.
Keep = Callable[[ModelRequest], Callable[[KeptReply], None]]


class Recorded(Wrapping):
    """A `Model` that answers as `inner` does and hands every reply to `keep`."""

    def __init__(self, inner: Model, keep: Keep) -> None:
        super().__init__(inner)
        self._keep = keep

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply of the model within."""
        return _RecordedStream(self.inner, request, self._keep)


class _RecordedStream:
    def __init__(self, inner: Model, request: ModelRequest, keep: Keep) -> None:
        self._context = inner.stream(request)
        self._request = request
        self._keep = keep
        self._kept: Callable[[KeptReply], None] | None = None
        self._deltas: AsyncIterator[Delta] | None = None
        self._ready: Callable[[], Sequence[Delta]] = tuple
        self._came: list[Delta] = []

    async def __aenter__(self) -> Self:
        self._kept = self._keep(self._request)
        try:
            self._deltas = await self._context.__aenter__()
        except BaseException as error:
            self._end(error)
            raise
        self._ready = getattr(self._deltas, "ready", tuple)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._context.__aexit__(kind, error, trace)
        finally:
            self._end(error, cut=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        assert self._deltas is not None  # entered
        try:
            delta = await self._deltas.__anext__()
        except ModelError as error:
            self._end(error)
            raise
        self._note(delta)
        return delta

    def ready(self) -> Sequence[Delta]:
        """The deltas that have come already."""
        deltas = self._ready()
        for delta in deltas:
            self._note(delta)
        return deltas

    def _note(self, delta: Delta) -> None:
        came = self._came
        if isinstance(delta, Announced):
            return  # no part of the reply
        if isinstance(delta, Restarted):
            lost = [old for old in came if isinstance(old, Restarted)]
            came[:] = [*lost, msgspec.structs.replace(delta, wait=0.0)]
            return
        joined = _joined(came[-1], delta) if came else None
        if joined is not None:
            came[-1] = joined
        else:
            came.append(delta)
        if isinstance(delta, Stop):
            self._end(None)

    def _end(self, error: BaseException | None, *, cut: bool = False) -> None:
        kept, self._kept = self._kept, None
        if kept is None:
            return
        failure = Failure.of(error) if isinstance(error, ModelError) else None
        left = failure is None and (cut or error is not None)
        kept(KeptReply(deltas=tuple(self._came), failure=failure, cut=left))


def _joined(old: Delta, new: Delta) -> Delta | None:
    """Two deltas as one, None where they are of different things."""
    if isinstance(old, TextDelta) and isinstance(new, TextDelta):
        return TextDelta(old.text + new.text)
    if isinstance(old, ThinkingDelta) and isinstance(new, ThinkingDelta):
        return ThinkingDelta(old.text + new.text)
    if isinstance(old, CallArguments) and isinstance(new, CallArguments) and old.index == new.index:
        return CallArguments(old.index, old.text + new.text)
    return None


class Replayed:
    """A `Model` that answers each request with what `take` returns for it; a reply that was cut stays open."""

    def __init__(self, name: str, profile: ModelProfile, take: Callable[[ModelRequest], Awaitable[KeptReply]]) -> None:
        self.name = name
        self.profile = profile
        self._take = take

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one kept reply. Raises what `take` raises, which has to be a `ModelError`."""
        return _ReplayedStream(self._take, request)


class _ReplayedStream:
    def __init__(self, take: Callable[[ModelRequest], Awaitable[KeptReply]], request: ModelRequest) -> None:
        self._take = take
        self._request = request
        self._reply: KeptReply | None = None
        self._place = 0

    async def __aenter__(self) -> Self:
        self._reply = await self._take(self._request)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        reply = self._reply
        assert reply is not None  # entered
        if self._place < len(reply.deltas):
            self._place += 1
            return reply.deltas[self._place - 1]
        if reply.failure is not None:
            raise reply.failure.error()
        if reply.cut:
            await anyio.sleep_forever()
        raise StopAsyncIteration
