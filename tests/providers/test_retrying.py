"""Asking again: when, after how long, and what becomes of the lost attempt."""

from __future__ import annotations

import anyio
import pytest

from hermes.core.errors import ModelError, ModelErrorReason
from hermes.core.messages import Usage
from hermes.core.model import ModelProfile, Restarted
from hermes.providers.retrying import Backoff, Retrying
from hermes.testing import faults
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Disconnect
from hermes.testing.scripted import ScriptedModel, broken, hang, reply
from hermes.testing.server import ProviderServer, Request
from tests.providers.conformance import ask, deltas_of, failure_of, folded, message_of, restarts
from tests.providers.endpoints import served

pytestmark = pytest.mark.anyio


def failure(
    reason: ModelErrorReason = "server_error",
    *,
    retryable: bool = True,
    permanent: bool = False,
    wait: float | None = None,
) -> ModelError:
    return ModelError(reason, reason=reason, retryable=retryable, permanent=permanent, retry_after=wait)


async def test_errors_that_pass_are_asked_again_and_announced(virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [failure(), failure("timeout"), reply("ok")])
    deltas = await deltas_of(Retrying(model, jitter=lambda: 0.0), ask())
    assert [(item.attempt, item.reason, item.wait) for item in restarts(deltas)] == [
        (2, "server_error", 5.0),
        (3, "timeout", 10.0),
    ]
    assert folded(deltas).text == "ok" and virtual_clock.elapsed == pytest.approx(15.0)
    model.assert_complete()


async def test_the_wait_is_announced_before_it_begins(virtual_clock: VirtualClock) -> None:
    async with Retrying(ScriptedModel("m", [failure(), reply("ok")]), jitter=lambda: 1.0).stream(ask()) as stream:
        first = await anext(stream)
        assert isinstance(first, Restarted) and first.wait == 7.5 and virtual_clock.elapsed == 0
        await anext(stream)
        assert virtual_clock.elapsed == pytest.approx(7.5)


async def test_after_the_last_attempt_the_error_comes_out(virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [failure(), failure(), failure("overloaded"), reply("never")])
    error = await failure_of(Retrying(model), ask())
    assert error.reason == "overloaded" and len(model.requests) == 3


@pytest.mark.parametrize("error", [failure("auth", retryable=False), failure("unreachable", permanent=True)])
async def test_what_waiting_does_not_cure_is_not_asked_again(error: ModelError) -> None:
    model = ScriptedModel("m", [error, reply("never")])
    assert await failure_of(Retrying(model), ask()) is error
    assert len(model.requests) == 1


async def test_a_lost_attempt_is_dropped_and_its_cost_estimated(virtual_clock: VirtualClock) -> None:
    profile = ModelProfile(price_input=1.0, price_output=2.0)
    model = ScriptedModel("m", [broken(failure(), text="x" * 40), reply("whole")], profile)
    deltas = await deltas_of(Retrying(model), ask("y" * 400))
    (restarted,) = restarts(deltas)
    assert restarted.usage.estimated and restarted.usage.output == 10 and 100 <= restarted.usage.input < 130
    assert restarted.usage.cost_usd == pytest.approx((restarted.usage.input + 20) / 1e6)
    assert folded(deltas).text == "whole"


async def test_an_attempt_that_brought_nothing_cost_nothing(virtual_clock: VirtualClock) -> None:
    deltas = await deltas_of(Retrying(ScriptedModel("m", [failure(), reply("ok")])), ask())
    assert restarts(deltas)[0].usage == Usage()


@pytest.mark.parametrize(
    ("error", "failures", "jitter", "wait"),
    [
        (failure(), 1, 0.0, 5.0),
        (failure(), 2, 1.0, 15.0),
        (failure(), 9, 0.0, 120.0),
        (failure("rate_limit"), 1, 0.0, 2.0),
        (failure("rate_limit"), 9, 1.0, 90.0),
        (failure("rate_limit", wait=17.0), 1, 1.0, 17.0),
        (failure("rate_limit", wait=7200.0), 1, 1.0, 600.0),
        (failure("overloaded", wait=0.0), 3, 1.0, 0.0),
    ],
)
async def test_waits(error: ModelError, failures: int, jitter: float, wait: float) -> None:
    assert Backoff().wait(error, failures, jitter) == pytest.approx(wait)


async def test_waiting_can_be_cancelled(virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [failure("rate_limit", wait=600.0), reply("never")])
    with anyio.move_on_after(3.0) as scope:
        await deltas_of(Retrying(model), ask())
    assert scope.cancelled_caught and len(model.requests) == 1 and virtual_clock.elapsed == pytest.approx(3.0)


async def test_cancelling_an_attempt_leaves_nothing_open() -> None:
    model = ScriptedModel("m", [hang()])
    with anyio.move_on_after(0.01):
        await deltas_of(Retrying(model), ask())
    assert model.in_flight == 0


async def test_over_http_503_then_a_broken_reply_then_success(virtual_clock: VirtualClock) -> None:
    steps = [faults.overloaded(503), Disconnect(reply=reply("half of it", pieces=5), events=3), reply("all of it")]
    async with served(steps) as (model, server):
        message = await message_of(Retrying(model), ask())
    assert message.text == "all of it" and server.count == 3


@pytest.mark.fault("B069")
async def test_a_burst_over_a_short_limit_completes_whole(virtual_clock: VirtualClock) -> None:
    """Eight at once where three a second are allowed: all are answered in the end."""
    allowed: dict[int, int] = {}
    server: ProviderServer

    def script(request: Request) -> object:
        second = int(request.at)
        allowed[second] = allowed.get(second, 0) + 1
        return reply("ok") if allowed[second] <= 3 else faults.rate_limited("1")

    done: list[str] = []
    async with served(script) as (model, server):  # type: ignore[arg-type]
        retrying = Retrying(model, attempts=5)

        async def one() -> None:
            done.append((await message_of(retrying, ask())).text)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(one)
    assert done == ["ok"] * 8 and server.count <= 8 + 5 + 2


@pytest.mark.fault("B056")
async def test_a_refused_key_is_final_at_once(virtual_clock: VirtualClock) -> None:
    async with served([faults.bad_key()]) as (model, server):
        error = await failure_of(Retrying(model), ask())
    assert error.reason == "auth" and server.count == 1 and virtual_clock.elapsed < 1


@pytest.mark.fault("B006")
async def test_a_rate_limit_is_never_taken_for_a_conversation_that_is_too_long(virtual_clock: VirtualClock) -> None:
    words = "Request too large: tokens per minute limit of the context tier reached, maximum context length unaffected"
    async with served([faults.rate_limited("1", words)] * 3, profile=ModelProfile(window=100)) as (model, _):
        error = await failure_of(Retrying(model), ask("word " * 1_000))
    assert error.reason == "rate_limit"


async def test_what_fails_while_the_network_comes_back_uses_no_attempt_up(virtual_clock: VirtualClock) -> None:
    steps = [
        failure("suspended"),
        failure("unreachable", retryable=False, permanent=True),
        *(failure("timeout") for _ in range(6)),
        reply("ok"),
    ]
    model = ScriptedModel("m", steps)
    deltas = await deltas_of(Retrying(model, attempts=1, woke=lambda: virtual_clock.elapsed < 60), ask())
    assert [(item.attempt, item.wait) for item in restarts(deltas)] == [
        (1, wait) for wait in (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
    ]
    assert folded(deltas).text == "ok"
    model.assert_complete()


async def test_a_network_that_stays_away_fails_as_ever(virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [failure("unreachable") for _ in range(30)])
    error = await failure_of(Retrying(model, attempts=2, woke=lambda: virtual_clock.elapsed < 60), ask())
    assert error.reason == "unreachable" and 60 <= virtual_clock.elapsed < 75


async def test_what_the_provider_refuses_counts_also_after_a_sleep(virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [failure("rate_limit") for _ in range(3)])
    await failure_of(Retrying(model, attempts=2, woke=lambda: True), ask())
    assert len(model.requests) == 2
