"""The tree of tasks: what is kept of it, who hears of which end, and what a lost journal does to those who wait."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from hermes.core.errors import OperatorError, StoreFull
from hermes.core.messages import Notice, Text
from hermes.runtime.spec import SpawnRequest, TaskSpec
from hermes.runtime.task import Task
from hermes.store.ops import AdoptTasks, Unit
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel, Step, call, hang, reply

pytestmark = pytest.mark.anyio

SPAWNS = {"delegation.max_spawn_depth": 3}


def row(goal: str) -> TaskSpec:
    tools = ("delegation", "async_delegation")
    return TaskSpec(kind="row", goal=(Text(goal),), role="orchestrator", toolsets=tools, ceiling=tools)


async def test_nothing_is_kept_of_a_forgotten_tree(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    """A batch of a hundred thousand rows that delegate must not keep a hundred thousand families."""
    scripts = {"parent": [reply(calls=[call("delegate_task", goal="child")]), reply("over")], "child": [reply("done")]}
    async with open_lab(ScriptedModel("m", scripts=scripts), workspace=tmp_path, clock=virtual_clock) as lab:
        supervisor = lab.runtime.supervisor
        task = await lab.runtime.start(row("parent"), source="batch")
        await task.done.wait()
        await anyio.wait_all_tasks_blocked()
        kept = [weakref.ref(task), weakref.ref(task.children[0])]
        supervisor.forget(task)
        lab.events.clear()
        del task
        gc.collect()
        assert [ref() for ref in kept] == [None, None]
        assert not supervisor.tasks and not supervisor._live and not lab.runtime.bus.tree.tasks


async def test_the_cap_on_live_children_is_of_one_tree(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    """Rows of a batch share a session: one's children leave no less room for another's."""
    scripts: dict[str, Sequence[Step]] = {
        "mother": [reply(calls=[call("delegate_task", goal="son")]), reply("over")],
        "father": [reply(calls=[call("delegate_task", goal="daughter")]), reply("over")],
        "son": [reply("done", delay=100)],
        "daughter": [reply("done", delay=100)],
    }
    settings = {"delegation.max_live_children": 1}
    model = ScriptedModel("m", scripts=scripts)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        one = await lab.runtime.start(row("mother"), source="batch")
        two = await lab.runtime.start(row("father"), source="batch", session=one.scope.session_id)
        for task in (one, two):
            result = await lab.runtime.result(task)
            assert [child.status for child in result.children] == ["completed"], result


async def test_an_end_that_its_parent_did_not_come_to_read_reaches_who_is_above(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    """The parent is stopped in the middle of the reply during which its own child ended."""
    scripts: dict[str, Sequence[Step]] = {
        "top": [reply("started"), reply("read it"), reply("read more")],
        "middle": [reply(calls=[call("delegate_task_async", goal="leaf")]), hang()],
        "leaf": [reply("found it")],
    }
    async with open_lab(
        ScriptedModel("m", scripts=scripts), workspace=tmp_path, clock=virtual_clock, settings=SPAWNS
    ) as lab:
        session = await lab.converse()
        await session.exchange("top")
        (middle,) = await lab.runtime.supervisor.spawn(
            [SpawnRequest(spec=row("middle"))], session_id=session.id, parent=session.task
        )
        with anyio.fail_after(60):
            while not middle.children or not middle.children[0].ended:
                await anyio.sleep(0.1)
        assert middle.children[0].result is not None and middle.children[0].result.state == "completed"
        await lab.runtime.control.cancel([middle], "enough")
        await middle.done.wait()
        with anyio.fail_after(60):
            while session.busy:
                await anyio.sleep(0.1)
        assert session.task.history is not None
        told = [name for entry in session.task.history.view() if isinstance(entry, Notice) for name in entry.tasks]
        assert sorted(told) == sorted([middle.id, middle.children[0].id])


async def test_an_exchange_that_the_end_of_the_conversation_cut_off_has_no_answer(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    """The answer to the question before must not stand for the answer to this one."""
    async with open_lab(ScriptedModel("m", [reply("one"), hang()]), workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        assert (await session.exchange("first")).text == "one"
        async with anyio.create_task_group() as group:

            async def full() -> None:
                await anyio.sleep(1)
                lab.runtime.supervisor.break_off(StoreFull("the disk is full"))

            group.start_soon(full)
            with anyio.fail_after(60), pytest.raises(OperatorError, match="the disk is full"):
                await session.exchange("second")


async def test_a_session_that_another_process_took_up_leaves_nobody_waiting(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    """The child notices at its next write; its parent, at rest, waits for the child's end and writes nothing."""
    steps = [reply(calls=[call("todo", todos=[])], delay=10), reply("done", delay=10)]
    scripts = {"parent": [reply(calls=[call("delegate_task_async", goal="child")]), reply("wait")], "child": steps}
    async with open_lab(ScriptedModel("m", scripts=scripts), workspace=tmp_path, clock=virtual_clock) as lab:
        task = await lab.start("parent")
        while not task.lent:
            await anyio.sleep(0.1)
        await take_over(lab, task)
        with anyio.fail_after(60), pytest.raises(OperatorError, match="another process"):
            await lab.runtime.result(task)
        assert not task.ended and not task.children[0].ended


async def test_a_task_whose_environment_cannot_be_closed_fails_alone(
    tmp_path: Path, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    scripts = {"one": [reply("first", delay=1)], "two": [reply("second", delay=5)]}
    async with open_lab(ScriptedModel("m", scripts=scripts), workspace=tmp_path, clock=virtual_clock) as lab:
        one, two = await lab.start("one"), await lab.start("two")
        await until(lambda: one.environment is not None)
        one.environment = Stuck()  # type: ignore[assignment]
        first, second = await lab.runtime.result(one), await lab.runtime.result(two)
    assert first.state == "failed" and "the place is gone" in first.error
    assert second.state == "completed" and "ended badly" in caplog.text


class Stuck:
    """An environment that breaks when it is closed."""

    async def close(self) -> None:
        raise RuntimeError("the place is gone")


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.1)


async def take_over(lab: Lab, task: Task) -> None:
    supervisor = lab.runtime.supervisor
    gone = AdoptTasks(session_id=task.scope.session_id, from_owner=supervisor.owner, to_owner="somebody else")
    await supervisor.store.submit(Unit(ops=(gone,))).wait()
