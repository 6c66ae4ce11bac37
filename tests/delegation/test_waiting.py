"""`wait_tasks` and `spawn_parallel(merge="first_success")`: who ends a wait, and what the answer says of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.core.errors import ModelError
from hermes.core.messages import Notice, ToolResult, plain_text
from hermes.core.model import ModelRequest
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import Call, Reply, ScriptedModel, call, hang, reply

pytestmark = pytest.mark.anyio


def results(request: ModelRequest, name: str) -> list[dict[str, Any]]:
    """The answers of a tool that a request shows, oldest first."""
    return [
        msgspec.json.decode(plain_text(entry.content))
        for entry in request.entries
        if isinstance(entry, ToolResult) and entry.name == name
    ]


def ids_of(request: ModelRequest) -> list[str]:
    return [answer["task_id"] for answer in results(request, "delegate_task_async")]


def wait(**more: Any) -> Any:
    """A step that waits for every task started so far, newest first."""

    def step(request: ModelRequest) -> Reply:
        return reply(calls=[call("wait_tasks", task_ids=ids_of(request)[::-1], **more)])

    return step


def start(*goals: str) -> Reply:
    return reply(calls=[call("delegate_task_async", goal=goal) for goal in goals])


async def ask(lab: Lab, goal: str = "do it") -> None:
    await lab.ask(goal, toolsets=["delegation", "async_delegation"])


async def waited(model: ScriptedModel, lab: Lab) -> dict[str, Any]:
    await ask(lab)
    main = [request for request in model.requests if results(request, "wait_tasks")]
    return results(main[0], "wait_tasks")[0]


async def test_all_brings_the_reports_in_the_order_of_the_request(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(
        steps=[start("slow", "quick"), wait(), reply("done")],
        scripts={"slow": [reply("from slow", delay=20)], "quick": [reply("from quick", delay=5)]},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        answer = await waited(model, lab)
    assert [task["summary"] for task in answer["tasks"]] == ["from quick", "from slow"]
    assert answer["timed_out"] is False
    assert answer["running"] == []
    assert len(answer["ended"]) == 2
    model.assert_complete()  # no notice repeated what the wait had brought: no further turn was taken


async def test_any_ends_with_the_first(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(
        steps=[start("slow", "quick"), wait(mode="any"), reply("early"), reply("late")],
        scripts={"slow": [reply("from slow", delay=20)], "quick": [reply("from quick", delay=5)]},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        answer = await waited(model, lab)
    assert [task.get("summary") for task in answer["tasks"]] == ["from quick", None]
    assert answer["tasks"][1]["status"] == "running"
    assert len(answer["ended"]) == len(answer["running"]) == 1
    # The other one is told of by itself, since a finite run does not end before its children.
    notices = [entry for entry in model.requests[-1].entries if isinstance(entry, Notice)]
    assert [entry.tasks for entry in notices] == [tuple(answer["running"])]


async def test_a_wait_ends_in_time_and_the_tasks_go_on(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(
        steps=[start("slow"), wait(timeout=3), reply("early"), reply("late")],
        scripts={"slow": [reply("from slow", delay=20)]},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        answer = await waited(model, lab)
    assert (answer["timed_out"], answer["ended"]) == (True, [])
    assert "from slow" in plain(model.requests[-1])


def plain(request: ModelRequest) -> str:
    return msgspec.json.encode(request.entries).decode()


async def test_unknown_ids_are_named_and_nothing_is_waited_for(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def asks(request: ModelRequest) -> Reply:
        return reply(calls=[call("wait_tasks", task_ids=[*ids_of(request), "async_x", "nothing"])])

    model = ScriptedModel(
        steps=[start("slow"), asks, reply("early"), reply("late")], scripts={"slow": [reply("x", delay=20)]}
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        answer = await waited(model, lab)
    assert answer["error"] == "Task not found: async_x, nothing"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"task_ids": []}, "at least one id"), ({"task_ids": ["x"], "mode": "some"}, "mode is all or any")],
)
async def test_what_cannot_be_read_is_said(
    arguments: dict[str, Any], said: str, tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel(steps=[reply(calls=[Call(name="wait_tasks", arguments=arguments)]), reply("ok")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        assert said in (await waited(model, lab))["error"]


def parallel(*prompts: str, **more: Any) -> Reply:
    return reply(calls=[call("spawn_parallel", tasks=[{"prompt": prompt} for prompt in prompts], **more)])


async def test_first_success_stops_the_others_and_reports_all(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(
        steps=[parallel("never", "fails", "wins", merge="first_success"), reply("done")],
        scripts={"never": [hang()], "fails": [ModelError("no")], "wins": [reply("found it", delay=7)]},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await ask(lab)
    answer = results(model.requests[-1], "spawn_parallel")[0]
    assert answer["winner"] == 2
    assert [entry["status"] for entry in answer["results"]] == ["interrupted", "failed", "completed"]
    assert answer["results"][2]["summary"] == "found it"
    assert "succeeded first" in answer["results"][0]["error"]
    model.assert_complete()


async def test_first_success_without_one_reports_every_failure(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(
        steps=[parallel("one", "two", merge="first_success"), reply("done")],
        scripts={"one": [ModelError("first")], "two": [ModelError("second")]},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await ask(lab)
    answer = results(model.requests[-1], "spawn_parallel")[0]
    assert answer["winner"] is None
    assert [entry["status"] for entry in answer["results"]] == ["failed", "failed"]


@pytest.mark.fault("B026")
async def test_two_children_of_a_kind_keep_their_results_apart(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(
        steps=[parallel("count apples", "count pears"), reply("done")],
        scripts={
            "count apples": [reply(calls=[call("todo", todos=[{"id": "1", "content": "apples"}])]), reply("a: 1")],
            "count pears": [reply(calls=[call("todo", todos=[{"id": "1", "content": "pears"}])]), reply("p: 2")],
        },
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("count", toolsets=["delegation", "todo"])
    answer = results(model.requests[-1], "spawn_parallel")[0]
    assert result.state == "completed"
    assert [entry["summary"] for entry in answer["results"]] == ["a: 1", "p: 2"]
    assert len({entry["task_id"] for entry in answer["results"]}) == 2
    # Nothing of what a child kept for itself reached the parent's conversation.
    assert "apples" not in plain(model.requests[-1]).replace("count apples", "")


async def test_a_suspended_task_ends_a_wait_for_any_and_is_named(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel(scripts={"sleeps": [hang()], "works": [reply("done", delay=9)]})
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        sleeps, works = await lab.start("sleeps"), await lab.start("works")
        await sleeps.started.wait()
        sleeps.state = "suspended"
        verbs = lab.assembly.delegation.verbs
        first = await verbs.await_tasks([sleeps, works], mode="any", timeout=60, caller=None, room_tokens=10_000)
        both = await verbs.await_tasks([sleeps, works], mode="all", timeout=60, caller=None, room_tokens=10_000)
    assert (first["suspended"], first["ended"], first["timed_out"]) == ([sleeps.id], [], False)
    assert (both["suspended"], both["ended"], both["timed_out"]) == ([sleeps.id], [works.id], False)
    assert both["tasks"][0]["summary"] == "done"
