"""Limits of children: whose they are, what they leave standing, what a watcher sees of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.compose import conversation_spec
from hermes.core.limits import Limits
from hermes.core.messages import ToolResult, plain_text
from hermes.core.model import ModelRequest
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import EndlessModel, Reply, ScriptedModel, call, first_user_text, reply

TOOLS = ["todo", "delegation", "async_delegation"]


def answers(request: ModelRequest, name: str) -> list[dict[str, Any]]:
    return [
        msgspec.json.decode(plain_text(entry.content))
        for entry in request.entries
        if isinstance(entry, ToolResult) and entry.name == name
    ]


def busy(number: int) -> Reply:
    """A turn that is not like the one before."""
    return reply(f"step {number}", calls=[call("todo", todos=[{"id": "1", "content": f"step {number}"}])])


@pytest.mark.anyio
@pytest.mark.fault("B021")
async def test_the_whole_tree_stops_at_the_parents_limit(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    asked: list[str] = []

    def answer(request: ModelRequest) -> Reply:
        asked.append(first_user_text(request))
        if asked[-1] == "go":
            return reply("I delegate", calls=[call("spawn_agent", prompt="LOOP")])
        return busy(len(asked))

    async with open_lab(EndlessModel(answer), workspace=tmp_path, clock=virtual_clock) as lab:
        spec, _ = conversation_spec(lab.assembly, goal="go", interactive=False, workspace=str(tmp_path), toolsets=TOOLS)
        limited = msgspec.structs.replace(spec, limits=Limits(requests=5))
        task = await lab.runtime.start(limited)
        result = await lab.runtime.result(task)
        child = task.children[0].result
    assert asked == ["go", *["LOOP"] * 4]
    assert (result.state, result.exit_reason) == ("exhausted", "budget")
    assert child is not None
    assert (child.state, child.exit_reason, child.truncated) == ("exhausted", "budget", True)
    assert child.summary == "step 5"


@pytest.mark.anyio
@pytest.mark.fault("B027")
async def test_a_child_at_its_limit_takes_no_sibling_along(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    """The limit is the stated one and no hidden smaller one; the other child's result is whole."""
    long, short = [busy(number) for number in range(40)], [busy(number) for number in range(5)]
    model = ScriptedModel(
        steps=[
            reply(calls=[call("spawn_parallel", tasks=[{"prompt": "LONG"}, {"prompt": "SHORT"}, {"prompt": "LOOP"}])]),
            reply("done"),
        ],
        scripts={
            "LONG": [*long, reply("all forty")],
            "SHORT": [*short, reply("all five")],
            "LOOP": [*[busy(number) for number in range(50)], reply("what I have")],
        },
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("go", toolsets=TOOLS)
    entries = answers(model.requests[-1], "spawn_parallel")[0]["results"]
    assert result.state == "completed"
    assert [(entry["summary"].splitlines()[-1], entry["exit_reason"]) for entry in entries] == [
        ("all forty", "completed"),
        ("all five", "completed"),
        ("what I have", "max_iterations"),
    ]
    assert entries[2]["truncated"] is True
    model.assert_complete()


@pytest.mark.anyio
@pytest.mark.fault("B032")
async def test_a_poll_shows_the_cap_and_when_the_child_last_moved(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def check(request: ModelRequest) -> Reply:
        return reply(
            delay=25, calls=[call("check_task", task_id=answers(request, "delegate_task_async")[0]["task_id"])]
        )

    def slow(number: int) -> Reply:
        return msgspec.structs.replace(busy(number), delay=10)

    model = ScriptedModel(
        steps=[
            reply(calls=[call("delegate_task_async", goal="SIX", max_iterations=3)]),
            check,
            check,
            reply("early"),
            reply("late"),
        ],
        scripts={"SIX": [slow(1), slow(2), slow(3), reply("three of six are done")]},
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("go", toolsets=TOOLS)
    running, ended = answers(model.requests[-1], "check_task")
    assert (running["status"], running["turns"], running["last_activity_seconds"]) == ("running", "3/3", 5.0)
    assert (ended["status"], ended["exit_reason"], ended["truncated"]) == ("completed", "max_iterations", True)
    # The report says first that it is not whole, so that nobody takes it for the result.
    assert "[INCOMPLETE: this task used all its turns" in msgspec.json.encode(model.requests[-1].entries).decode()


@pytest.mark.anyio
@pytest.mark.fault("B037")
async def test_a_child_stays_reachable_when_its_parent_was_interrupted_and_asked_anew(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    """A conversation whose turn is stopped and whose model fails in between still lists, steers and stops its child;
    another conversation of the process does not see it."""
    ids: list[str] = []

    def steer(_: ModelRequest) -> Reply:
        return reply(calls=[call("list_tasks"), call("steer_task", task_id=ids[0], message="to the left")])

    def stop(_: ModelRequest) -> Reply:
        return reply(calls=[call("cancel_task", task_id=ids[0])])

    def stranger(_: ModelRequest) -> Reply:
        return reply(calls=[call("list_tasks"), call("cancel_task", task_id=ids[0])])

    model = ScriptedModel(
        scripts={
            "mine": [
                reply(calls=[call("delegate_task_async", goal="WORK")]),
                reply("started"),
                steer,
                reply("steered"),
                stop,
                reply("stopped"),
            ],
            "other": [stranger, reply("nothing")],
            "WORK": [msgspec.structs.replace(busy(number), delay=10) for number in range(20)],
        }
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse(toolsets=TOOLS)
        await session.exchange("mine")
        ids.append(session.task.children[0].id)
        session.interrupt("changed my mind")
        await session.exchange("go on")
        other = await lab.converse(toolsets=TOOLS)
        await other.exchange("other")
        await session.exchange("now stop it")
        await session.task.children[0].done.wait()
        child = session.task.children[0].result
        await session.close()
        await other.close()
    last = [request for request in model.requests if first_user_text(request) == "mine"][-1]
    assert [task["task_id"] for task in answers(last, "list_tasks")[0]["tasks"]] == ids
    assert answers(last, "steer_task")[0]["ok"] is True
    assert answers(last, "cancel_task")[0]["ok"] is True
    assert child is not None
    assert child.state == "cancelled"
    strange = [request for request in model.requests if first_user_text(request) == "other"][-1]
    assert answers(strange, "list_tasks")[0]["tasks"] == []
    assert answers(strange, "cancel_task")[0]["error"] == f"Task not found: {ids[0]}"
