"""Faults around what outlives a turn or a process: background commands, work that was done, ends that were told."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from hermes.batch.trajectory import conversations
from hermes.core.events import TaskEnded
from hermes.core.messages import Notice, User, plain_text
from hermes.core.model import ModelRequest
from hermes.testing.lab import open_lab
from hermes.testing.scripted import EndlessModel, ScriptedModel, call, first_user_text, hang, reply
from tests.delegation.family import answers, asked_by, child_of, family, told, until

pytestmark = pytest.mark.anyio

#: Ends when the test lets it.
JOB = "until test -e go; do sleep 0.01; done; echo built"


def notices(request: ModelRequest, kind: str) -> list[str]:
    return [entry.text for entry in request.entries if isinstance(entry, Notice) and entry.kind == kind]


@pytest.mark.fault("B050")
async def test_a_child_is_entered_again_when_its_background_command_ends(tmp_path: Path) -> None:
    job = call("terminal", command=JOB, background=True, notify_on_complete=True)
    model = family(
        [reply(calls=[call("delegate_task", goal="child")]), reply("read")],
        child=[reply(calls=[job]), reply("it builds"), reply("it is built")],
    )
    async with open_lab(model, workspace=tmp_path) as lab:
        task = await lab.start("parent")
        await until(lambda: len(asked_by(model, "child")) == 2 and model.in_flight == 0, 100)
        child = child_of(lab, "child")
        await anyio.wait_all_tasks_blocked()
        assert not child.ended and not child.ending, "it does not end before its command"
        (tmp_path / "go").touch()
        await lab.runtime.result(task)
        assert child.result is not None and child.result.summary == "it is built"
    model.assert_complete()
    started, last = answers(asked_by(model, "child")[1])[0], asked_by(model, "child")[-1]
    assert "You are told when it ends" in started["note"]
    (notice,) = notices(last, "process")
    assert started["session_id"] in notice and "exit code 0" in notice and notice.endswith("built")


@pytest.mark.fault("B050")
async def test_an_idle_conversation_hears_of_a_command_that_ended(tmp_path: Path) -> None:
    model = ScriptedModel(
        "m",
        [reply(calls=[call("terminal", command=f"{JOB}; exit 3", background=True)]), reply("on it"), reply("broken")],
    )
    async with open_lab(model, workspace=tmp_path) as lab:
        session = await lab.converse()
        assert (await session.exchange("build")).text == "on it"
        (tmp_path / "go").touch()
        await until(lambda: session.task.outcome is not None and session.task.outcome.text == "broken", 100)
        await session.close()
    (notice,) = notices(model.requests[-1], "process")
    assert "exit code 3" in notice


async def test_a_command_without_the_wish_holds_no_task_open_and_its_own_kill_is_no_news(tmp_path: Path) -> None:
    steps = [
        reply(calls=[call("terminal", command="sleep 600", background=True)]),
        lambda request: reply(calls=[call("process", action="kill", session_id=answers(request)[0]["session_id"])]),
        reply(calls=[call("terminal", command="sleep 600", background=True)]),
        reply("served"),
    ]
    model = ScriptedModel("m", steps)
    async with open_lab(model, workspace=tmp_path) as lab:
        result = await lab.ask("serve")
    assert result.summary == "served" and result.elapsed < 100
    assert all(notices(request, "process") == [] for request in model.requests)


@pytest.mark.fault("B046")
async def test_an_end_is_no_turn_of_a_person_in_training_rows(tmp_path: Path) -> None:
    model = family(
        [reply(calls=[call("delegate_task_async", goal="child")]), reply("wait"), reply("heard")],
        child=[reply("the report")],
    )
    async with open_lab(model, workspace=tmp_path) as lab:
        await lab.ask("parent")
    turns = conversations(model.requests[-1].entries)
    assert [turn["value"] for turn in turns if turn["from"] == "human"] == ["parent"]
    assert [turn["from"] for turn in turns if "the report" in turn["value"]] == ["tool"]


@pytest.mark.fault("B120")
async def test_steps_of_a_child_that_ran_are_not_run_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = family(
        [reply(calls=[call("delegate_task", goal="child")])],
        child=[reply(calls=[call("terminal", command=f"echo step >> {log}")]), hang()],
    )
    async with open_lab(first, workspace=tmp_path, memory=False) as lab:
        task = await lab.start("parent")
        await until(lambda: log.exists() and len(asked_by(first, "child")) == 2 and first.in_flight == 1)
    again = ScriptedModel("m", scripts={"parent": [reply("over")], "child": [reply("one step")]}, check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        result = await lab.runtime.result(await lab.assembly.recovery.adopt(task.scope.session_id))
    assert result.summary == "over" and log.read_text(encoding="utf-8") == "step\n"
    assert len(asked_by(again, "child")) == 1, "the finished step was not asked for again"


@pytest.mark.fault("B047")
async def test_ends_are_told_once_each_though_the_process_is_lost_in_between(tmp_path: Path) -> None:
    for life in (1, 2, 3):

        def step(request: ModelRequest, life: int = life) -> object:
            goal = first_user_text(request)
            if goal.startswith("child"):
                return reply("done") if int(goal.split()[1]) % 3 < life else hang()
            if not any(isinstance(entry, Notice) for entry in request.entries) and len(request.entries) == 1:
                return reply(calls=[call("delegate_task_async", goal=f"child {n}") for n in range(200)])
            return reply("noted")

        settings = {"delegation.max_concurrent_children": 200}
        async with open_lab(EndlessModel(step), workspace=tmp_path, memory=False, settings=settings) as lab:
            if life == 1:
                session = await lab.converse(goal="parent")
                root = session.task
            else:
                root = await lab.assembly.recovery.adopt(session.id)
            await until(lambda: sum(child.ended for child in root.children) >= 66 * life, 100)  # noqa: B023
            if life == 3:
                await until(lambda: all(child.delivery == "consumed" for child in root.children), 100)  # noqa: B023
                await anyio.sleep(0.1)
                assert sorted(told(root)) == sorted(child.id for child in root.children)
                assert len(set(told(root))) == 200
                users = [entry for entry in root.history.full() if isinstance(entry, User)]  # type: ignore[union-attr]
                assert [plain_text(entry.content) for entry in users] == ["parent"]
                assert len(lab.of(TaskEnded)) < 200, "most had ended before"
