"""Several keys of one provider: which one a task asks with, and which ones are left alone for a while, and why.

A task keeps its key for its run, so that the provider's prompt cache stays warm. A mark goes to the key that made the
failing request, not to whichever is in use by now. Which key belongs to which server was decided before: the pool never
hands a key to another provider. It sends nothing and writes no file; `marks` brings what a file may keep.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

import msgspec

__all__ = ["STRATEGIES", "Cooldowns", "Credential", "CredentialPool", "Lease", "Rest"]

Strategy = Literal["fill_first", "round_robin", "least_used", "random"]
STRATEGIES: tuple[Strategy, ...] = ("fill_first", "round_robin", "least_used", "random")
Reason = Literal["", "rate_limit", "billing", "auth", "dead"]

#: From the least bad reason to rest to the worst: which key is tried when all of them rest.
_RANK: Mapping[Reason, int] = {"": 0, "rate_limit": 1, "billing": 2, "auth": 3, "dead": 4}


#: Seconds before its end at which a key of a login is renewed.
RENEWED_BEFORE = 120.0


class Cooldowns(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds a key rests. Where the provider names a time, that time holds.

    A refusal for the rate begins with `rate_limit` and doubles up to `rate_limit_most` as long as the key refuses.
    Below `short` a key is waited for rather than left.
    """

    rate_limit: float = 15.0
    rate_limit_most: float = 600.0
    billing: float = 3_600.0
    auth: float = 300.0
    short: float = 5.0


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """One key. `id` is unique in its provider, `source` says where it came from (`manual`, `env:NAME`), `provider` is
    the one of the file; `rests_until` is seconds since the epoch, `named` if the provider named it, `requests` how
    often it was used before. One that is `renewable` belongs to a login and runs out at `expires_at` (0: unknown)."""

    id: str
    label: str
    secret: str
    provider: str = ""
    source: str = ""
    priority: int = 0
    rests_until: float = 0.0
    named: bool = True
    reason: Reason = ""
    requests: int = 0
    renewable: bool = False
    expires_at: float = 0.0

    def __repr__(self) -> str:
        return f"Credential({self.id!r}, {self.label!r}, {self.source!r})"


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """A key rests for `seconds`. `fresh`: it did not before. `label` never holds the key."""

    provider: str
    label: str
    seconds: float
    reason: str
    fresh: bool


class _Key:
    """A credential with its state. `named`: the provider said when it may be used again."""

    __slots__ = ("credential", "leases", "marked", "named", "reason", "requests", "rests_until", "strikes", "uses")

    def __init__(self, credential: Credential) -> None:
        self.credential = credential
        self.rests_until = credential.rests_until
        self.reason: Reason = credential.reason
        self.named = credential.rests_until > 0 and credential.named
        self.requests = credential.requests
        self.uses = 0
        self.leases: set[str] = set()
        self.strikes = 0
        self.marked = False

    def remaining(self, now: float) -> float:
        """Seconds it still rests."""
        return max(0.0, self.rests_until - now)


class Lease:
    """A key for one run. `secret` is for the adapter; `wait` are seconds until the key may be used.

    The marks act on this key and on twins with the same secret.
    """

    __slots__ = ("_key", "_probes", "_ring", "wait")

    def __init__(self, ring: _Ring, key: _Key, wait: float, *, probes: bool = False) -> None:
        self._ring = ring
        self._key = key
        self._probes = probes  # it is asked with although it rests
        self.wait = wait

    def __repr__(self) -> str:
        return f"Lease({self.label!r})"

    @property
    def id(self) -> str:
        """The credential's id."""
        return self._key.credential.id

    @property
    def label(self) -> str:
        """The credential's name for people."""
        return self._key.credential.label

    @property
    def secret(self) -> str:
        """What is sent to the provider."""
        return self._key.credential.secret

    @property
    def renewable(self) -> bool:
        """Whether the secret belongs to a login that can be renewed."""
        return self._key.credential.renewable

    @property
    def stale(self) -> bool:
        """Whether the secret runs out, or has: it has to be renewed first."""
        key = self._key.credential
        return key.renewable and 0 < key.expires_at < self._ring.now() + RENEWED_BEFORE

    @property
    def strikes(self) -> int:
        """Refusals for the rate since the key was last accepted."""
        return self._key.strikes

    def succeeded(self) -> bool:
        """The provider accepted the key; returns whether that ended a rest that was guessed."""
        return self._ring.accepted(self._key, probed=self._probes)

    def limited(self, retry_after: float | None) -> Rest:
        """Refused for the rate; `retry_after` are the seconds the provider named."""
        return self._ring.limited(self._key, retry_after)

    def denied(self, *, dead: bool = False) -> Rest:
        """Refused as no valid key; `dead`: it will never be one again."""
        return self._ring.rest(self._key, "dead" if dead else "auth", self._ring.cooldowns.auth, named=False)

    def spent(self, retry_after: float | None = None) -> Rest:
        """Refused for want of money or quota."""
        seconds = self._ring.cooldowns.billing if retry_after is None else retry_after
        return self._ring.rest(self._key, "billing", seconds, named=retry_after is not None)


class _Ring:
    """The keys of one provider."""

    def __init__(
        self,
        provider: str,
        keys: list[_Key],
        *,
        strategy: Strategy,
        cooldowns: Cooldowns,
        now: Callable[[], float],
        choose: Callable[[int], int],
    ) -> None:
        self.provider = provider
        self.keys = keys
        self.cooldowns = cooldowns
        self.holders: dict[str, _Key] = {}
        self._strategy = strategy
        self.now = now
        self._choose = choose
        self._next = 0

    def lease(self, affinity: str, avoid: Collection[str]) -> Lease:
        """The key of `affinity`, or another one where that rests for long; see `CredentialPool.lease`."""
        now = self.now()
        held = self.holders.get(affinity)
        if held is not None and held.credential.id not in avoid:
            left = held.remaining(now)
            if left <= 0 or (left <= self.cooldowns.short and held.named):
                return self._leased(held, affinity, left)
        free = [key for key in self.keys if key.remaining(now) <= 0 and key.credential.id not in avoid]
        if free:
            return self._leased(self._picked(free), affinity, 0.0)
        least = min(self.keys, key=lambda key: (_RANK[key.reason], key.rests_until))
        # Nobody but the provider knows when it may be used again: if it named no time, asking is the way to find out.
        return self._leased(least, affinity, least.remaining(now) if least.named else 0.0)

    def free(self, avoid: Collection[str]) -> bool:
        """Whether a key that is not in `avoid` could be used at once."""
        now = self.now()
        return any(key.remaining(now) <= 0 and key.credential.id not in avoid for key in self.keys)

    def _leased(self, key: _Key, affinity: str, wait: float) -> Lease:
        if affinity:
            before = self.holders.get(affinity)
            if before is not None and before is not key:
                before.leases.discard(affinity)
            self.holders[affinity] = key
            key.leases.add(affinity)
        key.uses += wait <= 0
        return Lease(self, key, wait, probes=wait <= 0 and key.rests_until > 0 and key.remaining(self.now()) > 0)

    def _picked(self, free: list[_Key]) -> _Key:
        if self._strategy == "random":
            return free[self._choose(len(free))]
        if self._strategy == "least_used":
            return min(free, key=lambda key: key.requests + key.uses)
        if self._strategy == "round_robin":
            order = self.keys[self._next :] + self.keys[: self._next]
            key = next(key for key in order if key in free)
            self._next = (self.keys.index(key) + 1) % len(self.keys)
            return key
        return min(free, key=lambda key: len(key.leases))  # the first where none has a lease: the keys stand in order

    def accepted(self, key: _Key, *, probed: bool = False) -> bool:
        """A request went through: the refusals before it count no more. `probed`: it was sent in the rest of the key,
        which was too long then; returns whether that ended it."""
        ended = False
        for twin in self._twins(key):
            twin.strikes = 0
            rests = bool(twin.reason) and twin.remaining(self.now()) > 0
            if twin.reason and (not rests or probed):
                twin.reason, twin.rests_until, twin.named, twin.marked = "", 0.0, False, True
                ended = ended or rests
        return ended

    def limited(self, key: _Key, retry_after: float | None) -> Rest:
        """Let a key rest as long as was named, else longer with each refusal in a row."""
        if key.remaining(self.now()) <= 0:
            key.strikes += 1
        times = self.cooldowns
        seconds = min(times.rate_limit * 2.0 ** max(0, key.strikes - 1), times.rate_limit_most)
        if retry_after is not None:
            seconds = retry_after
        return self.rest(key, "rate_limit", seconds, named=retry_after is not None)

    def rest(self, key: _Key, reason: Reason, seconds: float, *, named: bool) -> Rest:
        """Let a key and its twins rest; a rest that is longer already stays."""
        now = self.now()
        fresh = key.remaining(now) <= 0
        if reason == "dead":
            seconds = max(seconds, 86_400.0)
        for twin in self._twins(key):
            if now + seconds >= twin.rests_until or _RANK[reason] > _RANK[twin.reason]:
                twin.rests_until, twin.reason, twin.named, twin.marked = now + seconds, reason, named, True
                twin.strikes = key.strikes
        label = key.credential.label
        return Rest(provider=self.provider, label=label, seconds=seconds, reason=reason, fresh=fresh)

    def _twins(self, key: _Key) -> list[_Key]:
        return [other for other in self.keys if other.credential.secret == key.credential.secret]

    def state(self, key: _Key) -> Credential:
        """A key as it stands now."""
        return msgspec.structs.replace(
            key.credential,
            rests_until=key.rests_until if key.reason else 0.0,
            named=key.named,
            reason=key.reason,
            requests=key.requests + key.uses,
        )

    def change(self, key: _Key) -> Credential:
        """The mark of a key, with the uses since the last one."""
        state = msgspec.structs.replace(self.state(key), requests=key.uses)
        key.requests, key.uses, key.marked = key.requests + key.uses, 0, False
        return state


class CredentialPool:
    """The keys of a process, by provider.

    Args:
        strategies: how a key is chosen, by provider; `fill_first` where none is given.
        cooldowns: how long keys rest.
        now: seconds since the epoch.
        choose: a number below the given one, for `random`.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        strategies: Mapping[str, str] | None = None,
        cooldowns: Cooldowns = Cooldowns(),  # noqa: B008 - frozen
        choose: Callable[[int], int] = random.randrange,
    ) -> None:
        self._now = now
        self._strategies = {name: _strategy(word) for name, word in (strategies or {}).items()}
        self._cooldowns = cooldowns
        self._choose = choose
        self._rings: dict[str, _Ring] = {}

    def add(self, provider: str, credentials: Iterable[Credential], *, strategy: str = "") -> None:
        """Put a provider's keys in, in the order in which they are used up. `strategy`: whose choice holds for them.

        Raises:
            ValueError: there is none.
        """
        keys = [_Key(credential) for credential in credentials]
        if not keys:
            raise ValueError(f"no credential for {provider}")
        self._rings[provider] = _Ring(
            provider,
            keys,
            strategy=self._strategies.get(strategy or provider, "fill_first"),
            cooldowns=self._cooldowns,
            now=self._now,
            choose=self._choose,
        )

    def __contains__(self, provider: str) -> bool:
        return provider in self._rings

    def size(self, provider: str) -> int:
        """How many keys a provider has."""
        return len(self._rings[provider].keys)

    def lease(self, provider: str, affinity: str = "", avoid: Collection[str] = ()) -> Lease:
        """A key of `provider` for the run `affinity`: the one it has, unless that rests for long.

        It never blocks and never refuses. Where every key rests it is the least bad one: `wait` then says how long the
        provider wants to be left alone, 0 if it named no time. `avoid` are ids that are not wanted if another is free.

        Raises:
            KeyError: there is no such provider.
        """
        return self._rings[provider].lease(affinity, avoid)

    def free(self, provider: str, avoid: Collection[str] = ()) -> bool:
        """Whether a key of `provider` that is not in `avoid` could be used at once."""
        return self._rings[provider].free(avoid)

    def usable(self, provider: str) -> tuple[str, ...]:
        """Ids of the keys of a provider that could be used at once."""
        ring, now = self._rings[provider], self._now()
        return tuple(key.credential.id for key in ring.keys if key.remaining(now) <= 0)

    def release(self, affinity: str) -> None:
        """A run is over: its keys are free for others."""
        for ring in self._rings.values():
            key = ring.holders.pop(affinity, None)
            if key is not None:
                key.leases.discard(affinity)

    def leases(self, provider: str) -> dict[str, int]:
        """How many runs hold each key of a provider, by id."""
        return {key.credential.id: len(key.leases) for key in self._rings[provider].keys}

    def status(self, provider: str) -> tuple[Credential, ...]:
        """The keys of a provider as they stand now."""
        ring = self._rings[provider]
        return tuple(ring.state(key) for key in ring.keys)

    def renewed(self, provider: str, name: str, secret: str, expires_at: float) -> None:
        """The key with this id has another secret from now on; a rest for a refused one is over."""
        for key in self._rings[provider].keys:
            if key.credential.id == name:
                key.credential = msgspec.structs.replace(key.credential, secret=secret, expires_at=expires_at)
                if key.reason in ("auth", "dead"):
                    key.reason, key.rests_until, key.named, key.marked = "", 0.0, False, True

    def marks(self, provider: str, *, uses: bool = False) -> tuple[Credential, ...]:
        """The keys whose marks changed since this was last asked, `requests` being the uses since then.

        With `uses` those that were only used are among them.
        """
        ring = self._rings[provider]
        return tuple(ring.change(key) for key in ring.keys if key.marked or (uses and key.uses))


def _strategy(word: str) -> Strategy:
    """The strategy of this name; `fill_first` for any other word, as other programs that share the settings take it."""
    for known in STRATEGIES:
        if word == known:
            return known
    return "fill_first"
