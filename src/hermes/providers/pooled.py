"""Asking with the right key at the right moment: a wrapper of the `Model` protocol between retrying and the adapter.

Each request takes two things: a key, which stays the same for the run, and a permit, which is for one request. A key
that is refused is left for another one at once, without using up an attempt; a refusal for the rate that hit only this
request while others went through is a matter of turn, and it waits for its next one. Everything else is raised as it
came. It decides neither how long keys rest nor how many requests go at once, and it never shows a key.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

import anyio

from hermes.core.errors import ModelError
from hermes.core.events import CredentialCooled, QuotaWaiting
from hermes.core.model import Announced, Delta, Model, ModelProfile, ModelRequest
from hermes.providers.rate_headers import names_tokens, read_rate_text
from hermes.providers.retrying import estimate_input

__all__ = ["KeyLease", "KeyRest", "Keys", "MakeModel", "Pooled", "RequestLimit"]

#: Seconds of waiting that are not worth telling anybody.
SILENT = 1.0
#: The longest time, in seconds, for which a request waits for a key that its provider wants left alone.
LONGEST_WAIT = 600.0
#: Refusals of one request for which it waits while others go through.
MOST_TURNS = 20

_QUOTA = re.compile(r"usage limit|quota|limit reached|limit exceeded|out of credits", re.IGNORECASE)


class KeyRest(Protocol):
    """A key that is left alone for `seconds`; `fresh` if it was not before."""

    @property
    def label(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def reason(self) -> str: ...
    @property
    def fresh(self) -> bool: ...


class KeyLease(Protocol):
    """A key for one run, with the marks for what came of it."""

    @property
    def id(self) -> str: ...
    @property
    def secret(self) -> str: ...
    @property
    def wait(self) -> float: ...
    @property
    def strikes(self) -> int: ...
    @property
    def renewable(self) -> bool: ...
    @property
    def stale(self) -> bool: ...
    def succeeded(self) -> bool: ...
    def limited(self, retry_after: float | None) -> KeyRest: ...
    def denied(self, *, dead: bool = False) -> KeyRest: ...
    def spent(self, retry_after: float | None = None) -> KeyRest: ...


class RequestLimit(Protocol):
    """Permits for the requests of one key to one model; a permit is the moment it was given."""

    @property
    def counts_tokens(self) -> bool: ...
    def try_acquire(self, tokens: float = 0.0) -> float | None: ...
    async def acquire(
        self, *, tree: str = "", foreground: bool = False, again: bool = False, tokens: float = 0.0
    ) -> float | None: ...
    def release(self, permit: float) -> None: ...
    def estimate(self) -> float: ...
    def answered(self, permit: float) -> None: ...
    def limited(self, permit: float, wait: float | None, *, tokens: float | None = None) -> None: ...
    def reported(self, kind: str, limit: float, remaining: float, reset: float) -> None: ...
    def overloaded(self, permit: float) -> None: ...
    def contended(self, permit: float) -> bool: ...


class Keys(Protocol):
    """The keys of one server. `short`: seconds up to which a key is waited for rather than left."""

    @property
    def provider(self) -> str: ...
    @property
    def short(self) -> float: ...
    @property
    def several(self) -> bool: ...
    def lease(self, affinity: str, avoid: Collection[str] = ()) -> KeyLease: ...
    def free(self, avoid: Collection[str]) -> bool: ...
    def limit(self, lease: KeyLease, model: str) -> RequestLimit: ...
    def observe(self, lease: KeyLease, model: str) -> Callable[[Mapping[str, str]], None]: ...
    def lighter(self, lease: KeyLease, model: str, affinity: str) -> KeyLease | None: ...
    def left(self, lease: KeyLease) -> None: ...
    async def keep(self) -> None: ...
    async def renew(self, lease: KeyLease, refused: str = "") -> None: ...


#: Makes the model that asks with a key; the second argument takes the headers of each answer.
MakeModel = Callable[[str, Callable[[Mapping[str, str]], None]], Model]


class Pooled:
    """A `Model` that asks with the keys of one server.

    Args:
        name: the model's name.
        profile: what is known of it.
        keys: the keys, and what was learned of their limits.
        make: makes the model that asks with one key.
        sleep: waits; cancelled like any await.
    """

    def __init__(
        self,
        name: str,
        profile: ModelProfile,
        keys: Keys,
        make: MakeModel,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.profile = profile
        self.keys = keys
        self.sleep = sleep
        self.asked_as = name
        self._make = make
        self._models: dict[str, tuple[Model, RequestLimit]] = {}
        self._latest: Model | None = None

    @property
    def name(self) -> str:
        """The name that is sent."""
        return self.asked_as if self._latest is None else self._latest.name

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Open one reply. Key and permit are taken when the first delta is asked for."""
        return _PooledStream(self, request)

    def of(self, lease: KeyLease) -> tuple[Model, RequestLimit]:
        """The model that asks with a key, made when first needed, and its limit."""
        made = self._models.get(lease.secret)
        if made is None:
            model = self._make(lease.secret, self.keys.observe(lease, self.asked_as))
            self._models[lease.secret] = made = (model, self.keys.limit(lease, self.asked_as))
        self._latest = made[0]
        return made


class _PooledStream:
    """One reply. A class and not a generator: one that is left early would be closed later, in another task."""

    def __init__(self, pooled: Pooled, request: ModelRequest) -> None:
        self._pooled = pooled
        self._request = request
        self._context: AbstractAsyncContextManager[AsyncIterator[Delta]] | None = None
        self._deltas: AsyncIterator[Delta] | None = None
        self._lease: KeyLease | None = None
        self._limit: RequestLimit | None = None
        self._permit: float | None = None
        self._avoid: set[str] = set()
        self._told: list[Delta] = []
        self._waits = False  # a wait was announced and its end was not
        self._accepted = False
        self._turns = 0
        self._tokens = 0.0
        self._secret = ""
        self._renewed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(kind, error, trace)

    async def _close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context, self._context, self._deltas = self._context, None, None
        try:
            if context is not None:
                await context.__aexit__(kind, error, trace)
        finally:
            permit, self._permit = self._permit, None
            if permit is not None and self._limit is not None:
                self._limit.release(permit)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        while True:
            if self._told:
                return self._told.pop(0)
            try:
                if self._deltas is None and not await self._open():
                    continue
                if self._deltas is None:
                    raise RuntimeError("a reply was opened and is not there")
                delta = await self._deltas.__anext__()
            except ModelError as error:
                await self._failed(error)
                continue
            if not self._accepted and self._accept():
                await self._pooled.keys.keep()
            return delta

    def ready(self) -> Sequence[Delta]:
        """The deltas that came with the one just given."""
        come: Sequence[Delta] = () if self._told else getattr(self._deltas, "ready", tuple)()
        return come

    # -- before the reply -------------------------------------------------------------------------------------------

    async def _open(self) -> bool:
        """Take key and permit and open the reply; False if something has to be told, or chosen anew, first."""
        pooled, request = self._pooled, self._request
        lease = self._lease
        if lease is None:
            self._lease = lease = pooled.keys.lease(request.affinity, self._avoid)
            if lease.wait > LONGEST_WAIT:
                raise self._all_rest(lease.wait)
            if lease.wait > SILENT:
                self._tell_wait(lease.wait)
                return False
        if lease.wait > 0:
            self._lease = None  # whatever happens meanwhile, the choice is made again
            await pooled.sleep(max(lease.wait, 0.001))  # less may be nothing on a clock of large numbers
            return False
        if lease.stale and not await self._made_good(lease):
            return False
        model, limit = pooled.of(lease)
        self._secret = lease.secret
        self._tokens = tokens = float(estimate_input(request)) if limit.counts_tokens else 0.0
        permit = None if self._turns else limit.try_acquire(tokens)
        if permit is None:
            other = pooled.keys.lighter(lease, pooled.asked_as, request.affinity) if pooled.keys.several else None
            if other is not None and not self._turns:
                self._lease = other
                return False
            if not self._waits and (wait := limit.estimate()) >= SILENT:
                self._tell_wait(wait)
                return False
            permit = await limit.acquire(
                tree=request.tree, foreground=request.watched, again=self._turns > 0, tokens=tokens
            )
        if permit is None:  # the key went away meanwhile
            self._lease = None
            return False
        self._limit, self._permit = limit, permit
        context = model.stream(request)
        self._deltas = await context.__aenter__()
        self._context = context
        if self._waits:
            self._waits = False
            self._told.append(Announced(QuotaWaiting(seconds=0.0, provider=pooled.keys.provider)))
            return False
        return True

    async def _made_good(self, lease: KeyLease) -> bool:
        """Renew a key that runs out; False if its login is lost and another key is asked instead."""
        keys = self._pooled.keys
        try:
            await keys.renew(lease)
        except ModelError as error:
            if not error.permanent:
                raise
            lease.denied(dead=True)
            if not keys.free(self._avoid | {lease.id}):
                raise
            self._avoid.add(lease.id)
            self._lease = None
            return False
        return True

    def _tell_wait(self, seconds: float) -> None:
        self._waits = True
        self._told.append(Announced(QuotaWaiting(seconds=round(seconds, 1), provider=self._pooled.keys.provider)))

    def _all_rest(self, wait: float) -> ModelError:
        provider = self._pooled.keys.provider
        return ModelError(
            f"every key of {provider} has to be left alone, the first one for {wait:.0f} s more. Wait, add a key "
            "(`hermes auth add`), or name another model in fallback_providers.",
            reason="rate_limit",
            status=429,
            retry_after=wait,
        )

    def _accept(self) -> bool:
        """Note that the provider takes the request; returns whether the file has to know."""
        self._accepted = True
        if self._lease is not None and self._limit is not None and self._permit is not None:
            self._limit.answered(self._permit)
            return self._lease.succeeded()
        return False

    # -- after a failure --------------------------------------------------------------------------------------------

    async def _failed(self, error: ModelError) -> None:
        """Mark the key that was used; return if the request is to be asked again, else raise."""
        lease, limit, permit = self._lease, self._limit, self._permit
        await self._close(type(error), error, error.__traceback__)
        if lease is None or limit is None or permit is None:
            raise error
        if error.status == 401 and lease.renewable and not self._renewed and not self._accepted:
            self._renewed = True
            try:
                await self._pooled.keys.renew(lease, self._secret)
                return
            except ModelError as lost:
                error = lost
        rest = self._mark(error, lease, limit, permit)
        if rest is None:
            raise error
        keys = self._pooled.keys
        leaves = self._leaves(error, lease)
        if leaves and keys.free({lease.id}):
            keys.left(lease)
        await keys.keep()
        if rest.fresh and keys.several and (leaves or rest.seconds > keys.short):
            self._told.append(
                Announced(
                    CredentialCooled(
                        provider=keys.provider, label=rest.label, seconds=round(rest.seconds, 1), reason=rest.reason
                    )
                )
            )
        moves = leaves and keys.free(self._avoid | {lease.id})
        if self._accepted:  # part of a reply came: whoever folds it has to be told, which the retries do
            error.retry_after = 0.0 if moves and error.retryable else error.retry_after
            raise error
        if moves:
            self._avoid.add(lease.id)
            self._lease = self._permit = None
            return
        if error.reason == "rate_limit" and limit.contended(permit) and self._turns < MOST_TURNS:
            self._turns += 1
            self._lease = None
            return
        raise error

    def _mark(self, error: ModelError, lease: KeyLease, limit: RequestLimit, permit: float) -> KeyRest | None:
        """Mark the key, and what is learned of its limits; None for a failure that says nothing of the key."""
        if error.reason == "rate_limit":
            self._limited(error, limit, permit)
            return lease.limited(error.retry_after)
        if error.reason == "overloaded":
            limit.overloaded(permit)
        elif error.reason == "billing":
            return lease.spent(error.retry_after)
        elif error.reason == "auth_permanent":
            return lease.denied(dead=True)
        elif error.reason == "auth" and error.status != 403:  # 403: the key is known, what was asked for is not its
            return lease.denied()
        return None

    def _limited(self, error: ModelError, limit: RequestLimit, permit: float) -> None:
        """Tell the limit what was too much, the requests or their tokens, and what the provider said of it."""
        said = str(error)
        tokens = float(self._tokens or estimate_input(self._request)) if names_tokens(said) else None
        limit.limited(permit, error.retry_after, tokens=tokens)
        report = read_rate_text(said)
        if report is not None:
            limit.reported(report.kind, report.limit, report.remaining, report.reset)

    def _leaves(self, error: ModelError, lease: KeyLease) -> bool:
        """Whether another key is asked: not for a short pause of a key that otherwise works."""
        if error.reason != "rate_limit":
            return True
        wait = error.retry_after
        return wait is None or wait > self._pooled.keys.short or lease.strikes > 1 or bool(_QUOTA.search(str(error)))
