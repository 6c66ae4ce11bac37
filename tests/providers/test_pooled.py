"""Which key is asked after which refusal, what that costs, and who is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from hermes.core.errors import ModelError
from hermes.core.events import CredentialCooled, QuotaWaiting
from hermes.core.model import Announced, Delta, Model, ModelProfile
from hermes.providers.http import HttpSession
from hermes.providers.pooled import Pooled
from hermes.providers.retrying import Retrying
from hermes.testing import faults
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Fault, Status
from hermes.testing.scripted import Reply, ScriptedModel, broken, hang, reply
from hermes.testing.server import ProviderServer, Request
from tests.providers.conformance import ModelConformance, ask, deltas_of, failure_of, folded, message_of, restarts
from tests.providers.pools import FakeKeys, pooled_http, pooled_over

pytestmark = pytest.mark.anyio

A, B, C = "sk-aaaa-0123456789", "sk-bbbb-0123456789", "sk-cccc-0123456789"


@asynccontextmanager
async def served(
    script: Callable[[Request], Reply | Fault], secrets: Sequence[str], clock: VirtualClock, **more: Any
) -> AsyncIterator[tuple[Pooled, ProviderServer]]:
    session = HttpSession()
    async with ProviderServer(script) as server:
        try:
            yield pooled_http(server.base_url, secrets, clock, session, **more), server
        finally:
            await session.close()


def told(deltas: Sequence[Delta]) -> list[Any]:
    return [delta.event for delta in deltas if isinstance(delta, Announced)]


def by_key(answers: dict[str, Reply | Fault]) -> Callable[[Request], Reply | Fault]:
    return lambda request: answers[request.key]


class TestPooledConformance(ModelConformance):
    """A model behind a key pool is a model."""

    @asynccontextmanager
    async def opened(self, steps: Sequence[Any]) -> AsyncIterator[Model]:  # type: ignore[override]
        clock, session = VirtualClock(), HttpSession()
        async with ProviderServer(steps) as server:
            try:
                yield pooled_http(server.base_url, [A], clock, session)
            finally:
                await session.close()


@pytest.mark.fault("B060")
async def test_changing_the_key_uses_up_no_attempt(virtual_clock: VirtualClock) -> None:
    keys = [f"sk-key-{number}-0123456789" for number in range(10)]
    answers: dict[str, Reply | Fault] = {key: faults.rate_limited("3600") for key in keys[:9]}
    answers[keys[9]] = reply("ok")
    async with served(by_key(answers), keys, virtual_clock) as (pooled, server):
        deltas = await deltas_of(Retrying(pooled, attempts=3), ask(affinity="run"))
    assert folded(deltas).text == "ok" and restarts(deltas) == []
    assert [request.key for request in server.requests] == keys
    assert virtual_clock.elapsed < 1.0
    assert [event.seconds for event in told(deltas)] == [3600.0] * 9


@pytest.mark.fault("B061")
@pytest.mark.parametrize(
    ("answer", "requests"),
    [
        (faults.rate_limited(None, "session usage limit reached"), [A, B]),
        (faults.rate_limited("1", "You exceeded your current quota, resets in 1s"), [A, B]),
        (faults.rate_limited("1", "words that nobody knows"), [A, A, B]),
        (faults.rate_limited("3600", "words that nobody knows"), [A, B]),
    ],
)
async def test_another_key_is_asked_at_the_second_refusal_whatever_the_words(
    virtual_clock: VirtualClock, answer: Status, requests: list[str]
) -> None:
    async with served(by_key({A: answer, B: reply("ok")}), [A, B], virtual_clock) as (pooled, server):
        assert (await message_of(Retrying(pooled), ask(affinity="run"))).text == "ok"
    assert [request.key for request in server.requests] == requests


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (faults.bad_key(), "auth"),
        (faults.no_credit(), "billing"),
        (faults.bad_key("token_revoked"), "dead"),
        (faults.rate_limited(), "rate_limit"),
    ],
)
async def test_a_refused_key_is_left_and_the_views_are_told_without_showing_it(
    virtual_clock: VirtualClock, answer: Status, reason: str
) -> None:
    async with served(by_key({A: answer, B: reply("ok")}), [A, B], virtual_clock) as (pooled, server):
        deltas = await deltas_of(Retrying(pooled), ask(affinity="one"))
        await message_of(Retrying(pooled), ask(affinity="two"))
    (event,) = told(deltas)
    assert isinstance(event, CredentialCooled) and (event.label, event.reason) == ("label 0", reason)
    assert [request.key for request in server.requests] == [A, B, B]
    assert "sk-" not in repr(deltas)


@pytest.mark.parametrize("answer", [faults.forbidden(), faults.too_long(), faults.server_error(), faults.overloaded()])
async def test_what_another_key_does_not_cure_is_raised_as_it_came(virtual_clock: VirtualClock, answer: Status) -> None:
    async with served(by_key({A: answer, B: reply("never")}), [A, B], virtual_clock) as (pooled, server):
        await failure_of(pooled, ask(affinity="run"))
    assert [request.key for request in server.requests] == [A]


async def test_a_single_key_is_asked_as_often_as_without_a_pool(virtual_clock: VirtualClock) -> None:
    async with served(by_key({A: faults.rate_limited("7")}), [A], virtual_clock) as (pooled, server):
        error = await failure_of(Retrying(pooled), ask())
    assert error.reason == "rate_limit" and server.count == 3
    assert virtual_clock.elapsed == pytest.approx(14.0, abs=0.5)


async def test_where_every_key_is_refused_the_refusal_comes_out(virtual_clock: VirtualClock) -> None:
    async with served(by_key({A: faults.bad_key(), B: faults.bad_key()}), [A, B], virtual_clock) as (pooled, server):
        error = await failure_of(Retrying(pooled), ask(affinity="run"))
    assert error.reason == "auth" and error.permanent and [request.key for request in server.requests] == [A, B]


async def test_keys_that_all_rest_are_waited_for_and_the_wait_is_shown(virtual_clock: VirtualClock) -> None:
    def script(request: Request) -> Reply | Fault:
        return faults.rate_limited("90") if request.at < 60 else reply("ok")

    async with served(script, [A, B], virtual_clock) as (pooled, server):
        with pytest.raises(ModelError):
            await deltas_of(pooled, ask(affinity="one"))
        deltas = await deltas_of(pooled, ask(affinity="two"))
    waits = [event.seconds for event in told(deltas) if isinstance(event, QuotaWaiting)]
    assert waits == [pytest.approx(90.0, abs=1.0), 0.0] and folded(deltas).text == "ok"
    assert server.count == 3 and virtual_clock.elapsed == pytest.approx(90.0, abs=1.0)


async def test_keys_that_rest_for_very_long_are_not_waited_for(virtual_clock: VirtualClock) -> None:
    async with served(by_key({A: faults.rate_limited("7200")}), [A], virtual_clock) as (pooled, server):
        await failure_of(pooled, ask())
        error = await failure_of(Retrying(pooled), ask())
    assert server.count == 1 and "7200 s more" in str(error) and error.retry_after == pytest.approx(7200, abs=1)


async def test_a_reply_that_breaks_on_one_key_goes_on_with_another_without_a_wait(virtual_clock: VirtualClock) -> None:
    limit = ModelError("429", reason="rate_limit", status=429, retryable=True, retry_after=60.0)
    models = {A: ScriptedModel("m", [broken(limit, text="half")]), B: ScriptedModel("m", [reply("whole")])}
    pooled = Pooled("m", ModelProfile(), FakeKeys([A, B], virtual_clock.now), lambda secret, _: models[secret])
    deltas = await deltas_of(Retrying(pooled), ask(affinity="run"))
    assert folded(deltas).text == "whole" and len(restarts(deltas)) == 1 and virtual_clock.elapsed < 1.0


async def test_a_cancelled_request_gives_its_permit_back(virtual_clock: VirtualClock) -> None:
    keys = FakeKeys([A], virtual_clock.now, start=1)
    pooled = Pooled("m", ModelProfile(), keys, pooled_over(ScriptedModel("m", [hang(), reply("ok")])))
    with anyio.move_on_after(5.0):
        await deltas_of(pooled, ask())
    assert keys.limits.of("p", A, "m").in_flight == 0
    assert (await message_of(pooled, ask())).text == "ok"


async def test_fifty_runs_finish_while_one_key_of_two_is_refused_for_a_minute(virtual_clock: VirtualClock) -> None:
    seen: list[tuple[str, float]] = []

    def script(request: Request) -> Reply | Fault:
        seen.append((request.key, request.at))
        return faults.rate_limited("60") if request.key == A and request.at < 60 else reply("ok", delay=0.5)

    done: list[str] = []
    async with served(script, [A, B], virtual_clock) as (pooled, _):

        async def run(number: int) -> None:
            for _ in range(4):
                done.append((await message_of(Retrying(pooled), ask(affinity=f"run-{number}"))).text)

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(run, number)
    assert done == ["ok"] * 200
    counts = Counter(key for key, _ in seen)
    assert counts[B] == 200 and counts[A] <= 25  # those that were under way when the first refusal came
    assert max(at for key, at in seen if key == A) < 0.5


@pytest.mark.fault("B069")
async def test_children_that_start_together_share_a_short_limit(virtual_clock: VirtualClock) -> None:
    allowed = Counter[int]()

    def script(request: Request) -> Reply | Fault:
        allowed[int(request.at)] += 1
        return reply("ok") if allowed[int(request.at)] <= 3 else faults.rate_limited("1")

    done: list[str] = []
    async with served(script, [A], virtual_clock) as (pooled, server):

        async def run(number: int) -> None:
            for _ in range(3):
                done.append((await message_of(Retrying(pooled, attempts=2), ask(affinity=f"run-{number}"))).text)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(run, number)
    assert done == ["ok"] * 24 and server.count < 24 * 2


async def test_headers_slow_requests_down_before_the_first_refusal(virtual_clock: VirtualClock) -> None:
    keys = FakeKeys([A], virtual_clock.now)
    lease = keys.lease("")
    keys.observe(lease, "m")(
        {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "59s"}
    )
    pooled = Pooled("m", ModelProfile(), keys, pooled_over(ScriptedModel("m", [reply("ok")] * 3)))
    for _ in range(3):
        await message_of(pooled, ask())
    assert virtual_clock.elapsed == pytest.approx(2.0, abs=0.1)


async def test_whoever_waits_in_line_hears_of_a_long_pause(virtual_clock: VirtualClock) -> None:
    def script(request: Request) -> Reply | Fault:
        return faults.rate_limited("40") if request.at > 1 and request.at < 30 else reply("ok", delay=1.5)

    told: dict[str, list[float]] = {}
    async with served(script, [A], virtual_clock, start=2) as (pooled, _):

        async def run(name: str) -> None:
            async with Retrying(pooled).stream(ask(affinity=name)) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Announced) and isinstance(delta.event, QuotaWaiting):
                        told.setdefault(name, []).append(delta.event.seconds)

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(run, f"run-{number}")
    assert told == {f"run-{number}": [pytest.approx(40.0, abs=2.0), 0.0] for number in range(2, 6)}
