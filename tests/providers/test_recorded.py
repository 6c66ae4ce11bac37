"""What a model answered, kept and given again: the same message, the same failure, the same open end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from hermes.core.errors import ModelError
from hermes.core.messages import Usage
from hermes.core.model import (
    Announced,
    CallArguments,
    CallStarted,
    Model,
    ModelProfile,
    ModelRequest,
    Restarted,
    Stop,
    TextDelta,
    UsageReport,
)
from hermes.providers.recorded import KeptReply, Recorded, Replayed
from hermes.providers.retrying import Retrying
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Disconnect
from hermes.testing.scripted import ScriptedModel, broken, call, hang, reply
from tests.providers.conformance import ask, deltas_of, failure_of, folded, message_of
from tests.providers.endpoints import endpoint_with

pytestmark = pytest.mark.anyio


def keeping(model: Model) -> tuple[Recorded, list[KeptReply]]:
    kept: list[KeptReply] = []

    def keep(request: ModelRequest) -> Callable[[KeptReply], None]:
        return kept.append

    return Recorded(model, keep), kept


def again(kept: KeptReply) -> Replayed:
    """A model that answers with what was kept, once it was written and read."""
    read = msgspec.json.decode(msgspec.json.encode(kept), type=KeptReply)

    async def take(request: ModelRequest) -> KeptReply:
        return read

    return Replayed("m", ModelProfile(), take)


async def test_a_reply_comes_again_in_few_pieces() -> None:
    made = reply("a b c d", thinking="why not", calls=[call("terminal", call_id="1", command="ls")], pieces=4)
    model, kept = keeping(ScriptedModel("m", [made]))
    first = await message_of(model, ask())
    second = await message_of(again(kept[0]), ask())
    assert second == first and len(kept) == 1
    texts = [delta for delta in kept[0].deltas if isinstance(delta, (TextDelta, CallStarted, CallArguments))]
    assert len(texts) == 3


async def test_a_failure_comes_again_after_what_came_before_it() -> None:
    error = ModelError("m is overloaded", reason="overloaded", status=529, retry_after=7.0, retryable=True)
    model, kept = keeping(ScriptedModel("m", [broken(error, text="half")]))
    await failure_of(model, ask())
    found = await failure_of(again(kept[0]), ask())
    assert (str(found), found.reason, found.status, found.retry_after) == (str(error), "overloaded", 529, 7.0)
    assert not found.retryable, "what was recorded is past its retries"
    assert kept[0].deltas[0] == TextDelta("half")


async def test_a_lost_attempt_leaves_its_cost_and_nothing_else(virtual_clock: VirtualClock) -> None:
    cut = Disconnect(reply=reply("half a reply", pieces=4), events=4)
    async with endpoint_with([cut, reply("whole", usage=Usage(input=9, output=1))]) as inner:
        model, kept = keeping(Retrying(inner))
        first = folded(await deltas_of(model, ask()))
    deltas = kept[0].deltas
    assert isinstance(deltas[0], Restarted) and deltas[0].usage.output > 0 and deltas[0].wait == 0
    assert not any("half" in str(delta) for delta in deltas) and not any(isinstance(one, Announced) for one in deltas)
    second = folded(await deltas_of(again(kept[0]), ask()))
    assert (second.text, second.usage) == (first.text, first.usage) == ("whole", first.usage)


@pytest.mark.parametrize("step", [hang(), reply("a b c d", pieces=4, gap=60.0)])
async def test_a_reply_that_was_left_stays_open(virtual_clock: VirtualClock, step: Any) -> None:
    model, kept = keeping(ScriptedModel("m", [step]))
    with anyio.move_on_after(90):
        await deltas_of(model, ask())
    assert kept[0].cut and not any(isinstance(delta, (Stop, UsageReport)) for delta in kept[0].deltas)
    with anyio.move_on_after(1_000) as scope:
        await deltas_of(again(kept[0]), ask())
    assert scope.cancelled_caught
