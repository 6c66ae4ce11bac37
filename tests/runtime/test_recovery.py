"""A session goes on in another process from its last step: nothing spawned, delivered or paid twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hermes.core.errors import OperatorError, StoreError, UsageError
from hermes.core.messages import Notice, Steer, ToolResult, User, plain_text
from hermes.core.model import ModelRequest
from hermes.runtime.task import Task
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import Reply, ScriptedModel, call, hang, reply

pytestmark = pytest.mark.anyio

THREE = reply(calls=[call("spawn_parallel", tasks=[{"prompt": "alpha"}, {"prompt": "beta"}, {"prompt": "gamma"}])])


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.01)


def children(lab: Lab, root: Task) -> dict[str, Task]:
    return {plain_text(task.spec.goal): task for task in root.children}


def results(request: ModelRequest) -> list[str]:
    return [plain_text(entry.content) for entry in request.entries if isinstance(entry, ToolResult)]


async def test_a_parent_finds_the_children_it_has(tmp_path: Path) -> None:
    first = ScriptedModel("m", scripts={"root": [THREE], "alpha": [reply("A")], "beta": [hang()], "gamma": []})
    limited = {"delegation.max_concurrent_children": 1}
    async with open_lab(first, workspace=tmp_path, memory=False, settings=limited) as lab:
        root = await lab.start("root")
        session = root.scope.session_id
        await until(lambda: len(root.children) == 3 and root.children[0].ended and first.in_flight == 1)
        ids = [child.id for child in root.children]
    second = ScriptedModel(
        "m", scripts={"root": [reply("all three")], "beta": [reply("B")], "gamma": [reply("C")]}, check=False
    )
    async with open_lab(second, workspace=tmp_path, memory=False) as lab:
        report = await lab.assembly.recovery.look(session)
        assert not report.owner_alive
        assert {cut.label for cut in report.cut_off} == {"root", "beta", "gamma"}
        root = await lab.assembly.recovery.adopt(session)
        result = await lab.runtime.result(root)
        assert [child.id for child in root.children] == ids
    assert result.state == "completed" and result.summary == "all three"
    (answer,) = results(second.requests[-1])
    assert answer.index('"A"') < answer.index('"B"') < answer.index('"C"')
    second.assert_complete()


async def test_a_conversation_goes_on_with_its_history_and_late_results(tmp_path: Path) -> None:
    model = ScriptedModel(
        "m",
        scripts={
            "start": [reply(calls=[call("delegate_task_async", goal="audit")]), reply("started")],
            "audit": [hang()],
        },
    )
    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        session = await lab.converse()
        await session.exchange("start")
        session_id = session.id
    again = ScriptedModel("m", scripts={"start": [reply("it is clean")], "audit": [reply("no findings")]}, check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        task = await lab.assembly.recovery.adopt(session_id)
        await until(lambda: task.outcome is not None and task.outcome.text == "it is clean")
        notices = [entry for entry in again.requests[-1].entries if isinstance(entry, Notice)]
    assert len(notices) == 1 and "no findings" in notices[0].text
    again.assert_complete()


async def test_a_finished_request_can_be_asked_further(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", [reply("42")]), workspace=tmp_path, memory=False) as lab:
        task = await lab.start("the answer?")
        await lab.runtime.result(task)
    again = ScriptedModel("m", [reply("because")], check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        session = await lab.assembly.recovery.find("latest")
        assert session == task.scope.session_id
        root = await lab.assembly.recovery.adopt(session, say="why?")
        result = await lab.runtime.result(root)
        row = await lab.runtime.store.task(root.id)
    assert result.summary == "because"
    assert row is not None and row.attempt == 2
    texts = [plain_text(entry.content) for entry in again.requests[0].entries if isinstance(entry, User)]
    assert texts == ["the answer?", "why?"]


async def test_a_cancel_holds_though_the_process_was_lost_before_the_end_was_written(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", [hang()]), workspace=tmp_path, memory=False) as lab:
        task = await lab.start("go")
        await task.started.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(lab.runtime.control.cancel, [task], "enough")
            await anyio.lowlevel.checkpoint()  # the intent is on its way to the disk, and nothing else will be
            lab.runtime.supervisor.break_off(StoreError("the machine stopped"))
        assert not task.ended
    again = ScriptedModel("m", [], check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        root = await lab.assembly.recovery.adopt(task.scope.session_id)
        result = await lab.runtime.result(root)
        messages = await lab.runtime.store.inbox(root.id)
    assert result.state == "cancelled" and not again.requests
    assert {message.state for message in messages} == {"delivered"}


async def test_a_session_of_this_process_is_not_taken_up_beside_itself(tmp_path: Path) -> None:
    asked = anyio.Event()

    async def first(request: ModelRequest) -> Reply:
        await asked.wait()
        return reply("one")

    model = ScriptedModel("m", [first, reply("two")], check=False)
    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        task = await lab.start("go")
        with pytest.raises(OperatorError, match="open in this process"):
            await lab.assembly.recovery.adopt(task.scope.session_id)
        asked.set()
        before = await lab.runtime.result(task)
        again = await lab.assembly.recovery.adopt(task.scope.session_id, say="more")
        second = await lab.runtime.result(again)
        assert second.summary == "two"
        assert lab.runtime.supervisor.tasks[task.id] is again
        assert second.api_calls == before.api_calls + 1  # what was used before counts once


async def test_a_command_whose_effect_is_unknown_is_not_repeated(tmp_path: Path) -> None:
    marker = tmp_path / "count"
    command = f"echo x >> {marker}; sleep 60"
    model = ScriptedModel("m", [reply(calls=[call("terminal", command=command)])])
    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        task = await lab.start("go")
        await until(lambda: marker.exists() and marker.read_text())
    again = ScriptedModel("m", [reply("looked")], check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        report = await lab.assembly.recovery.look(task.scope.session_id)
        assert report.cut_off[0].unknown == ("terminal",)
        root = await lab.assembly.recovery.adopt(task.scope.session_id)
        await lab.runtime.result(root)
    assert "unknown" in results(again.requests[0])[0]
    assert marker.read_text() == "x\n"


async def test_a_correction_that_was_stored_is_read_after_the_restart(tmp_path: Path) -> None:
    model = ScriptedModel("m", [hang()])
    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        task = await lab.start("go")
        await until(lambda: model.in_flight == 1)
        assert await lab.runtime.control.steer(task, "only the north")
    again = ScriptedModel("m", [reply("north")], check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        root = await lab.assembly.recovery.adopt(task.scope.session_id)
        await lab.runtime.result(root)
    assert [entry.text for entry in again.requests[0].entries if isinstance(entry, Steer)] == ["only the north"]


async def test_an_open_session_is_never_taken(tmp_path: Path) -> None:
    model = ScriptedModel("m", [hang()])
    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        task = await lab.start("go")
        await until(lambda: model.in_flight == 1)
        async with open_lab(ScriptedModel("m", []), workspace=tmp_path, memory=False) as other:
            report = await other.assembly.recovery.look(task.scope.session_id)
            assert report.owner_alive
            with pytest.raises(OperatorError, match="open in another process"):
                await other.assembly.recovery.adopt(task.scope.session_id)
        assert not task.ended


async def test_sessions_are_found_by_prefix_and_title_and_named_when_not(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", [reply("1")]), workspace=tmp_path, memory=False) as lab:
        recovery = lab.assembly.recovery
        with pytest.raises(UsageError, match="no session to go on with"):
            await recovery.find("latest")
        task = await lab.start("Count the sheep")
        await lab.runtime.result(task)
        assert await recovery.find("count the sheep") == task.scope.session_id
        assert await recovery.find(task.scope.session_id[:18]) == task.scope.session_id
        with pytest.raises(UsageError, match=task.scope.session_id):
            await recovery.find("2001")


async def test_a_limit_of_time_goes_on_in_the_next_process(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def opened(model: ScriptedModel) -> AbstractAsyncContextManager[Lab]:
        return open_lab(model, workspace=tmp_path, clock=virtual_clock, memory=False)

    spawn = reply(calls=[call("delegate_task_async", goal="child", timeout=100)])
    step = reply(calls=[call("todo", todos=[])], delay=25)
    async with opened(ScriptedModel("m", scripts={"root": [spawn, reply("wait")], "child": [step] * 3})) as lab:
        root = await lab.start("root")
        session = root.scope.session_id
        await anyio.sleep(60)
    await anyio.sleep(5_000)  # nobody runs
    second = ScriptedModel("m", scripts={"root": [reply("heard")], "child": [hang()]}, check=False)
    async with opened(second) as lab:
        began = anyio.current_time()
        root = await lab.assembly.recovery.adopt(session)
        child = root.children[0]
        await child.done.wait()
        assert anyio.current_time() - began == pytest.approx(40, abs=1)
        assert child.result is not None and child.result.state == "timed_out"
        assert child.result.elapsed == pytest.approx(100, abs=1)
        await lab.runtime.result(root)
