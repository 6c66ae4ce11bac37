"""Questions of a model to its person: answered, left alone, refused; and the same call after a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.core.events import ApprovalAnswered, ApprovalAsked, Envelope
from hermes.core.messages import ToolResult, plain_text
from hermes.runtime.asking import Asker, Question
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel, call, reply
from hermes.tools.clarify import ClarifyArguments

pytestmark = pytest.mark.anyio

ASK = reply(calls=[call("clarify", question="Which port?", choices=["8080", " 9090 ", "8080", ""])])


def result(model: ScriptedModel, index: int = -1) -> dict[str, Any]:
    found = [entry for entry in model.requests[-1].entries if isinstance(entry, ToolResult)]
    value: dict[str, Any] = json.loads(plain_text(found[index].content))
    return value


class Friend:
    """A person who says one thing; an empty one is silence."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.asked: list[Question] = []

    async def __call__(self, question: Question) -> str:
        self.asked.append(question)
        return self.words


async def talk(lab: Lab, goal: str = "go") -> None:
    session = await lab.converse(toolsets=("clarify", "async_delegation", "delegation"))
    await session.exchange(goal)
    await session.close()


async def test_the_answer_of_a_person(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model, told = ScriptedModel("m", [ASK, reply("done")]), list[Envelope]()
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        lab.runtime.gate.asker = friend = Friend("9090")
        lab.runtime.bus.subscribe(told.append, types=(ApprovalAsked, ApprovalAnswered))
        await talk(lab)
    assert result(model) == {"question": "Which port?", "choices_offered": ["8080", "9090"], "user_response": "9090"}
    assert [(each.open, each.what, each.timeout, each.path) for each in friend.asked] == [
        (True, "Which port?", 3600, ("",))
    ]
    asked, answered = (envelope.event for envelope in told)
    assert isinstance(asked, ApprovalAsked) and asked.choices == ("8080", "9090")
    assert isinstance(answered, ApprovalAnswered) and answered.answer == "9090" and answered.by == "user"


async def test_nobody_is_there(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [ASK, reply("assumed 8080")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        outcome = await lab.ask("go", toolsets=("clarify",))
    assert outcome.summary == "assumed 8080"
    assert result(model)["user_response"] is None and "nobody is here to be asked" in result(model)["note"]


async def silent(question: Question) -> str:
    await anyio.sleep_forever()
    return ""


@pytest.mark.parametrize(
    ("person", "why"),
    [(silent, "nobody answered within 60 s"), (Friend(""), "nobody is here any more")],
)
async def test_a_silent_person_is_waited_for_and_then_left_alone(
    tmp_path: Path, virtual_clock: VirtualClock, person: Asker, why: str
) -> None:
    model = ScriptedModel("m", [ASK, reply("on my own")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings={"agent.clarify_timeout": 60}) as lab:
        lab.runtime.gate.asker = person
        await talk(lab)
    assert why in result(model)["note"]


async def test_children_have_no_person(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    start = reply(calls=[call("delegate_task", goal="dig", toolsets=["clarify"])])
    model = ScriptedModel("m", [start, reply("end")], scripts={"dig": [reply("dug")]})
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await talk(lab)
    child = next(request for request in model.requests if "dig" in str(request.entries[0]))
    assert "clarify" not in {tool.name for tool in child.tools}
    assert "clarify" in {tool.name for tool in model.requests[0].tools}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"question": " "}, "is empty"),
        ({"question": "x" * 5_000}, "5000 characters"),
        ({"question": "a?", "choices": [str(number) for number in range(9)]}, "9 choices are too many"),
        ({"question": "a?", "choices": ["y" * 300]}, "over 200 characters"),
        ({"choices": ["a"]}, "question"),
    ],
)
async def test_wrong_arguments(
    tmp_path: Path, virtual_clock: VirtualClock, arguments: dict[str, Any], words: str
) -> None:
    model = ScriptedModel("m", [reply(calls=[call("clarify", **arguments)]), reply("done")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        lab.runtime.gate.asker = friend = Friend("yes")
        await talk(lab)
    assert words in result(model)["error"] and not friend.asked
    assert ClarifyArguments(question="a").choices is None


async def left_at_the_question(model: ScriptedModel, options: dict[str, Any]) -> str:
    """A conversation whose process ends while a question is open."""
    async with open_lab(model, **options) as lab:
        lab.runtime.gate.asker = silent
        session = await lab.converse(toolsets=("clarify",))
        await session.say("go")
        while lab.runtime.bus.tree.tasks[session.task.id].phase != "approval":
            await anyio.sleep(0.01)
        await lab.runtime.supervisor.shutdown()
    return session.id


async def test_what_was_open_when_the_process_ended_is_asked_again(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [ASK, reply("done")])
    options: dict[str, Any] = {"workspace": tmp_path, "clock": virtual_clock, "memory": False}
    session = await left_at_the_question(model, options)
    async with open_lab(model, **options) as lab:
        lab.runtime.gate.asker = friend = Friend("9090")
        task = await lab.assembly.recovery.adopt(session, interactive=True)
        while lab.runtime.bus.tree.tasks[task.id].phase != "idle":
            await anyio.sleep(0.01)
    assert len(friend.asked) == 1 and result(model)["user_response"] == "9090"
    model.assert_complete()


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_question_goes_along_with_its_work_and_waits_for_who_left_it(
    tmp_path: Path, virtual_clock: VirtualClock, comes_back: bool
) -> None:
    model = ScriptedModel("m", [ASK, reply("done")])
    options: dict[str, Any] = {"workspace": tmp_path, "clock": virtual_clock, "memory": False}
    session = await left_at_the_question(model, options)
    async with open_lab(model, **options) as lab:  # the process of the home in which detached work goes on
        lab.runtime.gate.person.returns = True
        task = await lab.assembly.recovery.adopt(session)
        await anyio.sleep(3_500)
        assert lab.runtime.bus.tree.tasks[task.id].phase == "approval" and model.in_flight == 0
        if comes_back:
            await lab.runtime.supervisor.let_go(session, "it goes on elsewhere", patience=0.0)
        else:
            await anyio.sleep(200)
    if comes_back:
        async with open_lab(model, **options) as lab:
            lab.runtime.gate.asker = friend = Friend("9090")
            task = await lab.assembly.recovery.adopt(session, interactive=True)
            while lab.runtime.bus.tree.tasks[task.id].phase != "idle":
                await anyio.sleep(0.01)
        assert len(friend.asked) == 1 and result(model)["user_response"] == "9090"
    else:
        assert "nobody answered within 3600 s" in result(model)["note"]
    model.assert_complete()
