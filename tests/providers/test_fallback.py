"""Another model answers where the configured one cannot, for that one request."""

from __future__ import annotations

import pytest

from hermes.core.errors import ConfigError, ModelError, ModelErrorReason
from hermes.core.events import FallbackUsed
from hermes.core.model import Announced, Model, ModelProfile
from hermes.providers.fallback import FEWER_ATTEMPTS, Fallback
from hermes.providers.rate_headers import RateReport, read_rate_headers
from hermes.providers.retrying import Retrying
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import ScriptedModel, broken, reply
from tests.providers.conformance import ask, deltas_of, failure_of, folded, restarts

pytestmark = pytest.mark.anyio


def failure(reason: ModelErrorReason, *, retryable: bool = False) -> ModelError:
    return ModelError(reason, reason=reason, retryable=retryable)


@pytest.mark.parametrize("reason", ["auth", "billing", "model_not_found", "rate_limit", "format_error", "server_error"])
async def test_the_next_model_answers_and_the_next_request_begins_with_the_first(reason: ModelErrorReason) -> None:
    first = ScriptedModel("first", [failure(reason), reply("from the first")])
    other = ScriptedModel("other", [reply("from the other")])
    model = Fallback(first, [lambda: other])
    deltas = await deltas_of(model, ask("one"))
    assert folded(deltas).text == "from the other"
    assert [delta.event for delta in deltas if isinstance(delta, Announced)] == [
        FallbackUsed(model="other", reason=reason)
    ]
    assert folded(await deltas_of(model, ask("one"))).text == "from the first"
    assert (model.name, model.profile) == ("first", first.profile)


@pytest.mark.parametrize("reason", ["context_overflow", "payload_too_large", "content_policy_blocked"])
async def test_what_another_model_does_not_cure_is_raised(reason: ModelErrorReason) -> None:
    other = ScriptedModel("other", [reply("never")])
    error = await failure_of(Fallback(ScriptedModel("first", [failure(reason)]), [lambda: other]), ask())
    assert error.reason == reason and other.requests == []


async def test_a_broken_connection_is_asked_once_more_before_another_model(virtual_clock: VirtualClock) -> None:
    first = ScriptedModel("first", [failure("timeout", retryable=True)] * 2)
    model = Fallback(Retrying(first, 3, fewer=FEWER_ATTEMPTS), [lambda: ScriptedModel("other", [reply("ok")])])
    deltas = await deltas_of(model, ask())
    assert folded(deltas).text == "ok" and [item.attempt for item in restarts(deltas)] == [2, 3]
    first.assert_complete()


async def test_what_came_of_a_lost_reply_is_dropped_and_charged() -> None:
    first = ScriptedModel("first", [broken(failure("server_error"), text="x" * 40)], ModelProfile(price_output=1e6))
    deltas = await deltas_of(Fallback(first, [lambda: ScriptedModel("other", [reply("whole")])]), ask("y" * 400))
    (restarted,) = restarts(deltas)
    assert folded(deltas).text == "whole" and restarted.usage.output == 10 and restarted.usage.estimated


async def test_one_that_cannot_be_had_is_passed_over_and_the_last_failure_comes_out() -> None:
    def missing() -> Model:
        raise ConfigError("no key for it")

    first = ScriptedModel("first", [failure("auth")])
    last = ScriptedModel("last", [failure("billing")])
    error = await failure_of(Fallback(first, [missing, lambda: last]), ask())
    assert error.reason == "billing"
    alone = await failure_of(Fallback(ScriptedModel("first", [failure("auth")]), [missing]), ask())
    assert alone.reason == "auth" and alone.__notes__ == ["no fallback: no key for it"]


@pytest.mark.parametrize(
    ("headers", "reports"),
    [
        ({}, ()),
        (
            {
                "x-ratelimit-limit-requests": "60",
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-limit-tokens": "150000",
                "x-ratelimit-remaining-tokens": "149984",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            (RateReport("requests", 60, 59, 1.0), RateReport("tokens", 150_000, 149_984, 360.0)),
        ),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:25Z",
            },
            (RateReport("requests", 50, 49, 5.0),),
        ),
        ({"x-ratelimit-limit-requests": "many", "x-ratelimit-reset-requests": "1s"}, ()),
        ({"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "1"}, ()),
    ],
)
def test_headers_of_limits(headers: dict[str, str], reports: tuple[RateReport, ...]) -> None:
    assert read_rate_headers(headers, 1_700_000_000.0) == reports
