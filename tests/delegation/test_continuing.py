"""A task that ended and goes on: its history, its rights, its next end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hermes.core.errors import ModelError
from hermes.core.events import TaskEnded
from hermes.core.messages import Assistant, Interrupted, Notice, ToolResult, User, plain_text
from hermes.core.model import ModelRequest
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel, Step, call, hang, reply
from tests.delegation.family import answers, asked_by, child_of, family, told, until
from tests.runtime.test_outside import elsewhere, row_of

pytestmark = pytest.mark.anyio

START = call("delegate_task_async", goal="child")


def ask_more(text: str = "and the south") -> Any:
    """A step that continues the task which the last notice is about."""

    def step(request: ModelRequest) -> object:
        ids = [name for entry in request.entries if isinstance(entry, Notice) for name in entry.tasks]
        return reply(calls=[call("continue_task", task_id=ids[-1][:10], message=text)])

    return step


def words(request: ModelRequest) -> list[str]:
    """What stands in a request, but for results and notices."""
    return [
        plain_text(entry.content) if isinstance(entry, User) else getattr(entry, "text", "")
        for entry in request.entries
        if isinstance(entry, (User, Assistant))
    ]


@pytest.mark.parametrize("memory", [True, False])
async def test_it_goes_on_with_what_it_knows_and_its_next_end_is_told(tmp_path: Path, memory: bool) -> None:
    model = family(
        [reply(calls=[START]), reply("wait"), ask_more(), reply("wait again"), reply("all of it")],
        child=[reply("the north"), reply("the south")],
    )
    async with open_lab(model, workspace=tmp_path, memory=memory) as lab:
        result = await lab.ask("parent")
        child = child_of(lab, "child")
        row = await lab.runtime.store.task(child.id)
        assert row is not None and (row.attempt, row.state) == (2, "completed")
        assert child.delivery == "consumed" and await lab.runtime.store.deliveries(result.task_id) == []
        (message,) = await lab.runtime.store.inbox(child.id)
        assert (message.verb, message.state, message.position) == ("continue", "delivered", 2)
        ends = lab.of(TaskEnded, child.id)
    model.assert_complete()
    assert result.summary == "all of it" and len(ends) == 2
    assert words(asked_by(model, "child")[1]) == ["child", "the north", "and the south"]
    notices = [entry for entry in model.requests[-1].entries if isinstance(entry, Notice)]
    assert [entry.tasks for entry in notices] == [(child.id,), (child.id,)]
    assert "the north" in notices[0].text and "the south" in notices[1].text
    (given,) = [answer for request in asked_by(model, "parent") for answer in answers(request) if "attempt" in answer]
    assert given["ok"] and given["attempt"] == 2 and given["receipt"]["state"] == "queued"
    assert "No result exists yet" in given["message"]


ENDS: list[tuple[str, dict[str, Any], list[Step]]] = [
    ("failed", {}, [ModelError("broken", reason="server_error", permanent=True)]),
    ("cancelled", {}, [hang()]),
    ("cancelled", {}, [reply(calls=[call("terminal", command="sleep 600")])]),
    ("timed_out", {"timeout": 1}, [reply("late", delay=50)]),
    ("exhausted", {"max_iterations": 1}, [reply(calls=[call("todo", todos=[])]), reply("half")]),
]


@pytest.mark.parametrize(("state", "options", "first"), ENDS)
async def test_after_every_kind_of_end_the_message_is_what_it_reads_next(
    tmp_path: Path, state: str, options: dict[str, Any], first: list[Step]
) -> None:
    model = family(
        [reply(calls=[call("delegate_task_async", goal="child", **options)]), reply("wait"), *[reply("heard")] * 3],
        child=[*first, reply("now it is done")],
    )
    async with open_lab(model, workspace=tmp_path) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        child = child_of(lab, "child")
        if state == "cancelled":
            await until(lambda: lab.runtime.control.view(child).phase in ("model", "tool"))
            await anyio.sleep(0.1)
            await lab.runtime.control.cancel([child], "not now")
        await until(lambda: child.done.is_set())
        assert child.state == state
        answer = await lab.assembly.delegation.verbs.continue_task(child, "try once more")
        assert answer["ok"] and child.attempt == 2
        await until(lambda: child.done.is_set())
        assert child.result is not None and (child.state, child.result.summary) == ("completed", "now it is done")
        await until(lambda: told(session.task)[-1:] == [child.id] and not session.busy)
        await session.close()
    last = asked_by(model, "child")[-1].entries
    assert plain_text(last[-1].content) == "try once more"  # type: ignore[union-attr]
    called = [c for entry in last if isinstance(entry, Assistant) for c in entry.calls]
    assert len([entry for entry in last if isinstance(entry, ToolResult)]) == len(called)
    for before, after in zip(last, last[1:], strict=False):
        assert not (isinstance(before, User) and isinstance(after, User)), "roles alternate"
    stopped = [entry.reason for entry in last if isinstance(entry, Interrupted)]
    assert all("had ended" in reason for reason in stopped)


async def test_rights_are_those_that_the_parent_has_now(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [reply(calls=[call("delegate_task_async", goal="child", toolsets=["terminal", "file"])]), reply("wait")]
        + [reply("heard")] * 2,
        child=[reply("one"), reply(calls=[call("terminal", command="true")]), reply("could not")],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        child = child_of(lab, "child")
        await until(lambda: child.done.is_set())
        assert child.spec.toolsets == ("terminal", "file")
        session.task.spec = msgspec.structs.replace(session.task.spec, ceiling=("file", "todo"))
        await lab.runtime.control.continue_task(child, "again")
        await until(lambda: child.done.is_set())
        assert child.spec.toolsets == child.spec.ceiling == ("file",)
        await session.close()
    (refused,) = [entry for entry in asked_by(model, "child")[-1].entries if isinstance(entry, ToolResult)]
    assert refused.is_error and "terminal" in plain_text(refused.content)


async def test_it_counts_as_living_again_and_its_place_is_given_back(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel(
        "m",
        scripts={
            "parent": [reply(calls=[START]), reply("wait"), *[reply("heard")] * 6],
            "child": [reply("one")] + [reply("more", delay=5)] * 3,
        },
    )
    settings = {"delegation.max_live_children": 1, "delegation.max_concurrent_children": 1}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        child, control = child_of(lab, "child"), lab.runtime.control
        await until(lambda: child.done.is_set())
        for _ in range(3):
            assert not isinstance(await control.continue_task(child, "more"), str)
            again = await control.continue_task(child, "and more")
            assert isinstance(again, str) and "has not ended" in again and "steer_task" in again
            await until(lambda: child.done.is_set())
        assert child.attempt == 4 and lab.runtime.supervisor.admission.running == 0
        await session.close()


async def test_the_same_request_goes_on_once(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family([reply(calls=[START]), reply("wait"), *[reply("heard")] * 3], child=[reply("one"), reply("two")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        child, control = child_of(lab, "child"), lab.runtime.control
        await until(lambda: child.done.is_set())
        first = await control.continue_task(child, "more", receipt="main:5:0")
        await until(lambda: child.done.is_set())
        second = await control.continue_task(child, "more", receipt="main:5:0")
        assert not isinstance(first, str) and not isinstance(second, str)
        assert (first.state, second.state, first.id, child.attempt) == ("queued", "delivered", second.id, 2)
        await session.close()


async def test_a_grandchild_cannot_go_on_when_its_parent_has_ended(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [reply(calls=[call("delegate_task", goal="boss", role="orchestrator")]), reply("done")],
        boss=[reply(calls=[call("delegate_task", goal="leaf")]), reply("b")],
        leaf=[reply("l")],
    )
    settings = {"delegation.max_spawn_depth": 2}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        (boss,) = session.task.children
        (leaf,) = boss.children
        answer = await lab.assembly.delegation.verbs.continue_task(leaf, "more")
        assert answer == {
            "ok": False,
            "error": f"Task {leaf.id} cannot go on: {boss.id}, which started it, has ended. Continue that one.",
        }
        await session.close()


async def test_a_kill_in_between_loses_neither_the_message_nor_the_attempt(tmp_path: Path) -> None:
    scripts = {"parent": [reply(calls=[START]), reply("wait"), reply("heard")], "child": [reply("one"), hang()]}
    model = ScriptedModel("m", scripts=scripts)
    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        child = child_of(lab, "child")
        await until(lambda: told(session.task))
        await until(lambda: not session.busy)
        await lab.runtime.control.continue_task(child, "the south")
        await until(lambda: model.in_flight == 1)
        sid = session.id
    again = ScriptedModel("m", scripts={"parent": [reply("both")], "child": [reply("two")]}, check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        root = await lab.assembly.recovery.adopt(sid)
        await until(lambda: len(told_again(lab, root.id)) == 2)
        row = await lab.runtime.store.task(child.id)
        assert row is not None and (row.state, row.attempt) == ("completed", 3)
    assert words(asked_by(again, "child")[0]) == ["child", "one", "the south"]


async def test_said_while_nobody_had_it_it_goes_on_when_the_session_is_taken_up(tmp_path: Path) -> None:
    scripts = {"parent": [reply(calls=[START]), reply("wait"), reply("heard")], "child": [reply("one")]}
    async with open_lab(ScriptedModel("m", scripts=scripts), workspace=tmp_path, memory=False) as lab:
        result = await lab.ask("parent")
        child = child_of(lab, "child")
    async with elsewhere(tmp_path) as remote:
        main = await row_of(remote, result.task_id)
        kept = await remote.send(await row_of(remote, child.id), "continue", "the south")
        assert kept["ok"] and kept["receipt"]["state"] == "queued"
    again = ScriptedModel("m", scripts={"parent": [reply("both")], "child": [reply("two")]}, check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        end = await lab.runtime.result(await lab.assembly.recovery.adopt(main.session_id))
        (message,) = await lab.runtime.store.inbox(child.id)
        assert message.state == "delivered"
    assert end.summary == "both" and words(asked_by(again, "child")[0]) == ["child", "one", "the south"]


async def test_from_another_terminal_while_its_process_lives(tmp_path: Path) -> None:
    scripts = {
        "parent": [reply(calls=[START]), reply("wait"), *[reply("heard")] * 2],
        "child": [reply("1"), reply("2")],
    }
    async with open_lab(ScriptedModel("m", scripts=scripts), workspace=tmp_path, memory=False) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        child = child_of(lab, "child")
        await until(lambda: child.done.is_set() and told(session.task))
        async with elsewhere(tmp_path) as remote:
            said = await remote.send(await row_of(remote, child.id), "continue", "the south")
            assert said["receipt"]["state"] == "delivered" and said["receipt"]["position"] == 2
            running = await remote.send(await row_of(remote, session.task.id), "continue", "x")
            assert not running["ok"] and "has not ended" in running["error"]
        await until(lambda: child.attempt == 2 and child.done.is_set())
        await session.close()


def told_again(lab: Lab, task_id: str) -> list[str]:
    task = lab.runtime.supervisor.tasks[task_id]
    if task.history is None:
        return []
    return [name for entry in task.history.view() if isinstance(entry, Notice) for name in entry.tasks]
