"""What is learned of a provider's limits, against a provider that has some."""

from __future__ import annotations

import anyio
import pytest

from hermes.credentials.flow import Flow
from hermes.credentials.limits import LearnedLimit, LearnedLimits
from hermes.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


class Provider:
    """Allows `rate` requests a second and `burst` at once; answers after `latency` seconds, and names a time to wait of
    `named` seconds at least."""

    def __init__(
        self, rate: float, burst: float, latency: float = 0.2, at_once: int = 10**6, named: float = 0.0
    ) -> None:
        self.named = named
        self.rate, self.burst, self.latency, self.at_once = rate, burst, latency, at_once
        self.level, self.at = burst, 0.0
        self.accepted = self.refused = self.in_flight = 0

    async def ask(self) -> float | None:
        """None if the request was accepted, else the seconds to wait."""
        now = anyio.current_time()
        self.level, self.at = min(self.burst, self.level + (now - self.at) * self.rate), now
        fine = self.level >= 1 and self.in_flight < self.at_once
        self.level -= fine
        self.accepted, self.refused = self.accepted + fine, self.refused + (not fine)
        self.in_flight += 1
        await anyio.sleep(self.latency)
        self.in_flight -= 1
        return None if fine else max(self.named, (1 - self.level) / self.rate)


async def work(limit: LearnedLimit, provider: Provider, tasks: int, turns: int, **more: object) -> list[float]:
    """Let `tasks` ask `turns` times each; refused requests are asked again. Returns when each task ended."""
    ends: list[float] = []

    async def one(number: int) -> None:
        for _ in range(turns):
            again = False
            while True:
                permit = await limit.acquire(again=again, **more)  # type: ignore[arg-type]
                assert permit is not None
                wait = await provider.ask()
                limit.answered(permit) if wait is None else limit.limited(permit, wait)
                limit.release(permit)
                again = wait is not None
                if not again:
                    break
        ends.append(anyio.current_time())

    async with anyio.create_task_group() as group:
        for number in range(tasks):
            group.start_soon(one, number)
    return ends


async def test_a_bucket_is_used_up_and_hardly_overrun(virtual_clock: VirtualClock) -> None:
    limit, provider = LearnedLimit(), Provider(50.0, 50.0, 0.3)
    ends = await work(limit, provider, 300, 4)
    assert provider.accepted == 1200
    # what the bucket allows: the burst, then 50 a second
    assert max(ends) <= (1200 - 50) / 50 / 0.9 + 1.0
    assert provider.refused <= 60
    assert limit.rate is not None and 40 < limit.rate < 60


async def test_without_refusals_nothing_holds_anybody_back(virtual_clock: VirtualClock) -> None:
    limit, provider = LearnedLimit(), Provider(10**6, 10**6, 0.2)
    ends = await work(limit, provider, 1000, 5)
    assert limit.rate is None and provider.refused == 0
    assert max(ends) < 2.2 and limit.at_once > 500


async def test_a_limit_at_once_is_found(virtual_clock: VirtualClock) -> None:
    limit, provider = LearnedLimit(), Provider(10**6, 10**6, 0.2, at_once=5)
    ends = await work(limit, provider, 40, 10)
    assert provider.accepted == 400
    assert max(ends) < 400 / 5 * 0.2 * 1.8
    assert provider.refused < 150


async def test_people_go_before_others_and_trees_take_turns(virtual_clock: VirtualClock) -> None:
    limit = LearnedLimit(start=1)
    order: list[str] = []

    async def one(name: str, tree: str, foreground: bool = False) -> None:
        permit = await limit.acquire(tree=tree, foreground=foreground)
        order.append(name)
        await anyio.sleep(1.0)
        limit.release(permit)  # type: ignore[arg-type]

    async with anyio.create_task_group() as group:
        for name, tree in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b")):
            group.start_soon(one, name, tree)
        await anyio.sleep(0.5)
        group.start_soon(one, "person", "c", True)
    assert order[0] == "a1" and order[1] == "person"
    assert order[2:] == ["a2", "b1", "a3", "b2"]


async def test_whoever_goes_away_leaves_the_others_moving(virtual_clock: VirtualClock) -> None:
    limit = LearnedLimit(start=1)
    first = await limit.acquire()
    done: list[int] = []

    async def one(number: int, scope: anyio.CancelScope) -> None:
        with scope:
            permit = await limit.acquire()
            done.append(number)
            limit.release(permit)  # type: ignore[arg-type]

    scopes = [anyio.CancelScope() for _ in range(4)]
    async with anyio.create_task_group() as group:
        for number, scope in enumerate(scopes):
            group.start_soon(one, number, scope)
        await anyio.sleep(1.0)
        scopes[0].cancel()
        scopes[2].cancel()
        await anyio.sleep(1.0)
        limit.release(first)  # type: ignore[arg-type]
    assert done == [1, 3] and limit.in_flight == 0 and limit.waiting == 0


async def test_a_pause_holds_everybody_and_ends(virtual_clock: VirtualClock) -> None:
    limit = LearnedLimit()
    permit = limit.try_acquire()
    assert permit is not None
    await anyio.sleep(0.1)
    limit.limited(permit, 3.0)
    limit.release(permit)
    assert limit.try_acquire() is None and limit.estimate() >= 2.9
    assert await limit.acquire() == pytest.approx(3.1, abs=0.1)


async def test_headers_are_believed(virtual_clock: VirtualClock) -> None:
    limit = LearnedLimit()
    limit.reported("requests", 10.0, 2.0, 8.0)  # one a second
    times = [await limit.acquire() for _ in range(4)]
    assert times == pytest.approx([0.0, 0.0, 1.0, 2.0], abs=0.01)


async def test_few_tokens_left_hold_large_requests(virtual_clock: VirtualClock) -> None:
    limit = LearnedLimit()
    assert not limit.counts_tokens
    limit.reported("tokens", 1000.0, 100.0, 9.0)  # a hundred a second
    assert limit.counts_tokens and limit.try_acquire(50.0) is not None
    assert await limit.acquire(tokens=350.0) == pytest.approx(3.0, abs=0.05)


async def test_waiters_of_a_key_that_rests_are_sent_away(virtual_clock: VirtualClock) -> None:
    limits = LearnedLimits()
    limit = limits.of("p", "key", "model", start=1)
    assert limits.of("p", "key", "model") is limit
    assert limit.try_acquire() is not None
    got: list[float | None] = []

    async def one() -> None:
        got.append(await limit.acquire())

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        await anyio.sleep(1.0)
        limits.evict("p", "other")
        assert limit.waiting == 1
        limits.evict("p", "key")
    assert got == [None]


class TokenProvider:
    """Allows `rate` tokens a second and `size` at once, and says nothing of it but that it was too many."""

    def __init__(self, rate: float, size: float) -> None:
        self.rate, self.size, self.level, self.at = rate, size, size, 0.0
        self.accepted = self.refused = 0

    async def ask(self, tokens: float) -> bool:
        now = anyio.current_time()
        self.level, self.at = min(self.size, self.level + (now - self.at) * self.rate), now
        fine = self.level >= tokens
        self.level -= tokens if fine else 0.0
        self.accepted, self.refused = self.accepted + fine, self.refused + (not fine)
        await anyio.sleep(0.2)
        return fine


async def test_a_limit_of_tokens_is_learned_from_refusals_that_name_them(virtual_clock: VirtualClock) -> None:
    limit, provider = LearnedLimit(), TokenProvider(2_000.0, 10_000.0)

    async def one(number: int) -> None:
        tokens = 300.0 + 10 * (number % 40)
        for _ in range(4):
            again = False
            while True:
                permit = await limit.acquire(again=again, tokens=tokens if limit.counts_tokens else 0.0)
                assert permit is not None
                fine = await provider.ask(tokens)
                limit.answered(permit) if fine else limit.limited(permit, 1.0, tokens=tokens)
                limit.release(permit)
                again = not fine
                if fine:
                    break

    async with anyio.create_task_group() as group:
        for number in range(60):
            group.start_soon(one, number)
    asked = sum(4 * (300.0 + 10 * (number % 40)) for number in range(60))
    assert anyio.current_time() <= (asked - 10_000) / 2_000 / 0.85
    assert provider.accepted == 240 and provider.refused <= 60
    assert limit.rate is None and limit.counts_tokens


def test_a_rate_that_holds_nobody_back_does_not_grow() -> None:
    flow = Flow()
    for at in (0.0, 0.01, 0.02):
        flow.spend(at, 1.0)
    flow.refuse(0.02, 0.1, 1.0, fresh=True)
    for step in range(2_000):  # ten a second, where three at once and more were allowed
        at = 1.0 + step / 10
        if flow.ready(at, 1.0):
            flow.spend(at, 1.0)
    assert flow.rate is not None and flow.rate < 20.0


def test_what_others_sent_is_no_part_of_what_this_process_may_send() -> None:
    flow = Flow()
    flow.refuse(0.0, 0.0, 1.0, fresh=True)
    for step in range(200):  # twenty a second here, thirty a second elsewhere
        flow.spend(0.05 + step * 0.05, 1.0)
        if step % 40 == 39:
            flow.others(step * 0.05 - 2.0, step * 0.05, 30.0)
    flow.size, flow.share = 100.0, 0.4
    flow.refuse(10.02, 10.1, 1.0, fresh=True)
    flow.ready(10.2, 1.0)
    assert flow.rate == pytest.approx(50.0, rel=0.06) and flow.measured


@pytest.mark.parametrize(("tasks", "turns", "most"), [(1, 10, 5.0), (4, 20, 6.5), (100, 4, 3.0)])
async def test_one_refusal_that_names_no_time_is_soon_made_good(
    virtual_clock: VirtualClock, tasks: int, turns: int, most: float
) -> None:
    """`Retry-After: 0` once, and never again: nothing is known of the rate but what went before."""
    limit, asked = LearnedLimit(), 0

    async def one() -> None:
        nonlocal asked
        for _ in range(turns):
            again = False
            while True:
                permit = await limit.acquire(again=again)
                assert permit is not None
                asked += 1
                again = asked == 2
                await anyio.sleep(0.2)
                limit.limited(permit, 0.0) if again else limit.answered(permit)
                limit.release(permit)
                if not again:
                    break

    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(one)
    assert limit.refused >= 1
    assert anyio.current_time() <= most  # unhindered it takes 0.2 s a turn


async def test_a_rate_that_was_found_again_and_again_is_tried_less_often(virtual_clock: VirtualClock) -> None:
    limit, provider = LearnedLimit(), Provider(50.0, 50.0, 0.2, named=1.0)
    refused: list[int] = []

    async def look() -> None:
        for _ in range(3):
            await anyio.sleep(40.0)
            refused.append(provider.refused - sum(refused))

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        ends = await work(limit, provider, 300, 20)
    assert max(ends) <= (6_000 - 50) / 50 / 0.95
    assert refused[2] < refused[0] / 3 and provider.refused <= 0.015 * 6_000


async def test_what_another_process_found_out_is_no_guess_of_ones_own() -> None:
    flow = Flow()
    flow.adopt(50.0, 50.0, 0.0, 1.0, measured=False)
    flow.spend(1.1, 1.0)
    flow.refuse(1.1, 1.2, 1.0, fresh=True)
    flow.refuse(1.1, 1.3, 1.0, fresh=False)  # a late answer of the same moment
    flow.ready(1.4, 1.0)
    assert flow.rate is not None and flow.rate > 40.0
