"""What the words of a refusal say of a limit, where no header does."""

from __future__ import annotations

import anyio
import pytest

from hermes.providers.rate_headers import RateReport, names_tokens, read_rate_text
from hermes.providers.retrying import Retrying
from hermes.testing import faults
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Fault
from hermes.testing.scripted import Reply, reply
from hermes.testing.server import Request
from tests.providers.conformance import ask, message_of
from tests.providers.test_pooled import A, served

TPM = "Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 28500, Requested 2500. Try again in 2s."


@pytest.mark.parametrize(
    ("text", "report", "tokens"),
    [
        (TPM, RateReport("tokens", 30_000.0, 1_500.0, 57.0), True),
        ("on requests per min (RPM): Limit 3, Used 3, Requested 1.", RateReport("requests", 3.0, 0.0, 60.0), False),
        (
            "This request would exceed your organization's rate limit of 40,000 input tokens per minute.",
            RateReport("tokens", 40_000.0, 0.0, 60.0),
            True,
        ),
        ("limit of 50 requests per minute", RateReport("requests", 50.0, 0.0, 60.0), False),
        ("Too many tokens, slow down", None, True),
        ("Rate limit reached, slow down", None, False),
        ("this model's maximum context length is 8192 tokens", None, False),
        ("tokens per min (TPM): Limit 0, Used 0", None, True),
    ],
)
def test_a_refusal_names_its_limit(text: str, report: RateReport | None, tokens: bool) -> None:
    assert (read_rate_text(text), names_tokens(text)) == (report, tokens)


@pytest.mark.anyio
async def test_what_the_words_say_holds_for_the_next_requests(virtual_clock: VirtualClock) -> None:
    def script(request: Request) -> Reply | Fault:
        said = "Rate limit reached on requests per min (RPM): Limit 60, Used 60, Requested 1."
        return faults.rate_limited("1", said) if request.at < 0.5 else reply("ok")

    async with served(script, [A], virtual_clock) as (pooled, server):
        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(message_of, Retrying(pooled), ask(affinity=f"run-{number}"))
        assert virtual_clock.elapsed == pytest.approx(6.0, abs=1.5)  # one a second
        assert server.count == 12
