"""Which keys belong to a server, and what is known of each: the pool, the learned limits and the file brought together.

A key that was given for exactly one purpose (on the command line, in the settings) is alone: it is never exchanged for
another one. Keys of the environment, of `.env` and of `auth.json` that belong to one server are a pool.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from hermes.compose.parts import Parts
from hermes.compose.sharing import Sharing
from hermes.core.clock import held, loop_clock
from hermes.core.errors import ModelError, OperatorError, TryLater
from hermes.core.events import Envelope, TaskEnded
from hermes.credentials import Endpoint, Key, is_local
from hermes.credentials.auth_change import write_marks
from hermes.credentials.grants import limit_name
from hermes.credentials.keys import origin
from hermes.credentials.limits import LOCAL_START, START, LearnedLimit, LearnedLimits
from hermes.credentials.oauth import Ask, Login, LoginLost, renew
from hermes.credentials.pool import Cooldowns, Credential, CredentialPool, Lease
from hermes.providers.pooled import KeyLease
from hermes.providers.rate_headers import read_rate_headers
from hermes.providers.token_endpoint import ask_token
from hermes.store.owner import is_gone, living_owners

__all__ = ["KeyPools", "ServerKeys", "credential_of", "keys_of"]

#: Seconds in a key's line above which another key is looked at.
WORTH_MOVING = 1.0

_log = logging.getLogger(__name__)


def keys_of(endpoint: Endpoint, keys: Collection[Key]) -> tuple[Key, ...]:
    """The keys that may be sent to `endpoint`, in the order in which they are used; empty if its own is not among them.

    They belong to its host, and to its provider or its very address.
    """
    if not endpoint.api_key or endpoint.key_source not in {key.source for key in keys}:
        return ()
    target = origin(endpoint.base_url)
    found: dict[str, Key] = {}
    for key in keys:
        same = key.provider == endpoint.provider or key.base_url == endpoint.base_url
        if key.secret and same and origin(key.base_url) == target:
            found.setdefault(key.secret, key)
    return tuple(sorted(found.values(), key=_place)) if endpoint.api_key in found else ()


def _place(key: Key) -> int:
    """A key of a variable comes first unless it was given a place."""
    return key.entry.priority if key.entry is not None else -1


def credential_of(key: Key) -> Credential:
    """A key with what its record says of it."""
    entry = key.entry
    if entry is None:
        source = f"env:{key.variable}"
        return Credential(
            id=source, label=key.variable, secret=key.secret, provider=key.provider, source=source, priority=-1
        )
    return Credential(
        id=entry.id,
        label=entry.label,
        secret=key.secret,
        provider=entry.provider,
        source=entry.source or "manual",
        priority=entry.priority,
        rests_until=entry.rests_until,
        named=entry.named,
        reason=entry.reason,
        requests=entry.requests,
        renewable=entry.renewable,
        expires_at=entry.expires_at,
    )


class ServerKeys:
    """The keys of one server, as `Pooled` uses them."""

    def __init__(self, pools: KeyPools, provider: str, group: str, *, start: int) -> None:
        self.provider = provider
        self.several = pools.pool.size(group) > 1
        self.short = pools.cooldowns.short
        self._pools = pools
        self._group = group
        self._start = start

    def lease(self, affinity: str, avoid: Collection[str] = ()) -> Lease:
        """A key for a run."""
        return self._pools.pool.lease(self._group, affinity, avoid)

    def free(self, avoid: Collection[str]) -> bool:
        """Whether a key that is not in `avoid` could be used at once."""
        return self._pools.pool.free(self._group, avoid)

    def limit(self, lease: KeyLease, model: str) -> LearnedLimit:
        """The limit of a key with a model."""
        return self._pools.limits.of(self._group, lease.id, model, start=self._start)

    def observe(self, lease: KeyLease, model: str) -> Callable[[Mapping[str, str]], None]:
        """Takes the headers of the answers to a key."""
        limit, now = self.limit(lease, model), self._pools.now

        def note(headers: Mapping[str, str]) -> None:
            for report in read_rate_headers(headers, now()):
                limit.reported(report.kind, report.limit, report.remaining, report.reset)

        return note

    def lighter(self, lease: KeyLease, model: str, affinity: str) -> Lease | None:
        """Another key whose line is so much shorter that it is worth the provider's prompt cache."""
        mine = self.limit(lease, model).estimate()
        if mine < WORTH_MOVING:
            return None
        pool, group = self._pools.pool, self._group
        waits = {
            name: self._pools.limits.of(group, name, model, start=self._start).estimate()
            for name in pool.usable(group)
            if name != lease.id
        }
        best = min(waits, key=lambda name: waits[name], default="")
        if not best or waits[best] > mine / 2:
            return None
        return pool.lease(group, affinity, {credential.id for credential in pool.status(group)} - {best})

    def left(self, lease: KeyLease) -> None:
        """A key is left alone: whoever waits for it asks with another one."""
        self._pools.limits.evict(self._group, lease.id)

    async def keep(self) -> None:
        """Write the marks of the keys to the file; a lone key keeps none."""
        if self.several:
            await self._pools.keep(self._group)

    async def renew(self, lease: KeyLease, refused: str = "") -> None:
        """See that the key of a login is good for a while; `refused`: a key that is good no more.

        Raises:
            ModelError: the login is lost (permanent), or cannot be renewed now (to be tried again).
        """
        await self._pools.renew(self._group, lease, refused)


class KeyPools:
    """The keys of a process."""

    def __init__(self, parts: Parts, *, cooldowns: Cooldowns = Cooldowns()) -> None:  # noqa: B008 - frozen
        self.now = parts.clock.now
        self.cooldowns = cooldowns
        self.limits = LearnedLimits(now=loop_clock(), heard=self._heard)
        self._strategies = parts.loaded.settings.credential_pool_strategies
        self.pool = CredentialPool(now=self.now, strategies=self._strategies, cooldowns=cooldowns)
        self._keys = parts.keys
        self._path = parts.loaded.auth_file
        self._home = parts.loaded.home
        self._pool_home = parts.loaded.pool_home or parts.loaded.home
        self._hold = parts.hold
        self.ask_token: Ask = ask_token
        self.on_secret: Callable[[str], None] = lambda secret: None  # told each new secret, to keep it out of sight
        self._renewals: dict[str, anyio.Lock] = {}
        self._addresses: dict[str, str] = {}
        self._sharing: Sharing | None = None
        self._made: dict[str, ServerKeys] = {}
        self._alone: dict[str, list[str]] = {}
        self._trouble = ""

    def of(self, endpoint: Endpoint, *, start: int | None = None) -> ServerKeys:
        """The keys to ask `endpoint` with, the same object each time.

        `start` are requests at once before anything is learned; None: by where the server is.
        """
        keys = keys_of(endpoint, self._keys)
        group = f"{endpoint.provider} {endpoint.base_url}"
        if not keys:
            # numbered in the order in which they came up: a secret is no part of a name
            secrets = self._alone.setdefault(group, [])
            if endpoint.api_key not in secrets:
                secrets.append(endpoint.api_key)
            group = f"{group} #{secrets.index(endpoint.api_key)}"
        made = self._made.get(group)
        if made is None:
            credentials = [credential_of(key) for key in keys] or [_alone(endpoint)]
            self.pool.add(group, credentials, strategy=self._strategy_name(endpoint.provider))
            at_once = (LOCAL_START if is_local(endpoint.base_url) else START) if start is None else start
            self._addresses[group] = endpoint.base_url
            self._made[group] = made = ServerKeys(self, endpoint.provider, group, start=at_once)
        return made

    def _strategy_name(self, provider: str) -> str:
        return provider if provider in self._strategies else f"custom:{provider.removeprefix('custom:')}"

    def sharing(self, owner: str) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """What has to run beside the tasks so that limits are shared with the other processes of the home.

        `owner` is the id of this one.
        """
        home = self._home
        self._sharing = Sharing(
            self.limits,
            self._limit_name,
            path=home.run_dir / "limits.db",
            owner=owner,
            gone=partial(is_gone, home.path),
            living=partial(living_owners, home.path),
            now=self.now,
            loop_now=loop_clock(),
            hold=self._hold,
        )
        return (self._sharing.run,)

    def _heard(self, soon: bool) -> None:
        if self._sharing is not None:
            self._sharing.wake(soon=soon)

    def _limit_name(self, group: str, credential: str, model: str) -> str:
        secret = next((each.secret for each in self.pool.status(group) if each.id == credential), "")
        return limit_name(self._addresses.get(group, group), secret, model)

    async def renew(self, group: str, lease: KeyLease, refused: str) -> None:
        """See `ServerKeys.renew`. One renewal of a login at a time; whoever waited for it finds it done."""
        before = lease.secret
        async with self._renewals.setdefault(f"{group} {lease.id}", anyio.Lock()):
            if lease.secret != before or (refused and lease.secret != refused):
                return
            credential = next(each for each in self.pool.status(group) if each.id == lease.id)
            login = Login(provider=credential.provider, id=credential.id, label=credential.label)
            try:
                with held(self._hold):
                    tokens = await anyio.to_thread.run_sync(
                        partial(renew, self._path, login, self.ask_token, self.now, refused=refused)
                    )
            except LoginLost as error:
                raise ModelError(str(error), reason="auth_permanent", status=401, permanent=True) from error
            except (TryLater, OperatorError) as error:
                raise ModelError(str(error), reason="server_error", retryable=True) from error
            self.on_secret(tokens.access)
            self.pool.renewed(group, lease.id, tokens.access, tokens.expires_at)

    def note(self, envelope: Envelope) -> None:
        """A task that ended gives its keys back."""
        if isinstance(envelope.event, TaskEnded):
            self.pool.release(envelope.task_id)

    async def keep(self, group: str, *, uses: bool = False) -> None:
        """Write the marks of a server's keys. A file that cannot be written costs the marks and no request."""
        marks = self.pool.marks(group, uses=uses)
        if not marks:
            return
        try:
            await anyio.to_thread.run_sync(self._write, marks)
        except OperatorError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("what became of the keys is not kept: %s", error)

    def _write(self, marks: tuple[Credential, ...]) -> None:
        self._pool_home.prepare(self._pool_home.run_dir)
        write_marks(self._path, marks, self.now())

    async def close(self) -> None:
        """Count the uses where the least used key is wanted; nothing else is written for a run without refusals."""
        for group, made in self._made.items():
            name = self._strategy_name(made.provider)
            if made.several and self._strategies.get(name) == "least_used":
                await self.keep(group, uses=True)


def _alone(endpoint: Endpoint) -> Credential:
    return Credential(id="own", label=endpoint.key_source, secret=endpoint.api_key, source=endpoint.key_source)
