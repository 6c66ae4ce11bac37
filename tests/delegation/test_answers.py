"""Answers of the nine delegation tools to what a model may write: every wrong argument is a sentence it can act on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes.core.model import ModelRequest
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import Call, ScriptedModel, call, hang, reply
from tests.delegation.family import answers, asked_by, family

pytestmark = pytest.mark.anyio

WRONG = [
    (call("delegate_task"), "goal is required"),
    (call("delegate_task", goal="   "), "goal is required"),
    (call("delegate_task", goal=7), "goal is required"),
    (call("delegate_task", tasks=[]), "tasks is empty"),
    (call("delegate_task", tasks="[{goal}]"), "could not be parsed as JSON"),
    (call("delegate_task", tasks={"goal": "x"}), "must be a list of objects"),
    (call("delegate_task", tasks=[{"goal": "x"}, 3]), "task 1: expected an object"),
    (call("delegate_task", tasks=[{"goal": "x"}, {"context": "y"}]), "task 1: goal is required"),
    (call("delegate_task", goal="x", timeout=-1), "timeout must be a positive number"),
    (call("delegate_task", goal="x", timeout="soon"), "could not convert"),
    (call("delegate_task", goal="x", toolsets=[1]), "toolsets must be a list of names"),
    (call("delegate_task", goal="x", toolsets=["nonsense"]), "unknown toolset 'nonsense'"),
    (call("delegate_task", goal="x", acp_command="other"), "acp_command is not supported"),
    (call("delegate_task", goal="x", workspace="vm"), "workspace is one of shared, scratch, copy, worktree"),
    (call("spawn_parallel", tasks=[{"prompt": "x", "workspace": 7}]), "task 0: workspace is one of"),
    (call("delegate_task", goal="x", background="perhaps"), "Expected `bool`"),
    (call("spawn_agent", context="only"), "goal is required"),
    (call("spawn_parallel", tasks=[{}]), "task 0: goal is required"),
    (call("delegate_task_async", context="only"), "goal is required"),
    (call("delegate_task_async", goal="x", max_iterations=0), "max_iterations must be at least 1"),
    (call("delegate_task_async", goal="x", skill="s"), "skill is not supported"),
    (call("check_task"), "missing required field `task_id`"),
    (call("check_task", task_id="nope"), "Task not found: nope"),
    (call("steer_task", task_id="nope", message="x"), "Task not found: nope"),
    (call("steer_task", task_id="nope"), "missing required field `message`"),
    (call("collect_task", task_id=""), "Task not found: "),
    (call("collect_task", task_id="nope", timeout="long"), "Expected `float | null`"),
    (call("cancel_task", task_id="nope"), "Task not found: nope"),
]


async def test_every_wrong_argument_is_answered_with_what_is_wrong(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    calls = [wrong for wrong, _ in WRONG]
    model = ScriptedModel("m", [reply(calls=calls), reply("understood")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("try")
    assert result.summary == "understood" and result.children == (), "nothing was started"
    given = answers(model.requests[1])
    missed = [
        f"{wrong.name} {dict(wrong.arguments)}: {answer}"
        for (wrong, words), answer in zip(WRONG, given, strict=True)
        if words not in str(answer.get("error"))
    ]
    assert missed == []


RIGHT: list[tuple[str, Call, int]] = [
    ("one goal", call("delegate_task", goal="child"), 1),
    ("prompt is goal", call("delegate_task", prompt="child"), 1),
    ("goal in spawn_agent", call("spawn_agent", goal="child"), 1),
    ("a list", call("spawn_parallel", tasks=[{"prompt": "child"}, {"goal": "child"}]), 2),
    ("a list of texts", call("spawn_parallel", tasks=["child", "child"]), 2),
    ("a list as JSON text", call("delegate_task", tasks='[{"goal": "child"}, {"goal": "child"}]'), 2),
    ("tasks win over goal", call("delegate_task", goal="ignored", tasks=[{"goal": "child"}]), 1),
    ("a bare list", call("spawn_parallel", raw='[{"prompt": "child"}, {"prompt": "child"}]'), 2),
]


@pytest.mark.parametrize(
    ("made", "count"), [(made, count) for _, made, count in RIGHT], ids=[name for name, *_ in RIGHT]
)
async def test_each_spelling_of_the_same_wish_is_understood(
    tmp_path: Path, virtual_clock: VirtualClock, made: Call, count: int
) -> None:
    model = family([reply(calls=[made]), reply("over")], child=[reply("report")] * count)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
    (given,) = answers(asked_by(model, "parent")[-1])
    assert [row["summary"] for row in given["results"]] == ["report"] * count


async def test_the_shape_of_a_result(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [reply(calls=[call("delegate_task", goal="child", context="in the north")]), reply("over")],
        child=[reply(calls=[call("todo", todos=[])], delay=2), reply("report", delay=2)],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
    (given,) = answers(model.requests[-1])
    assert given["total_duration_seconds"] == pytest.approx(4, abs=0.5)
    (row,) = given["results"]
    trace = row.pop("tool_trace")
    assert [(item["tool"], item["status"]) for item in trace] == [("todo", "ok")] and trace[0]["args_bytes"] == 12
    duration, task_id = row.pop("duration_seconds"), row.pop("task_id")
    assert duration == pytest.approx(4, abs=0.5) and task_id.startswith("sa-")
    assert row == {
        "task_index": 0,
        "status": "completed",
        "summary": "report",
        "api_calls": 2,
        "model": "m",
        "exit_reason": "completed",
        "tokens": {"input": 20, "output": 10, "cached": 0, "reasoning": 0},
    }
    first = asked_by(model, "child")[0]
    assert first.entries[0].content[0].text == "child\n\nCONTEXT:\nin the north"  # type: ignore[union-attr]


async def test_what_the_verbs_say_of_a_running_and_an_ended_task(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    seen: dict[str, Any] = {}

    def first(request: ModelRequest) -> object:
        seen["id"] = answers(request)[0]["task_id"]
        short = seen["id"][:9]
        return reply(
            calls=[
                call("check_task", task_id=short),
                call("collect_task", task_id=short, timeout=3),
                call("steer_task", task_id=short, message="  "),
                call("list_tasks"),
            ],
            delay=1,
        )

    def second(request: ModelRequest) -> object:
        seen["running"] = answers(request)
        return reply(calls=[call("cancel_task", task_id=seen["id"][:9])])

    def third(request: ModelRequest) -> object:
        seen["running"] += answers(request)
        verbs = ("check_task", "collect_task", "cancel_task")
        again = [call(verb, task_id=seen["id"]) for verb in verbs]
        return reply(calls=[*again, call("steer_task", task_id=seen["id"], message="x"), again[1]], delay=1)

    model = family(
        [reply(calls=[call("delegate_task_async", goal="child " + "x" * 80)]), first, second, third, reply("over")],
        child=[hang()],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
    checked, collected, empty, listed, cancelled = seen["running"]
    assert {"task_id", "status", "elapsed", "output_preview", "output_lines"} <= set(checked)
    assert (checked["status"], checked["phase"]) == ("running", "model")
    assert (collected["status"], collected["timed_out"], collected["summary"]) == ("running", True, "")
    assert "message is required" in empty["error"]
    assert len(listed["tasks"][0]["goal"]) == 60 and listed["tasks"][0]["status"] == "running"
    assert cancelled.pop("receipt")["state"] == "queued"
    assert cancelled == {"ok": True, "cancelled": seen["id"], "message": cancelled["message"]}
    checked, collected, cancelled, steered, again = answers(model.requests[-1])
    assert (checked["status"], checked["exit_reason"]) == ("cancelled", "interrupted")
    assert collected == again and collected["status"] == "cancelled" and collected["timed_out"] is False
    for answer in (cancelled, steered):
        assert answer == {"ok": False, "error": f"Task {seen['id']} is not running (status: cancelled)."}


async def test_a_leaf_has_no_way_to_delegate(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [
            reply(calls=[call("delegate_task", goal="child", role="orchestrator", toolsets=["terminal", "kanban"])]),
            reply("x"),
        ],
        child=[reply(calls=[call("delegate_task", goal="grandchild")]), reply("alone")],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
    offered = {tool.name for tool in asked_by(model, "child")[0].tools}
    assert offered == {"terminal", "process"}
    assert "There is no tool named 'delegate_task'" in answers(asked_by(model, "child")[1])[0]["error"]
    notes = answers(asked_by(model, "parent")[-1])[0]["notes"]
    assert any("lowered to 'leaf'" in note for note in notes) and any("kanban" in note for note in notes)


async def test_depth_is_refused_with_the_limit(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    """An orchestrator's own children are leaves where the depth ends; deeper spawning is refused, not queued."""
    settings = {"delegation.max_spawn_depth": 2}
    model = family(
        [reply(calls=[call("delegate_task", goal="child", role="orchestrator")]), reply("over")],
        child=[reply(calls=[call("delegate_task", goal="leaf", role="orchestrator")]), reply("middle")],
        leaf=[reply("low")],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        await lab.ask("parent")
    assert "delegate_task" in {tool.name for tool in asked_by(model, "child")[0].tools}
    assert "delegate_task" not in {tool.name for tool in asked_by(model, "leaf")[0].tools}
    assert "lowered" in str(answers(asked_by(model, "child")[-1])[0]["notes"])
