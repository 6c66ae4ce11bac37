"""The keys of one server as the program puts them together, without a file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hermes.core.model import Model, ModelProfile
from hermes.credentials.limits import LearnedLimit, LearnedLimits
from hermes.credentials.pool import Cooldowns, Credential, CredentialPool, Lease
from hermes.providers.http import SessionSource
from hermes.providers.openai_chat import Endpoint, OpenAIChat
from hermes.providers.pooled import KeyLease, Pooled
from hermes.providers.rate_headers import read_rate_headers
from hermes.testing.clock import VirtualClock


class FakeKeys:
    """What `Pooled` asks of keys, over the real pool and the real limits; nothing is kept."""

    provider = "p"

    def __init__(self, secrets: Sequence[str], now: Callable[[], float], *, start: int = 64) -> None:
        self.pool = CredentialPool(now=now)
        self.pool.add(
            "p", [Credential(id=secret, label=f"label {n}", secret=secret) for n, secret in enumerate(secrets)]
        )
        self.limits = LearnedLimits()
        self.short = Cooldowns().short
        self.several = len(secrets) > 1
        self.kept = 0
        self._now = now
        self._start = start

    def lease(self, affinity: str, avoid: Collection[str] = ()) -> Lease:
        return self.pool.lease("p", affinity, avoid)

    def free(self, avoid: Collection[str]) -> bool:
        return self.pool.free("p", avoid)

    def limit(self, lease: KeyLease, model: str) -> LearnedLimit:
        return self.limits.of("p", lease.id, model, start=self._start)

    def observe(self, lease: KeyLease, model: str) -> Callable[[Mapping[str, str]], None]:
        def note(headers: Mapping[str, str]) -> None:
            for report in read_rate_headers(headers, self._now()):
                self.limit(lease, model).reported(report.kind, report.limit, report.remaining, report.reset)

        return note

    def lighter(self, lease: KeyLease, model: str, affinity: str) -> Lease | None:
        return None

    def left(self, lease: KeyLease) -> None:
        self.limits.evict("p", lease.id)

    async def keep(self) -> None:
        self.kept += 1

    async def renew(self, lease: KeyLease, refused: str = "") -> None:
        raise AssertionError("no key here belongs to a login")


def pooled_over(model: Model) -> Callable[..., Model]:
    """Make the same model for every key."""
    return lambda secret, observe: model


def pooled_http(
    base_url: str, secrets: Sequence[str], clock: VirtualClock, session: SessionSource, **more: Any
) -> Pooled:
    """A model that asks a server with several keys."""
    keys = FakeKeys(secrets, clock.now, **more)

    def make(secret: str, observe: Callable[[Mapping[str, str]], None]) -> Model:
        chat = OpenAIChat(
            "test-model", Endpoint(base_url=base_url, api_key=secret), ModelProfile(), session, wall_clock=clock.now
        )
        chat.on_headers = observe
        return chat

    return Pooled("test-model", ModelProfile(), keys, make)
