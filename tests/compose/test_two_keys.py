"""A storm of tasks over one and two keys, each with a bucket of its own at the provider, in simulated time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from hermes.compose import Parts
from hermes.compose.keys import KeyPools
from hermes.config import find_home, load
from hermes.core.clock import held
from hermes.core.errors import ModelError
from hermes.core.messages import Text, User
from hermes.core.model import Delta, Model, ModelProfile, ModelRequest, Stop, TextDelta
from hermes.credentials import Endpoint, Key
from hermes.providers.pooled import Pooled
from hermes.providers.retrying import Retrying
from hermes.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio

RATE, BURST, URL = 50.0, 50.0, "http://limited.test/v1"


class Limited:
    """A model behind a bucket; it answers, or refuses, after 100 to 500 ms."""

    name, profile = "m", ModelProfile()

    def __init__(self, chance: random.Random) -> None:
        self.level, self.at = BURST, 0.0
        self.accepted: list[float] = []
        self.refused: list[float] = []
        self._chance = chance

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Delta]]:
        yield self._answer()

    async def _answer(self) -> AsyncIterator[Delta]:
        now = anyio.current_time()
        self.level, self.at = min(BURST, self.level + RATE * (now - self.at)), now
        fine = self.level >= 1
        self.level -= fine
        (self.accepted if fine else self.refused).append(now)
        await anyio.sleep(self._chance.uniform(0.1, 0.5))
        if not fine:
            raise ModelError("slow down", reason="rate_limit", status=429, retry_after=1.0, retryable=True)
        yield TextDelta("ok")
        yield Stop("stop")


def parts_of(folder: Path, clock: VirtualClock, count: int) -> Parts:
    keys = tuple(
        Key(provider="p", base_url=URL, secret=f"sk-storm-{n}-0123456789", source=f"key {n}", variable=f"KEY_{n}")
        for n in range(count)
    )
    home = find_home({"HERMES_HOME": str(folder / f"home-{count}")})
    endpoint = Endpoint(provider="p", base_url=URL, api_key=keys[0].secret, key_source=keys[0].source, model="m")
    return Parts(loaded=load(home, {}), endpoint=endpoint, keys=keys, clock=clock, hold=clock)


async def storm(folder: Path, clock: VirtualClock, count: int) -> tuple[float, list[Limited]]:
    """Seconds for 200 tasks × 4 turns a key, and the buckets of the keys."""
    with held(clock):
        parts = await anyio.to_thread.run_sync(parts_of, folder, clock, count)
    pools = KeyPools(parts)
    chance, made = random.Random(7), dict[str, Limited]()

    def make(secret: str, observe: Callable[[Mapping[str, str]], None]) -> Model:
        return made.setdefault(secret, Limited(chance))

    model = Retrying(Pooled("m", ModelProfile(), pools.of(parts.endpoint), make), jitter=chance.random)

    async def task(number: int) -> None:
        request = ModelRequest(system="x", entries=(User(content=(Text("go"),)),), watched=False, affinity=f"t{number}")
        for _ in range(4):
            async with model.stream(request) as deltas:
                async for _ in deltas:
                    pass

    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        for number in range(200 * count):
            group.start_soon(task, number)
    return anyio.current_time() - began, list(made.values())


async def test_a_bucket_is_used_up_and_two_keys_are_twice_one(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    one, (single,) = await storm(tmp_path, virtual_clock, 1)
    first, last = min(single.refused), max(single.accepted)
    after = [at for at in single.accepted if at >= first]
    assert len(single.accepted) == 800 and len(after) / (RATE * (last - first)) >= 0.9
    assert len(single.refused) <= 0.05 * 800
    two, buckets = await storm(tmp_path, virtual_clock, 2)
    assert len(buckets) == 2 and sum(len(bucket.accepted) for bucket in buckets) == 1600
    assert 2 * one / two >= 1.9
