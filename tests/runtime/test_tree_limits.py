"""Limits and figures of whole trees: shared counts, ends of every kind, compaction, another process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hermes.compose import conversation_spec
from hermes.core.errors import ModelError
from hermes.core.events import ToolEnded, TurnEnded
from hermes.core.limits import Limits
from hermes.core.messages import ToolResult, Usage, plain_text
from hermes.core.model import ModelProfile, ModelRequest
from hermes.runtime.task import Task
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import EndlessModel, Reply, ScriptedModel, call, first_user_text, hang, reply

pytestmark = pytest.mark.anyio

PRICED = ModelProfile(window=200_000, max_output=50_000, price_input=1.0, price_output=4.0)
LOOK = call("todo", todos=[])


def parallel(*prompts: str, **more: Any) -> Reply:
    return reply(calls=[call("spawn_parallel", tasks=[{"prompt": prompt, **more} for prompt in prompts])])


def told(request: ModelRequest) -> str:
    return "\n".join(plain_text(entry.content) for entry in request.entries if isinstance(entry, ToolResult))


async def under(lab: Lab, goal: str, limits: Limits) -> Task:
    """Start a single request whose session has these limits."""
    spec, _ = conversation_spec(lab.assembly, goal=goal, interactive=False, workspace=str(lab.workspace))
    return await lab.runtime.start(msgspec.structs.replace(spec, session=limits), source="test")


def is_child(request: ModelRequest) -> bool:
    return "child" in first_user_text(request)


@pytest.mark.fault("B021")
async def test_a_looping_child_stops_the_tree_at_the_parents_limit_of_requests(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    def answer(request: ModelRequest) -> Reply:
        return reply("still reading", calls=[LOOK]) if is_child(request) else parallel("child loops")

    model = EndlessModel(answer)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        task = await under(lab, "go", Limits(requests=5))
        result = await lab.runtime.result(task)
        (child,) = task.children
    assert model.count == 5
    assert child.result is not None
    assert (child.result.exit_reason, child.result.summary) == ("budget", "still reading")
    assert (result.exit_reason, result.truncated) == ("budget", True)
    assert "requests limit of 5 reached (session)" in result.error


@pytest.mark.fault("B022")
async def test_eight_children_share_nine_tool_calls(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def answer(request: ModelRequest) -> Reply:
        if is_child(request):
            done = any(isinstance(entry, ToolResult) for entry in request.entries)
            return reply(told(request)) if done else reply(calls=[LOOK, LOOK])
        asked = any(isinstance(entry, ToolResult) for entry in request.entries)
        return reply(told(request)) if asked else parallel(*(f"child {n}" for n in range(8)))

    async with open_lab(EndlessModel(answer), workspace=tmp_path, clock=virtual_clock) as lab:
        task = await under(lab, "go", Limits(calls=10))  # the parent's own call is the tenth
        await lab.runtime.result(task)
        ran = [event for event in lab.of(ToolEnded) if event.name == "todo" and event.success]
        calls = task.budget.root.calls
        reports = [child.result.summary for child in task.children if child.result is not None]
    assert len(ran) == 9
    assert calls == 10
    assert sum("limit" in report for report in reports) >= 4  # seven calls were refused, and their models told


@pytest.mark.fault("B035")
async def test_a_hundred_children_at_once_are_refused_and_twenty_run_four_at_a_time(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    at_once: list[int] = []

    def answer(request: ModelRequest) -> Any:
        if is_child(request):
            at_once.append(model.in_flight)
            return reply("done", delay=1.0)
        texts = told(request)
        if "results" in texts:
            return reply("finished")
        return parallel(*(f"child {n}" for n in range(20 if texts else 100)))

    model = EndlessModel(answer)
    settings = {"delegation.max_live_children": 20, "delegation.max_concurrent_children": 4}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        task = await lab.start("go")
        result = await lab.runtime.result(task)
        refusals = [event.preview for event in lab.of(ToolEnded, task.id) if event.is_error]
        order = [item.task_id for item in lab.events if type(item.event).__name__ == "TaskStarted"][1:]
    assert result.summary == "finished"
    assert len(refusals) == 1
    assert len(task.children) == 20
    assert max(at_once) <= 4
    assert order == [child.id for child in task.children]


@pytest.mark.fault("B019")
async def test_figures_survive_every_kind_of_end(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    step = reply(calls=[LOOK], usage=Usage(input=200))
    scripts: dict[str, Sequence[Any]] = {
        "fails": [step, ModelError("no", reason="billing")],
        "hangs": [step, hang()],
        "nested": [
            reply(calls=[call("spawn_agent", prompt="deepest")], usage=Usage(input=100)),
            reply("n", usage=Usage(input=50)),
        ],
        "deepest": [reply("d", usage=Usage(input=300))],
        "go": [],
    }
    tasks = [{"prompt": "fails"}, {"prompt": "hangs", "timeout": 5}, {"prompt": "nested", "role": "orchestrator"}]
    scripts["go"] = [
        reply(calls=[call("spawn_parallel", tasks=tasks)], usage=Usage(input=10)),
        reply("end", usage=Usage(input=7)),
    ]
    model = ScriptedModel("m", [], PRICED, scripts=scripts, check=False)
    settings = {"delegation.max_spawn_depth": 2}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        task = await lab.start("go")
        result = await lab.runtime.result(task)
        fails, hangs, nested = (child.result for child in task.children)
        own = sum(event.usage.total for event in lab.of(TurnEnded))
    assert fails is not None and hangs is not None and nested is not None
    assert (fails.state, hangs.state, nested.state) == ("failed", "timed_out", "completed")
    assert fails.usage.total == 200
    assert hangs.usage.total > 200  # the request that hung was sent: its prompt counts, as an estimate
    assert hangs.usage.estimated
    assert (nested.usage.total, nested.subtree_usage.total) == (150, 450)
    assert result.usage.total == 17
    assert result.subtree_usage.total == own == task.budget.root.tokens
    assert own == 17 + 200 + hangs.usage.total + 450


@pytest.mark.fault("B020")
async def test_what_is_reported_is_what_the_model_was_asked_for(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    served: list[int] = []

    def answer(request: ModelRequest) -> Reply:
        size = 3_000 + 400 * len(request.entries)
        served.append(size + 20)
        if request.system.startswith("You summarise"):
            return reply("they read files", usage=Usage(input=size, output=20))
        done = len(served) > 14
        return reply("end" if done else "on", calls=[] if done else [LOOK], usage=Usage(input=size, output=20))

    model = EndlessModel(answer, profile=ModelProfile(window=12_000))
    settings = {"compression.protect_last_n": 4}
    ends: list[TurnEnded] = []
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        lab.runtime.bus.subscribe(lambda envelope: ends.append(envelope.event), types=(TurnEnded,))  # type: ignore[arg-type]
        result = await lab.runtime.result(await lab.start("go"))
    assert {end.purpose for end in ends} == {"main", "compaction"}
    assert result.usage.total == sum(served) == sum(end.usage.total for end in ends)


async def test_another_process_goes_on_with_what_is_left(tmp_path: Path) -> None:
    scripts: dict[str, Sequence[Any]] = {"go": [reply(calls=[LOOK], usage=Usage(input=30_000)), hang()]}
    settings = {"budget.session_tokens": 90_000}
    first = ScriptedModel("m", scripts=scripts)
    async with open_lab(first, workspace=tmp_path, memory=False, settings=settings) as lab:
        task = await lab.start("go", toolsets=["todo"])
        session = task.scope.session_id
        await _asked(first, 2)
    second = ScriptedModel("m", scripts={"go": [reply("end", usage=Usage(input=1_000))]}, check=False)
    async with open_lab(second, workspace=tmp_path, memory=False, settings=settings) as lab:
        task = await lab.assembly.recovery.adopt(session)
        before = task.budget.root.tokens
        await lab.runtime.result(task)
        assert task.budget.root.scope == "session"
        assert task.budget.root.limits.tokens == 90_000
        assert before >= 30_000
        assert task.budget.root.tokens == before + 1_000
        assert task.budget.root.held_tokens == 0


async def _asked(model: ScriptedModel, count: int) -> None:
    with anyio.fail_after(60):
        while len(model.requests) < count:
            await anyio.sleep(0.01)
