"""Faults that users report of children that run beside the conversation; each test holds the right value."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.core.agent import Agent
from hermes.core.errors import ModelError, OperatorError
from hermes.core.events import TaskEnded, TaskQueued, TaskStarted, TextDeltaEvent
from hermes.core.messages import Notice, Text, User, plain_text
from hermes.core.model import ModelRequest
from hermes.core.views import TreeView
from hermes.runtime.admission import Admission
from hermes.runtime.bus import Bus
from hermes.runtime.policy import Policy
from hermes.runtime.spec import SpawnRequest, TaskSpec
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task
from hermes.store.memory import MemoryStore
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import EndlessModel, ScriptedModel, call, first_user_text, hang, reply
from tests.delegation.family import STEP, answers, asked_by, child_of, family, told, until

pytestmark = pytest.mark.anyio

START = call("delegate_task_async", goal="child")


def collect_all(request: ModelRequest) -> object:
    return reply(calls=[call("collect_task", task_id=answer["task_id"]) for answer in answers(request)])


@pytest.mark.fault("B036")
async def test_running_out_of_time_ends_once_and_is_told(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [reply(calls=[call("delegate_task_async", goal="child", timeout=1)]), reply("it runs"), reply("it is over")],
        child=[reply("I looked at half.", calls=[call("todo", todos=[])], delay=0.2), reply("late", delay=10)],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        assert (await session.exchange("parent")).text == "it runs"
        await until(lambda: told(session.task))
        await until(lambda: session.task.outcome and session.task.outcome.text == "it is over")
        child = child_of(lab, "child")
        ends = lab.of(TaskEnded, child.id)
        await anyio.sleep(60)
        assert lab.of(TaskEnded, child.id) == ends and len(ends) == 1
        assert told(session.task) == [child.id]
        await session.close()
    assert ends[0].state == "timed_out" and ends[0].exit_reason == "timeout" and 1 <= ends[0].elapsed < 2
    (notice,) = [entry for entry in model.requests[-1].entries if isinstance(entry, Notice)]
    assert "failed (timeout)" in notice.text and "I looked at half." in notice.text


@pytest.mark.fault("B038")
async def test_dispatching_promises_nothing(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    both = [START, call("delegate_task", goal="child", background=True)]
    model = family([reply(calls=both), *[reply("started")] * 3], child=[reply("the secret result", delay=5)] * 2)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
    single, group = answers(asked_by(model, "parent")[1])
    assert single["status"] == "running" and group["status"] == "dispatched"
    for answer in (single, group):
        assert not {"summary", "result", "results", "output", "report"} & set(answer)
        assert "No result exists yet" in str(answer)


@pytest.mark.fault("B040")
async def test_an_end_reaches_its_own_session_only(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    ids: list[str] = []
    model = ScriptedModel(
        scripts={
            "session A": [reply(calls=[START]), reply("A waits"), reply("A heard")],
            "session B": [
                lambda _: reply(
                    calls=[call(f"{verb}_task", task_id=ids[0]) for verb in ("check", "collect", "cancel")]
                    + [call("steer_task", task_id=ids[0], message="obey"), call("list_tasks")]
                ),
                reply("B saw nothing"),
            ],
            "child": [reply("for A alone", delay=30)],
        }
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        a, b = await lab.converse(), await lab.converse()
        await a.exchange("session A")
        ids.append(child_of(lab, "child").id)
        await b.exchange("session B")
        await until(lambda: told(a.task))
        await anyio.sleep(60)
        assert told(a.task) == ids and told(b.task) == []
        refused = answers(asked_by(model, "session B")[-1])
        await a.close()
        await b.close()
    assert [answer.get("error") for answer in refused[:4]] == [f"Task not found: {ids[0]}"] * 4
    assert refused[4]["tasks"] == []


@pytest.mark.fault("B042")
@pytest.mark.parametrize("interactive", [True, False])
async def test_an_end_wakes_the_idle_parent(tmp_path: Path, virtual_clock: VirtualClock, interactive: bool) -> None:
    model = family([reply(calls=[START]), reply("wait"), reply("summed up")], child=[reply("found it", delay=90)])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        if interactive:
            session = await lab.converse()
            assert (await session.exchange("parent")).text == "wait"
            await until(lambda: session.task.outcome and session.task.outcome.text == "summed up")
            await session.close()
        else:
            assert (await lab.ask("parent")).summary == "summed up"
    model.assert_complete()


@pytest.mark.fault("B043")
async def test_silence_hides_no_end(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    """No watcher reports an end: the task itself does, also after hours without a sign of life."""
    words = ("one", "two", "three")
    model = family(
        [reply(calls=[call("delegate_task_async", goal=word) for word in words]), collect_all, reply("over")],
        one=[reply("report one", delay=20_000)],
        two=[ModelError("it failed", reason="server_error")],
        three=[reply("report three", delay=5_000)],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("parent")
    assert [answer["status"] for answer in answers(model.requests[-1])] == ["completed", "failed", "completed"]
    assert [child.status for child in result.children] == ["completed", "failed", "completed"]


@pytest.mark.fault("B043")
async def test_a_result_in_the_instant_of_the_limit_ends_the_task_once(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    for delay in (0.75, 1.0, 1.25, 1.5):
        model = family(
            [reply(calls=[call("delegate_task", goal="child", timeout=1)]), reply("over")],
            child=[reply("just in time", delay=delay)],
        )
        async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
            await lab.ask("parent")
            (end,) = lab.of(TaskEnded, child_of(lab, "child").id)
        (row,) = answers(model.requests[-1])[0]["results"]
        assert (row["status"], end.state) in (("completed", "completed"), ("timeout", "timed_out"))
        assert ("just in time" in row["summary"]) == (end.state == "completed")


@pytest.mark.fault("B044")
@pytest.mark.parametrize("failure", [OperatorError("no worker could be started"), ValueError("thread start")])
async def test_what_cannot_start_has_failed_at_once(virtual_clock: VirtualClock, failure: Exception) -> None:
    async def build(task: Task) -> Agent:
        raise failure

    bus, store = Bus(), MemoryStore()
    events: list[Any] = []
    bus.subscribe(lambda envelope: events.append((envelope.at, envelope.event)))
    supervisor = Supervisor(
        store=store,
        bus=bus,
        admission=Admission(max_running=4, max_children=4),
        build=build,
        policy=Policy(max_spawn_depth=1, max_live=10),
        clock=virtual_clock,
        owner="test",
        redact=lambda data: data,
        notice=lambda task: "",
    )
    async with anyio.create_task_group() as group:
        supervisor.start(group)
        (task,) = await supervisor.spawn([SpawnRequest(spec=TaskSpec(kind="async", goal=(Text("x"),)))], session_id="s")
        await task.done.wait()
        group.cancel_scope.cancel()
    assert task.result is not None and task.result.state == "failed" and str(failure) in task.result.error
    kinds = [type(event) for _, event in events]
    assert [kind for kind in kinds if kind in (TaskQueued, TaskStarted, TaskEnded)] == [
        TaskQueued,
        TaskStarted,
        TaskEnded,
    ]
    assert events[-1][0] - events[0][0] < 5


@pytest.mark.fault("B045")
async def test_a_single_request_waits_for_what_it_started(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [
            reply(calls=[START, call("delegate_task_async", goal="broken")]),
            reply("too early"),
            reply("now"),
            reply("end"),
        ],
        child=[reply("done", delay=400)],
        broken=[ModelError("no", reason="server_error")],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("parent")
        assert not [task for task in lab.runtime.supervisor.tasks.values() if not task.ended]
    assert result.elapsed >= 400 and {child.status for child in result.children} == {"completed", "failed"}


@pytest.mark.fault("B046")
async def test_an_end_is_no_word_of_the_users(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family([reply(calls=[START]), reply("wait"), reply("heard")], child=[reply("report")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
    entries = model.requests[-1].entries
    assert [plain_text(entry.content) for entry in entries if isinstance(entry, User)] == ["parent"]
    (notice,) = [entry for entry in entries if isinstance(entry, Notice)]
    assert notice.kind == "children" and len(notice.tasks) == 1 and "report" in notice.text


@pytest.mark.fault("B047")
async def test_two_hundred_ends_at_random_times_are_told_once_each(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    chance = random.Random(5)
    tasks = [{"goal": f"child {n}"} for n in range(200)]

    def step(request: ModelRequest) -> object:
        if first_user_text(request).startswith("child"):
            return reply("done", delay=chance.uniform(0, 300))
        if len(request.entries) < 3:
            return reply(calls=[call("delegate_task", tasks=tasks, background=True)])
        return (
            reply(calls=[call("todo", todos=[])], delay=3) if virtual_clock.elapsed < 200 else reply("noted", delay=2)
        )

    async with open_lab(
        EndlessModel(step),
        workspace=tmp_path,
        clock=virtual_clock,
        settings={"delegation.max_concurrent_children": 200, "agent.max_turns": 10_000},
    ) as lab:
        session = await lab.converse(goal="parent")
        await anyio.sleep(100)
        assert session.interrupt("in the middle of a turn")
        await session.say("go on")
        await until(lambda: not session.running() and not session.busy, 3_000)
        children = [task.id for task in session.task.children]
        assert sorted(told(session.task)) == sorted(children) and len(children) == 200
        assert {task.delivery for task in session.task.children} == {"consumed"}
        await session.close()


@pytest.mark.fault("B048")
async def test_what_was_collected_is_not_told_again(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [
            reply(calls=[call("delegate_task_async", goal=f"child {n}") for n in range(3)]),
            collect_all,
            reply("have it"),
        ],
        **{f"child {n}": [reply(f"report {n}", delay=10 + n)] for n in range(3)},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        assert (await session.exchange("parent")).text == "have it"
        await anyio.sleep(120)
        assert not session.busy and session.running() == [] and told(session.task) == []
        await session.close()
    model.assert_complete()
    assert [answer["summary"] for answer in answers(model.requests[-1])] == ["report 0", "report 1", "report 2"]


@pytest.mark.fault("B052")
async def test_a_foreground_request_stays_in_the_foreground(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [reply(calls=[call("delegate_task", goal="child", background=False)]), reply("read")],
        child=[reply("the report", delay=60)],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("parent")
    (given,) = answers(model.requests[-1])
    assert given["results"][0]["summary"] == "the report" and result.elapsed >= 60


@pytest.mark.fault("B053")
async def test_ended_children_keep_no_slots(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    """Twenty children, one after the other, under a cap of three; one crashes and one is cancelled."""
    state = {"number": 0, "listing": {}}

    def parent(request: ModelRequest) -> object:
        given = answers(request)
        if given and "tasks" in given[0]:
            state["listing"] = given[0]
            return reply("all twenty")
        if given and "task_id" in given[0] and "summary" not in given[0]:
            verb = "cancel_task" if state["number"] == 8 else "collect_task"
            return reply(calls=[call(verb, task_id=given[0]["task_id"])])
        if state["number"] == 20:
            return reply(calls=[call("list_tasks")])
        state["number"] += 1  # type: ignore[operator]
        return reply(calls=[call("delegate_task_async", goal=f"child {state['number']}")])

    def step(request: ModelRequest) -> object:
        text = first_user_text(request)
        if not text.startswith("child"):
            return parent(request)
        return ModelError("crash", reason="server_error") if text == "child 5" else reply("done", delay=1)

    settings = {"delegation.max_concurrent_children": 3, "delegation.max_live_children": 3}
    async with open_lab(EndlessModel(step), workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        result = await lab.ask("parent")
    assert result.summary == "all twenty"
    states = [child.status for child in result.children]
    assert len(states) == 20 and states.count("failed") == 1 and states.count("cancelled") == 1
    listing: Any = state["listing"]
    assert listing["active"] == 0 and listing["limit"] == 3 and len(listing["tasks"]) == 20


@pytest.mark.fault("B147")
async def test_a_child_shorter_than_any_poll_is_still_shown(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [reply(calls=[START]), reply("wait"), reply(calls=[call("list_tasks")]), reply("seen")], child=[reply("blink")]
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        await until(lambda: not session.busy and len(model.requests) == 5)
        view = lab.runtime.bus.tree.tasks[child_of(lab, "child").id]
        await session.close()
    assert view.state == "completed" and view.summary == "blink" and view.usage.total == 15
    (row,) = answers(model.requests[-1])[0]["tasks"]
    assert row["status"] == "completed"


@pytest.mark.fault("B148")
async def test_the_tree_agrees_with_the_tasks_at_every_moment(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    """A view that lost a third of the live events is repaired by the one that every event passes through."""
    model = family(
        [
            reply(calls=[call("delegate_task_async", goal=f"child {n}") for n in range(6)]),
            *[STEP] * 5,
            *[reply("noted")] * 8,
        ],
        **{f"child {n}": [*[STEP] * n, reply("done")] for n in range(6)},
    )
    chance, lossy = random.Random(3), TreeView()
    wrong: list[str] = []

    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        tree, tasks = lab.runtime.bus.tree, lab.runtime.supervisor.tasks
        lab.runtime.bus.subscribe(lambda envelope: lossy.apply(envelope) if chance.random() > 0.3 else None)

        def compare() -> None:
            wrong.extend(
                f"{task.id}: {task.state} is shown as {tree.tasks[task.id].state}"
                for task in tasks.values()
                if tree.tasks[task.id].state != task.state
            )

        task = await lab.start("parent")
        while not task.done.is_set():
            compare()
            await anyio.sleep(0.3)
        compare()
        assert len(tree.tasks) == len(tasks) == 7 and sorted(tree.children[task.id]) == sorted(
            child.id for child in task.children
        )
        assert tree.subtree_usage(task.id) == task.result.subtree_usage  # type: ignore[union-attr]
    assert wrong == []
    assert (
        {view.state for view in tree.tasks.values()} == {"completed"} != {view.state for view in lossy.tasks.values()}
    )


async def test_deltas_are_made_only_for_tasks_that_somebody_watches(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel("m", [reply("one two three", pieces=3), reply("four five six", pieces=3)])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("first")
        assert lab.of(TextDeltaEvent) == []
        lab.runtime.bus.subscribe(lambda envelope: None, watches=lambda task_id: True)
        await lab.ask("second")
        assert "".join(event.text for event in lab.of(TextDeltaEvent)) == "four five six"


async def test_a_hung_child_can_be_cancelled_through_its_parent(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [
            reply(calls=[START]),
            lambda request: reply(calls=[call("cancel_task", task_id=answers(request)[0]["task_id"][:8])], delay=5),
            reply("stopped it"),
            reply("noted"),
        ],
        child=[hang()],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("parent")
    assert [child.status for child in result.children] == ["cancelled"]
