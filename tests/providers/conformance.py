"""What every `Model` has to keep, whatever is behind it. Subclass it and give `opened`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import msgspec
import pytest

from hermes.core.assemble import Assembler
from hermes.core.errors import ModelError
from hermes.core.messages import Assistant, Text, Usage, User
from hermes.core.model import Delta, Model, ModelRequest, Restarted, Stop, ToolSpec
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import Reply, call, reply

TERMINAL = ToolSpec(
    name="terminal",
    description="Run a command.",
    parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)


def ask(text: str = "go", **more: Any) -> ModelRequest:
    return ModelRequest(system="Be useful.", entries=(User(content=(Text(text),)),), tools=(TERMINAL,), **more)


async def deltas_of(model: Model, request: ModelRequest) -> list[Delta]:
    async with model.stream(request) as stream:
        return [delta async for delta in stream]


async def message_of(model: Model, request: ModelRequest) -> Assistant:
    return folded(await deltas_of(model, request), model.name)


def folded(deltas: Sequence[Delta], model: str = "m") -> Assistant:
    assembler = Assembler()
    for delta in deltas:
        assembler.push(delta)
    return assembler.finish(model=model, at=0.0, estimate=Usage(estimated=True))


async def failure_of(model: Model, request: ModelRequest) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await deltas_of(model, request)
    return caught.value


class ModelConformance:
    """The contract. `opened(steps)` gives a model that answers with `steps`, one a request.

    `cut_off` is the format's own word for a reply that is too long, `unreported` what its usage report leaves out.
    """

    cut_off = "length"
    unreported: frozenset[str] = frozenset()

    def opened(self, steps: Sequence[Any]) -> AbstractAsyncContextManager[Model]:
        raise NotImplementedError

    @pytest.mark.anyio
    @pytest.mark.parametrize("pieces", [1, 3])
    async def test_text_and_reasoning(self, pieces: int) -> None:
        made = reply("Grüße 🌍 to all", thinking="hm, 考える", pieces=pieces)
        async with self.opened([made]) as model:
            message = await message_of(model, ask())
        assert (message.text, message.thinking, message.stop) == ("Grüße 🌍 to all", "hm, 考える", "stop")

    @pytest.mark.anyio
    @pytest.mark.parametrize("pieces", [1, 4])
    async def test_parallel_calls_in_order(self, pieces: int) -> None:
        calls = [call("terminal", call_id=f"id{n}", command=f"echo {n} é") for n in range(3)]
        async with self.opened([reply("look", calls=calls, pieces=pieces)]) as model:
            message = await message_of(model, ask())
        assert [item.arguments for item in message.calls] == [{"command": f"echo {n} é"} for n in range(3)]
        assert [item.id for item in message.calls] == ["id0", "id1", "id2"]
        assert message.stop == "tool_calls"

    @pytest.mark.anyio
    async def test_a_call_without_arguments_and_one_that_is_no_json(self) -> None:
        calls = [call("todo", raw=""), call("terminal", raw='{"command": "ls')]
        async with self.opened([reply(calls=calls)]) as model:
            message = await message_of(model, ask())
        assert message.calls[0].arguments == {} and not message.calls[0].invalid
        assert message.calls[1].invalid and message.calls[1].raw == '{"command": "ls'

    @pytest.mark.anyio
    async def test_usage_is_reported_and_comes_before_the_one_stop(self) -> None:
        usage = Usage(input=100, output=20, cached=60, reasoning=7, cost_usd=0.25)
        async with self.opened([reply("x", usage=usage)]) as model:
            deltas = await deltas_of(model, ask())
        nothing = Usage()
        known = {name: getattr(nothing, name) for name in self.unreported}
        assert folded(deltas).usage == msgspec.structs.replace(usage, **known)
        assert [isinstance(delta, Stop) for delta in deltas].count(True) == 1
        assert isinstance(deltas[-1], Stop)

    @pytest.mark.anyio
    async def test_a_reply_cut_by_length_says_so(self) -> None:
        async with self.opened([reply("half a", finish="length")]) as model:
            message = await message_of(model, ask())
        assert (message.text, message.stop, message.finish) == ("half a", "length", self.cut_off)

    @pytest.mark.anyio
    async def test_the_request_is_not_changed(self) -> None:
        request = ask(extra={"seed": 1}, prefill=({"role": "user", "content": "a"},))
        before = msgspec.json.encode(request)
        async with self.opened([reply("x")]) as model:
            await deltas_of(model, request)
        assert msgspec.json.encode(request) == before

    @pytest.mark.anyio
    async def test_it_can_be_cancelled_before_the_first_delta_and_asked_again(
        self, virtual_clock: VirtualClock
    ) -> None:
        async with self.opened([reply("late", delay=3600.0), reply("now")]) as model:
            with anyio.move_on_after(5.0) as scope:  # simulated: it passes when the request has arrived
                await deltas_of(model, ask())
            assert scope.cancelled_caught
            assert (await message_of(model, ask())).text == "now"

    @pytest.mark.anyio
    async def test_it_can_be_cancelled_in_the_middle_and_asked_again(self, virtual_clock: VirtualClock) -> None:
        slow: Reply = reply("a b c d", thinking="t", pieces=4, gap=3600.0)
        seen: list[Delta] = []
        async with self.opened([slow, reply("now")]) as model:
            with anyio.move_on_after(5.0) as scope:
                async with model.stream(ask()) as stream:
                    async for delta in stream:
                        seen.append(delta)
            assert scope.cancelled_caught and not any(isinstance(delta, Stop) for delta in seen)
            assert (await message_of(model, ask())).text == "now"

    @pytest.mark.anyio
    async def test_a_reply_may_be_left_early(self) -> None:
        async with self.opened([reply("a b c d", pieces=4), reply("again")]) as model:
            async with model.stream(ask()) as stream:
                await anext(stream)
            assert (await message_of(model, ask())).text == "again"

    @pytest.mark.anyio
    async def test_many_at_once(self) -> None:
        texts: list[str] = []

        async def one(model: Model) -> None:
            texts.append((await message_of(model, ask())).text)

        async with self.opened([reply(f"answer {n}", delay=0.01) for n in range(20)]) as model:
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(one, model)
        assert sorted(texts) == sorted(f"answer {n}" for n in range(20))


def restarts(deltas: Sequence[Delta]) -> list[Restarted]:
    return [delta for delta in deltas if isinstance(delta, Restarted)]
