"""Half-done rollouts: a later process goes on with them where they stand, and asks the model for nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.batch.execute import RuntimeEngine
from hermes.batch.identity import session_name
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.compose import Parts, open_runtime
from hermes.config import find_home, load
from hermes.core.messages import Assistant, ToolResult, User, plain_text
from hermes.core.model import Model
from hermes.credentials import Endpoint
from hermes.runtime.spec import ModelChoice
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import ScriptedModel, call, hang, reply

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(model: Model, tmp_path: Path, clock: VirtualClock) -> AsyncIterator[RuntimeEngine]:
    parts = Parts(
        loaded=load(find_home({"HERMES_HOME": str(tmp_path / "home")}), {}, {}),
        endpoint=Endpoint(provider="test", base_url="", api_key="", key_source="none", model=model.name),
        model=model,
        journal=tmp_path / "run.db",
        watchdog=False,
        clock=clock,
        hold=clock,
        state_root=tmp_path / "state",
    )
    async with open_runtime(parts) as assembly:
        engine = RuntimeEngine(
            assembly.runtime,
            model=model,
            choice=ModelChoice(name=model.name),
            ceiling=("delegation",),
            recovery=assembly.recovery,
            hold=clock,
        )
        await engine.look()
        yield engine


def asked(tmp_path: Path, prompt: str = "go", toolsets: Sequence[str] = ("todo",), **more: object) -> RolloutRequest:
    return RolloutRequest(
        key="aa:0:0",
        index=0,
        prompt=prompt,
        workspace=str(tmp_path),
        toolsets=tuple(toolsets),
        **more,  # type: ignore[arg-type]
    )


NAME = session_name("aa:0:0", 1)
PLAN = call("todo", todos=[{"id": "1", "content": "look", "status": "pending"}])


@pytest.mark.fault("B120")
async def test_a_rollout_that_was_cut_off_goes_on_from_its_last_step(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    phases: list[str] = []
    first = ScriptedModel("m", scripts={"go": [reply(calls=[PLAN]), hang()]})
    async with opened(first, tmp_path, virtual_clock) as engine:
        with anyio.move_on_after(50):
            await engine.run(asked(tmp_path, report=phases.append))
        assert list(engine.begun()) == [NAME]
    assert phases.count("model") == 2
    second = _going_on("done")
    async with opened(second, tmp_path, virtual_clock) as engine:
        assert list(engine.begun()) == [NAME]
        result = await engine.run(asked(tmp_path))
        assert result.state == "completed" and result.api_calls == 3, "the one that was cut off was paid for"
        assert [type(entry) for entry in result.entries] == [User, Assistant, ToolResult, Assistant]
        assert result.call_success == {"1:0": True} and result.calls == 1
        engine.settled("aa:0:0", 1)
        assert not engine.begun()
    async with opened(_going_on("again"), tmp_path, virtual_clock) as engine:
        assert not engine.begun(), "the working rows go once the record is synced"


def _going_on(text: str) -> ScriptedModel:
    return ScriptedModel("m", scripts={"go": [reply(text)]})


async def test_a_rollout_that_ended_and_was_not_written_up_is_not_asked_again(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    scripts = {
        "go": [reply(calls=[call("delegate_task", goal="a part")]), reply("all")],
        "a part": [reply("its report")],
    }
    async with opened(ScriptedModel("m", scripts=scripts), tmp_path, virtual_clock) as engine:
        before = await engine.run(asked(tmp_path, toolsets=("delegation",)))
    async with opened(ScriptedModel("m", scripts={}), tmp_path, virtual_clock) as engine:
        after = await engine.run(asked(tmp_path, toolsets=("delegation",)))
    assert _essence(after) == _essence(before)
    assert [child.entries for child in after.children] == [child.entries for child in before.children]


def _essence(result: RolloutResult) -> tuple[object, ...]:
    return (
        result.state,
        result.entries,
        result.usage,
        result.api_calls,
        result.tools,
        result.call_success,
        result.duration,
        [(child.task_id, child.parent_id, child.goal, child.state, child.usage) for child in result.children],
    )


async def test_what_is_not_wanted_any_more_goes(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    async with opened(_going_on("done"), tmp_path, virtual_clock) as engine:
        await engine.run(asked(tmp_path))
        assert list(engine.begun()) == [NAME]
        engine.keep_only([NAME])
        assert list(engine.begun()) == [NAME]
        engine.keep_only([])
        assert not engine.begun()


async def test_a_row_of_messages_goes_on_with_its_conversation(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    before = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"})
    async with opened(ScriptedModel("m", scripts={"hi": [reply("4")]}), tmp_path, virtual_clock) as engine:
        result = await engine.run(asked(tmp_path, prompt="2 + 2", before=before))
    said = [plain_text(one.content) if isinstance(one, User) else getattr(one, "text", "") for one in result.entries]
    assert said == ["hi", "yes?", "2 + 2", "4"]
