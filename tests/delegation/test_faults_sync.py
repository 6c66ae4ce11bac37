"""Faults that users report of children they wait for; each test holds the right value."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from hermes.core.errors import ModelError
from hermes.core.events import ApprovalAnswered, TaskEnded
from hermes.core.messages import Steer, Usage
from hermes.core.model import ModelProfile
from hermes.core.toolsets import KNOWN_TOOLSETS
from hermes.runtime.asking import Answer, Question
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import EndlessModel, ScriptedModel, broken, call, first_user_text, hang, reply
from tests.delegation.family import STEP, answers, asked_by, child_of, family, until

pytestmark = pytest.mark.anyio

DEEP = {"delegation.max_spawn_depth": 3}


@pytest.mark.fault("B001")
@pytest.mark.fault("B028")
async def test_one_failing_and_one_hanging_child_leave_the_others_results(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    tasks = [{"goal": word} for word in ("one", "broken", "three", "hung", "five")]
    model = family(
        [reply(calls=[call("delegate_task", tasks=tasks, timeout=2)]), reply("went on")],
        one=[reply("report 1")],
        broken=[broken(ModelError("it burst", reason="server_error"), text="half")],
        three=[reply("report 3", delay=1)],
        hung=[hang()],
        five=[reply("report 5")],
    )
    async with open_lab(
        model, workspace=tmp_path, clock=virtual_clock, settings={"delegation.child_timeout_seconds": 900}
    ) as lab:
        result = await lab.ask("parent")
    assert result.summary == "went on" and result.elapsed < 4
    (given,) = answers(model.requests[-1])
    rows = given["results"]
    assert [row["status"] for row in rows] == ["completed", "failed", "completed", "timeout", "completed"]
    assert [row["summary"] for row in rows if row["status"] == "completed"] == ["report 1", "report 3", "report 5"]
    assert "it burst" in rows[1]["error"]
    assert rows[3]["timeout_seconds"] == 2 and rows[3]["timeout_phase"] == "before_first_llm_call"


@pytest.mark.fault("B003")
@pytest.mark.fault("B012")
async def test_a_limit_holds_inside_a_command_and_nothing_writes_afterwards(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    """The clock, which stands while a command runs, is moved once the command has begun to write."""
    command = "echo $$ > pid; for i in $(seq 400); do echo $i >> growing; sleep 0.05; done"
    model = family(
        [reply(calls=[call("delegate_task", goal="busy", timeout=2)]), reply("over")],
        busy=[reply("I begin.", calls=[call("terminal", command=command)])],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        task = await lab.start("parent")
        while not (tmp_path / "growing").exists():
            await anyio.sleep(0)
        while child_of(lab, "busy").stop is None:
            virtual_clock.jump(0.1)
            await anyio.sleep(0)
        result = await lab.runtime.result(task)
        size = (tmp_path / "growing").stat().st_size
        with pytest.raises(ProcessLookupError):
            os.killpg(os.getpgid(int((tmp_path / "pid").read_text())), 0)
        await anyio.to_thread.run_sync(time.sleep, 0.2)
        assert (tmp_path / "growing").stat().st_size == size
    (row,) = answers(model.requests[-1])[0]["results"]
    assert row["status"] == "timeout" and result.elapsed < 15  # of the twenty seconds that the command takes
    assert "I begin." in row["summary"] and "INCOMPLETE" in row["summary"]


@pytest.mark.fault("B004")
async def test_a_child_that_never_gets_an_answer_says_where_it_stands(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = family([reply(calls=[call("delegate_task", goal="mute", timeout=2)]), reply("over")], mute=[hang()])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
    (row,) = answers(model.requests[-1])[0]["results"]
    assert row["status"] == "timeout" and row["timeout_phase"] == "before_first_llm_call"
    assert "phase model" in row["error"] and "2 s" in row["error"]
    diagnosis = Path(row["diagnostic_path"]).read_text()
    for words in ("phase: model", "prompt: about", "tools: ", "sleep_forever"):
        assert words in diagnosis


@pytest.mark.fault("B006")
async def test_five_long_reports_fit_into_a_small_window(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    long = "".join(f"line {n} of a report that is far too long\n" for n in range(1000))
    words = ("one", "two", "three", "four", "five")
    model = family(
        [
            reply(calls=[call("spawn_parallel", tasks=[{"prompt": word} for word in words])], usage=Usage(input=8_000)),
            reply("read"),
        ],
        profile=ModelProfile(window=16_000),
        **{word: [reply(long)] for word in words},
    )
    settings = {"compression.enabled": False}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        await lab.ask("parent")
        (given,) = answers(asked_by(model, "parent")[-1])
        for row in given["results"]:
            assert row["summary"].startswith("line 0 ") and row["summary"].rstrip().endswith("far too long")
            assert row["report_path"] in row["summary"]
            assert Path(row["report_path"]).read_text() == long
    assert sum(len(row["summary"]) for row in given["results"]) < 8_000 * 3.8 * 0.5


@pytest.mark.fault("B008")
async def test_an_empty_final_text_is_no_failure(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family(
        [reply(calls=[call("delegate_task", goal="mute")]), reply("over")],
        mute=[STEP, reply(calls=[call("terminal", command="true")]), *[reply("")] * 4],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
    (row,) = answers(model.requests[-1])[0]["results"]
    assert row["status"] == "completed"
    assert "without a final text" in row["summary"] and "todo, terminal" in row["summary"]


@pytest.mark.fault("B008")
@pytest.mark.fault("B010")
async def test_a_message_leaves_children_alone_and_a_stop_ends_them(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = family(
        [reply(calls=[call("delegate_task", tasks=[{"goal": w} for w in ("fast", "slow", "long")])]), reply("later")],
        fast=[reply("fast report")],
        slow=[STEP] * 400,
        long=[hang()],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse(goal="parent")
        await until(lambda: len(lab.of(TaskEnded)) == 1 and model.in_flight)
        await session.say("an ordinary message")
        await anyio.sleep(5)
        assert len(session.running()) == 2, "a message is no stop"
        stopped = await session.stop()
        assert len(stopped) == 2 and session.running() == []
        before = len(asked_by(model, "slow")) + len(asked_by(model, "long"))
        await anyio.sleep(60)
        assert len(asked_by(model, "slow")) + len(asked_by(model, "long")) == before
        assert child_of(lab, "fast").result.summary == "fast report"  # type: ignore[union-attr]


@pytest.mark.fault("B009")
async def test_work_done_is_kept_when_the_stop_hits_the_closing_text(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = family(
        [reply(calls=[call("delegate_task", goal="writer")])],
        writer=[reply("I write it down.", calls=[call("write_file", path="done.txt", content="all of it")]), hang()],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse(goal="parent")
        await until(lambda: len(asked_by(model, "writer")) == 2)
        await session.stop()
        result = child_of(lab, "writer").result
    assert result is not None and result.state == "cancelled" and result.exit_reason == "interrupted"
    assert result.files_written == (str(tmp_path / "done.txt"),)
    assert [(trace.tool, trace.status) for trace in result.tool_trace] == [("write_file", "ok")]
    assert result.summary == "I write it down." and result.partial


@pytest.mark.fault("B023")
async def test_a_hundred_and_fifty_children_come_in_waves(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    tasks = [{"prompt": f"child {n}."} for n in range(150)]

    def step(request: object) -> object:
        text = first_user_text(request)  # type: ignore[arg-type]
        if text.startswith("child"):
            return reply(f"report of {text}" * 100, delay=1)
        seen.append(answers(request))  # type: ignore[arg-type]
        return parent.pop(0)

    seen: list[list[dict[str, Any]]] = []
    parent = [reply(calls=[call("spawn_parallel", tasks=tasks)]), reply("over")]
    model = EndlessModel(step)
    settings = {"delegation.max_concurrent_children": 8}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        task = await lab.start("parent")
        await lab.runtime.result(task)
        ends = [envelope.event for envelope in lab.events if isinstance(envelope.event, TaskEnded)]
    assert len(ends) == 151 and {end.state for end in ends} == {"completed"}
    assert model.peak == 8
    rows = seen[1][0]["results"]
    assert [row["task_index"] for row in rows] == list(range(150))
    for number in (0, 77, 149):
        assert rows[number]["summary"].startswith(f"report of child {number}.")
        assert Path(rows[number]["report_path"]).read_text() == f"report of child {number}." * 100


@pytest.mark.fault("B024")
@pytest.mark.parametrize("moment", ["between tools", "while the final text comes", "stopped before it was read"])
async def test_a_correction_is_delivered_or_reported(tmp_path: Path, virtual_clock: VirtualClock, moment: str) -> None:
    steps = {
        "between tools": [reply(calls=[call("todo", todos=[])], delay=10), reply("as corrected")],
        "while the final text comes": [reply("first answer", delay=10), reply("as corrected")],
        "stopped before it was read": [hang()],
    }[moment]
    model = ScriptedModel("m", steps)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        task, control = await lab.start("work"), lab.runtime.control
        await until(lambda: model.in_flight)
        receipt = await control.steer(task, "do it otherwise")
        assert receipt is not None and receipt.state == "queued"
        if moment.startswith("stopped"):
            await control.cancel([task], "stopped")
        result = await lab.runtime.result(task)
        state = control.view(task).receipts[receipt.id]
        assert await control.steer(task, "too late") is None
    if moment.startswith("stopped"):
        assert state["state"] == "missed" and result.missed_steer == ("do it otherwise",)
    else:
        assert state["state"] == "delivered" and result.summary == "as corrected" and result.missed_steer == ()
        steers = [entry for entry in model.requests[-1].entries if isinstance(entry, Steer)]
        assert [entry.text for entry in steers] == ["do it otherwise"]
    model.assert_complete()


@pytest.mark.fault("B027")
@pytest.mark.parametrize(("cap", "ended"), [(None, ("completed", "completed")), (25, ("completed", "max_iterations"))])
async def test_a_childs_own_cap_takes_no_sibling_along(
    tmp_path: Path, virtual_clock: VirtualClock, cap: int | None, ended: tuple[str, str]
) -> None:
    long = [reply(calls=[call("terminal", command=f"true {n}")]) for n in range(40)]
    model = family(
        [reply(calls=[call("delegate_task", tasks=[{"goal": "long"}, {"goal": "short"}])]), reply("over")],
        long=[*long[: cap or 40], reply("long report")],
        short=[*[STEP] * 5, reply("short report")],
    )
    settings = {"agent.max_turns": 300, **({"delegation.max_iterations": cap} if cap else {})}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings, yolo=True) as lab:
        await lab.ask("parent")
    first, second = answers(model.requests[-1])[0]["results"]
    assert (first["status"], first["exit_reason"]) == ended
    assert first.get("truncated", False) == bool(cap) and "long report" in first["summary"]
    assert (second["status"], second["summary"]) == ("completed", "short report")


@pytest.mark.fault("B029")
@pytest.mark.parametrize("who", ["a person", "nobody there", "nobody answers"])
async def test_a_question_from_depth_two_is_shown_or_decided(
    tmp_path: Path, virtual_clock: VirtualClock, who: str
) -> None:
    model = family(
        [reply(calls=[call("delegate_task", goal="middle", role="orchestrator")]), reply("over")],
        middle=[reply(calls=[call("delegate_task", goal="leaf")]), reply("middle report")],
        leaf=[reply(calls=[call("terminal", command="rm -rf ~/x")]), reply("leaf report")],
    )
    asked: list[Question] = []

    async def person(question: Question) -> Answer:
        asked.append(question)
        if who == "nobody answers":
            await anyio.sleep_forever()
        return "no"

    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=DEEP) as lab:
        if who != "nobody there":
            lab.runtime.gate.asker = person
        session = await lab.converse(goal="parent", unattended=who == "nobody there")
        await until(lambda: session.task.resting, 3_000)
        (answered,) = lab.of(ApprovalAnswered)
        assert session.task.outcome is not None and session.task.outcome.text == "over"
        await session.close()
    assert not answered.allowed
    assert answered.by == {"a person": "user", "nobody there": "policy", "nobody answers": "timeout"}[who]
    assert [question.path for question in asked] == ([("parent", "middle", "leaf")] if who != "nobody there" else [])
    (refused,) = answers(asked_by(model, "leaf")[-1])
    assert "Denied" in refused["error"]


@pytest.mark.fault("B030")
async def test_stopping_the_root_stops_three_generations(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def spawn(word: str) -> object:
        return reply(calls=[call("delegate_task", goal=word, role="orchestrator")])

    model = family([spawn("child")], child=[spawn("middle")], middle=[spawn("leaf")], leaf=[STEP] * 500)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=DEEP) as lab:
        root = await lab.start("parent")
        await until(lambda: len(asked_by(model, "leaf")) > 3)
        assert await lab.runtime.control.cancel([root], "enough") == [root]
        await root.done.wait()
        count = len(model.requests)
        await anyio.sleep(120)
        assert len(model.requests) == count
        ends = [
            (envelope.task_id, envelope.event.state) for envelope in lab.events if isinstance(envelope.event, TaskEnded)
        ]
    assert len(ends) == 4 == len(dict(ends)) and {state for _, state in ends} == {"cancelled"}
    assert ends[-1][0] == root.id, "leaves first"


@pytest.mark.fault("B032")
async def test_a_child_at_its_cap_says_so_and_shows_progress_before(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    def look(request: object) -> object:
        ids.append(answers(request)[0]["task_id"])  # type: ignore[arg-type]
        return reply(calls=[call("check_task", task_id=ids[0])], delay=1.5)

    ids: list[str] = []
    model = family(
        [
            reply(calls=[call("delegate_task_async", goal="capped", max_iterations=3)]),
            look,
            lambda _: reply(calls=[call("check_task", task_id=ids[0])], delay=30),
            reply("over"),
        ],
        capped=[*[STEP] * 3, reply("half of it")],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
        parent = asked_by(model, "parent")
    before, after = answers(parent[2])[0], answers(parent[3])[0]
    assert before["status"] == "running" and before["turns"] in ("1/3", "2/3")
    assert before["last_activity_seconds"] < 2 and "todo" in before["output_preview"]
    assert after["exit_reason"] == "max_iterations" and after["truncated"] is True
    assert "turns limit of 3" in after["error"]


@pytest.mark.fault("B035")
async def test_a_hundred_children_are_refused_with_what_is_left_and_few_run(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    def many(count: int) -> object:
        return reply(
            calls=[call("delegate_task", tasks=[{"goal": f"child {n}"} for n in range(count)], background=True)]
        )

    def step(request: object) -> object:
        text = first_user_text(request)  # type: ignore[arg-type]
        if text.startswith("child"):
            return reply("done", delay=10)
        seen.append(answers(request))  # type: ignore[arg-type]
        return steps.pop(0)

    seen: list[list[dict[str, object]]] = []
    steps = [many(100), many(20), many(1), reply("wait"), *[reply("noted")] * 20]
    model = EndlessModel(step)
    settings = {"delegation.max_concurrent_children": 4, "delegation.max_live_children": 20}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        result = await lab.ask("parent")
    assert "100 tasks were asked for and 20 more may live" in str(seen[1])
    assert len(seen[2][0]["task_ids"]) == 20  # type: ignore[arg-type]
    assert "1 tasks were asked for and 0 more may live" in str(seen[3])
    assert model.peak <= 5, "four children and their parent"
    assert len(result.children) == 20 and {child.status for child in result.children} == {"completed"}


@pytest.mark.fault("B130")
@pytest.mark.parametrize(
    "toolsets",
    [
        ("terminal",),
        ("file", "todo"),
        ("delegation",),
        ("async_delegation", "file"),
        ("terminal", "delegation"),
        (),
        ("search",),
        ("web",),
        ("code_execution",),
        ("kanban",),
    ],
    ids="+".join,
)
async def test_no_text_names_a_tool_that_is_not_there(
    tmp_path: Path, virtual_clock: VirtualClock, toolsets: tuple[str, ...]
) -> None:
    model = ScriptedModel("m", [reply("fine")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("go", toolsets=toolsets)
    (request,) = model.requests
    offered = {tool.name for tool in request.tools}
    known = {name for info in KNOWN_TOOLSETS for name in info.tools if "_" in name}
    texts = [request.system, *(str(msgspec.to_builtins((tool.description, tool.parameters))) for tool in request.tools)]
    named = set(re.findall(r"\w+", " ".join(texts)))
    assert sorted(named & (known - offered)) == []


@pytest.mark.fault("B144")
async def test_one_gate_in_the_foreground_the_background_and_a_child(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    command = "rm -rf ~/x"
    both = [call("terminal", command=command), call("terminal", command=command, background=True)]
    model = family(
        [reply(calls=[*both, call("delegate_task", goal="deputy")]), reply("over")],
        deputy=[reply(calls=both), reply("tried")],
    )
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("parent")
        refusals = lab.of(ApprovalAnswered)
    assert len(refusals) == 4 and not any(answer.allowed for answer in refusals)
    given = [*answers(asked_by(model, "parent")[-1])[:2], *answers(asked_by(model, "deputy")[-1])]
    assert len({answer["error"] for answer in given}) == 1
