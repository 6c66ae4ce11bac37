"""The scripted model fails where an agent's test should fail."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from hermes.core.errors import ModelError
from hermes.core.messages import Assistant, Summary, Text, User
from hermes.core.model import ModelRequest
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import EndlessModel, Reply, ScriptedModel, UnexpectedCall, call, reply
from tests.providers.conformance import deltas_of, message_of

pytestmark = pytest.mark.anyio


def user(text: str) -> User:
    return User(content=(Text(text),))


def ask(*entries: Any, system: str = "s", **more: Any) -> ModelRequest:
    return ModelRequest(system=system, entries=entries or (user("go"),), **more)


async def test_a_call_without_a_step_fails() -> None:
    model = ScriptedModel("m", [])
    with pytest.raises(UnexpectedCall, match="no step is left"):
        await deltas_of(model, ask())
    with pytest.raises(AssertionError, match="no step is left"):
        model.assert_complete()


async def test_a_step_that_nobody_asked_for_fails() -> None:
    model = ScriptedModel("m", [reply("a"), reply("b")])
    await deltas_of(model, ask())
    with pytest.raises(AssertionError, match="1 steps were never asked for"):
        model.assert_complete()


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        (ask(user("go"), Assistant(text="b"), system="t"), "system prompt"),
        (ask(user("go")), ""),
        (ask(user("go"), Assistant(text="a")), ""),
        (ask(user("go"), user("more"), Assistant(text="a")), ""),
        (ask(user("go"), Assistant(text="changed"), user("x")), "entry 1 changed"),
    ],
)
async def test_each_request_has_to_extend_the_one_before(after: ModelRequest, problem: str) -> None:
    model = ScriptedModel("m", [reply("a"), reply("b"), reply("c")])
    await deltas_of(model, ask())
    if problem.startswith("entry"):
        await deltas_of(model, ask(user("go"), Assistant(text="a")))
    if problem:
        with pytest.raises(UnexpectedCall, match=problem):
            await deltas_of(model, after)
    else:
        await deltas_of(model, after)


async def test_a_compacted_history_is_a_new_segment() -> None:
    model = ScriptedModel("m", [reply("a"), reply("b")])
    await deltas_of(model, ask(user("go"), Assistant(text="x"), user("y")))
    await deltas_of(model, ask(Summary(text="so far", upto=1), Assistant(text="x"), user("z"), system="other"))


async def test_scripts_by_task() -> None:
    scripts = {"count lines": [reply("3")], "list": [reply("a b")]}
    model = ScriptedModel("m", [reply("main")], scripts=scripts)
    assert (await message_of(model, ask(user("please count lines of x")))).text == "3"
    assert (await message_of(model, ask(user("list")))).text == "a b"
    assert (await message_of(model, ask(user("else")))).text == "main"
    model.assert_complete()


async def test_steps_may_be_functions_and_errors() -> None:
    model = ScriptedModel("m", [lambda request: reply(request.system), ModelError("x", reason="timeout")])
    assert (await message_of(model, ask())).text == "s"
    with pytest.raises(ModelError):
        await deltas_of(model, ask())


async def test_a_step_that_waits_answers_once_something_has_happened() -> None:
    happened = anyio.Event()

    async def step(request: ModelRequest) -> Reply:
        await happened.wait()
        return reply("now")

    model, said = ScriptedModel("m", [step]), []

    async def listen() -> None:
        said.append((await message_of(model, ask())).text)

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        assert model.in_flight == 1 and said == []
        happened.set()
    assert said == ["now"]


async def test_what_is_no_step_is_said() -> None:
    with pytest.raises(UnexpectedCall, match="is no step"):
        await deltas_of(ScriptedModel("m", ["text"]), ask())  # type: ignore[list-item]


async def test_delays_pass_on_the_virtual_clock(virtual_clock: VirtualClock) -> None:
    model = EndlessModel(lambda _request: reply("x", calls=[call("t")], delay=60.0))
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(deltas_of, model, ask())
    assert virtual_clock.elapsed == pytest.approx(60.0) and model.count == model.peak == 50
