"""What is changed of a session when it is taken up, or in the middle of it, holds for good."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hermes.core.errors import UsageError
from hermes.core.limits import Limits
from hermes.core.messages import Assistant, Summary, ToolResult, Usage, User
from hermes.core.model import ModelProfile
from hermes.runtime.rows import stored_spec
from hermes.runtime.spec import ModelChoice, TaskSpec
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel, call, reply

pytestmark = pytest.mark.anyio

TODO = reply(calls=[call("todo", todos=[])])


def another_model(spec: TaskSpec) -> TaskSpec:
    return msgspec.structs.replace(spec, model=ModelChoice(name="n"))


def kinds(model: ScriptedModel, number: int = -1) -> list[type]:
    return [type(entry) for entry in model.requests[number].entries]


async def spec_of(lab: Lab, session: str) -> TaskSpec:
    return stored_spec((await lab.runtime.store.tasks(session))[0])


async def test_another_model_starts_a_segment_that_shows_everything(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", [TODO, reply("one")]), workspace=tmp_path, memory=False) as lab:
        task = await lab.start("go")
        await lab.runtime.result(task)
        session = task.scope.session_id
    second = ScriptedModel("n", [reply("two")])
    async with open_lab(second, workspace=tmp_path, memory=False) as lab:
        again = await lab.assembly.recovery.adopt(session, say="more", revise=another_model)
        await lab.runtime.result(again)
        assert (await spec_of(lab, session)).model.name == "n"
        segment = await lab.runtime.store.segment(task.id)
        assert segment is not None and segment.segment == 1
        assert (await lab.runtime.store.sessions())[0].model == "n"
    third = ScriptedModel("n", [reply("three")], check=False)
    async with open_lab(third, workspace=tmp_path, memory=False) as lab:
        again = await lab.assembly.recovery.adopt(session, say="and more")
        await lab.runtime.result(again)
        assert again.spec.model.name == "n"
        segment = await lab.runtime.store.segment(task.id)
        assert segment is not None and segment.segment == 1
    assert kinds(second) == [Summary, User, Assistant, ToolResult, Assistant, User]
    assert kinds(third) == [*kinds(second), Assistant, User]
    assert third.requests[0].entries[:6] == second.requests[0].entries
    assert third.requests[0].system == second.requests[0].system


async def test_a_summary_is_repeated_by_the_segment_of_another_model(tmp_path: Path) -> None:
    small = ModelProfile(window=1_000)
    settings = {"compression.protect_last_n": 2}
    first = ScriptedModel(
        "m",
        [reply("a"), reply("b", usage=Usage(input=900, output=9)), reply("what was said"), reply("one")],
        profile=small,
        check=False,
    )
    async with open_lab(first, workspace=tmp_path, memory=False, settings=settings) as lab:
        session = await lab.converse(toolsets=("todo",))
        for text in ("begin", "go on", "and on"):
            await session.exchange(text)
        sid, task = session.id, session.task
        assert type(task.history.view()[0]) is Summary  # type: ignore[union-attr]
        shown = task.history.view()  # type: ignore[union-attr]
    second = ScriptedModel("n", [reply("two")])
    async with open_lab(second, workspace=tmp_path, memory=False, settings=settings) as lab:
        again = await lab.assembly.recovery.adopt(sid, say="more", interactive=False, revise=another_model)
        await lab.runtime.result(again)
    entries = second.requests[0].entries
    assert isinstance(entries[0], Summary) and entries[0].text == "what was said"
    assert [entry for entry in entries if isinstance(entry, Summary)] == [entries[0]]
    assert entries[1:-1] == shown[1:]


async def test_other_tools_of_a_task_that_goes_on_are_a_segment(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", [reply("one")]), workspace=tmp_path, memory=False) as lab:
        task = await lab.start("go", toolsets=("file", "todo"))
        await lab.runtime.result(task)
        session = task.scope.session_id
    second = ScriptedModel("m", [reply("two")])

    def fewer(spec: TaskSpec) -> TaskSpec:
        return msgspec.structs.replace(spec, toolsets=("todo",), ceiling=("todo",))

    async with open_lab(second, workspace=tmp_path, memory=False) as lab:
        await lab.runtime.result(await lab.assembly.recovery.adopt(session, say="more", revise=fewer))
    assert [tool.name for tool in second.requests[0].tools] == ["todo"]


async def test_a_budget_that_was_changed_holds_after_a_restart(tmp_path: Path) -> None:
    priced = ModelProfile(price_input=1.0, price_output=1.0)
    first = ScriptedModel("m", [reply("one", usage=Usage(input=300_000, output=1))], profile=priced)
    async with open_lab(first, workspace=tmp_path, memory=False) as lab:
        session = await lab.converse()
        await session.exchange("go")
        await session.limit(Limits(cost_usd=0.2, priced_only=True))
        sid = session.id
    async with open_lab(ScriptedModel("m", [], profile=priced), workspace=tmp_path, memory=False) as lab:
        again = await lab.assembly.recovery.adopt(sid, say="more", interactive=False)
        result = await lab.runtime.result(again)
        assert (result.state, result.exit_reason) == ("exhausted", "budget")
        assert "cost limit of $0.2" in result.error


async def test_a_limit_that_cannot_be_held_is_refused_before_anything_changes(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", [reply("one")]), workspace=tmp_path, memory=False) as lab:
        task = await lab.start("go")
        await lab.runtime.result(task)
        before = await lab.runtime.store.task(task.id)

        def dear(spec: TaskSpec) -> TaskSpec:
            limits = Limits(cost_usd=1.0, priced_only=True)
            return msgspec.structs.replace(spec, model=ModelChoice(name="own/unknown"), session=limits)

        with pytest.raises(UsageError, match="the price of"):
            await lab.assembly.recovery.adopt(task.scope.session_id, say="more", revise=dear)
        assert await lab.runtime.store.task(task.id) == before
