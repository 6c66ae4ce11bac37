"""Limits of a session, its tasks and their time, end to end on a scripted model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from hermes.core.errors import ModelError, UsageError
from hermes.core.events import BudgetReached, BudgetWarned, ToolProgress, TurnEnded
from hermes.core.limits import Limits
from hermes.core.messages import Notice, ToolResult, Usage, plain_text
from hermes.core.model import ModelProfile, ModelRequest
from hermes.core.usage import TURN_ENDED, fold, stored_call
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import EndlessModel, Reply, ScriptedModel, broken, call, first_user_text, hang, reply

pytestmark = pytest.mark.anyio

PRICED = ModelProfile(window=200_000, max_output=50_000, price_input=1.0, price_output=4.0)
PARALLEL = call("spawn_parallel", tasks=[{"prompt": f"child {n}"} for n in range(4)])


def used(tokens_in: int, tokens_out: int = 10) -> Usage:
    return Usage(input=tokens_in, output=tokens_out)


def notices(request: ModelRequest) -> list[str]:
    return [entry.text for entry in request.entries if isinstance(entry, Notice) and entry.kind == "budget"]


def answers(entries: tuple[Any, ...]) -> Mapping[str, Any]:
    """The answer of the newest tool call."""
    result = next(entry for entry in reversed(entries) if isinstance(entry, ToolResult))
    decoded: Mapping[str, Any] = msgspec.json.decode(plain_text(result.content))
    return decoded


async def test_a_single_request_stops_at_five_dollars_and_a_conversation_does_not(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel("m", [reply("one"), reply("two")], PRICED)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        single = await lab.start("first")
        await lab.runtime.result(single)
        session = await lab.converse()
        await session.exchange("second")
        limits = [task.budget.root.limits.cost_usd for task in (single, session.task)]
    assert limits == [5.0, None]


@pytest.mark.fault("B022")
async def test_children_side_by_side_stay_within_the_money_of_the_session(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    def answer(request: ModelRequest) -> Reply:
        child = first_user_text(request).lstrip().startswith("child") or "child " in first_user_text(request)
        if request.tool_choice == "none":
            return reply("what I have so far", usage=used(2_000, 100))
        if not child:
            done = any(isinstance(entry, ToolResult) for entry in request.entries)
            return reply("all done", usage=used(500)) if done else reply(calls=[PARALLEL], usage=used(500))
        cap = request.max_tokens or 0
        return reply("reading", calls=[call("todo", todos=[])], usage=used(2_000, cap), delay=1.0)

    model = EndlessModel(answer, profile=PRICED)
    settings = {"budget.session_usd": 0.1, "delegation.max_iterations": None}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        result = await lab.ask("go")
        costs = [event.usage.cost_usd for event in lab.of(TurnEnded)]
        warned = lab.of(BudgetWarned)
    assert 0.08 < sum(costs) <= 0.1
    assert result.exit_reason in ("completed", "budget")
    assert result.subtree_usage.cost_usd == pytest.approx(sum(costs))
    assert [event.scope for event in warned if event.kind == "cost"] == ["session"]


@pytest.mark.fault("B034")
async def test_a_task_near_its_limit_is_told_and_writes_a_report_before_the_end(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    seen: list[tuple[str, int | None, list[str]]] = []

    def answer(request: ModelRequest) -> Reply:
        seen.append((request.tool_choice, request.max_tokens, notices(request)))
        if request.tool_choice == "none":
            return reply("Report: three files read.", usage=used(1_500, 60))
        return reply(calls=[call("todo", todos=[])], usage=used(1_500, 20))

    settings = {"budget.session_tokens": 14_000, "agent.max_turns": None}
    async with open_lab(EndlessModel(answer), workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        result = await lab.ask("read everything", toolsets=["todo"])
        reached = lab.of(BudgetReached)
    assert result.summary == "Report: three files read."
    assert (result.state, result.exit_reason, result.truncated) == ("exhausted", "budget", True)
    assert result.usage.total <= 14_000
    assert [(event.kind, event.scope) for event in reached] == [("tokens", "session")]
    choice, cap, told = seen[-1]
    assert choice == "none"
    assert cap is not None
    assert "nearly used up" in told[-1]


async def test_eighty_percent_is_told_to_the_model(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    work = [call("todo", todos=[])]
    model = ScriptedModel(
        "m",
        [reply(calls=work, usage=used(41_000)), reply(calls=work, usage=used(500)), reply("done", usage=used(500))],
        ModelProfile(window=400_000),
    )
    settings = {"budget.session_tokens": 50_000, "compression.enabled": False}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        result = await lab.ask("go", toolsets=["todo"])
        warned = lab.of(BudgetWarned)
    assert result.state == "exhausted"  # the context alone is larger than what is left
    assert [(event.kind, event.limit) for event in warned] == [("tokens", 50_000)]


async def test_what_is_reserved_is_sent_as_the_cap(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("short", usage=used(100))], PRICED)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("go")
    assert model.requests[0].max_tokens == 4_096


async def test_without_a_report_of_the_provider_the_whole_reservation_counts(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel("m", [reply("short", usage=None)], PRICED)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("go")
    assert result.usage.estimated
    assert result.usage.output == 4_096
    assert result.usage.cost_usd == pytest.approx((result.usage.input * 1.0 + 4_096 * 4.0) / 1e6)


async def test_a_lost_reply_is_charged_and_nothing_stays_held(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    lost = broken(ModelError("cut off", reason="server_error"), text="half an answer")
    model = ScriptedModel("m", [lost], PRICED)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        task = await lab.start("go")
        result = await lab.runtime.result(task)
        budget = task.budget.root
    assert result.state == "failed"
    assert budget.scope == "session"
    assert (budget.held_tokens, budget.tokens) == (0, result.usage.total)
    assert result.usage.output == 4_096
    assert budget.cost == pytest.approx(result.usage.cost_usd)


async def test_an_unknown_price_is_refused_under_a_limit_that_was_asked_for(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel("nobody/knows-it", [])
    settings = {"budget.session_usd": 2.0}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        with pytest.raises(UsageError, match=r"nobody/knows-it is unknown.*\$2.*models:"):
            await lab.ask("go")
    assert model.requests == []


async def test_an_unknown_price_runs_under_the_usual_limit(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("nobody/knows-it", [reply("fine", usage=used(90_000_000))])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("go")
    assert result.state == "completed"
    assert model.requests[0].max_tokens is None


async def test_a_raised_limit_lets_a_conversation_go_on(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("dear", usage=used(900_000)), reply("again", usage=used(10))], PRICED)
    settings = {"budget.session_usd": 0.5, "compression.enabled": False}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        session = await lab.converse()
        await session.exchange("one")
        refused = await session.exchange("two")
        budget = lab.runtime.supervisor.budgets.of(session.id)
        assert budget is not None
        budget.change(Limits(cost_usd=20.0))
        more = await session.exchange("three")
    assert (refused.state, refused.limit) == ("exhausted", "cost")
    assert "cost limit of $0.5 reached (session)" in refused.error
    assert more.text == "again"


async def test_tokens_of_the_view_the_budget_and_the_stored_calls_are_one(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    scripts = {"child": [reply("reported", usage=used(200))] * 4}
    main = [reply(calls=[PARALLEL], usage=used(100)), reply("done", usage=used(300))]
    model = ScriptedModel("m", main, PRICED, scripts=scripts, check=False)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        task = await lab.start("go")
        result = await lab.runtime.result(task)
        rows = await lab.runtime.store.events_of_type(TURN_ENDED, session_id=task.scope.session_id)
    calls = [stored_call(row.task_id, row.session_id, row.at, row.body) for row in rows]
    assert result.subtree_usage.total == 420 + 4 * 210
    assert result.usage.total == 420
    assert fold(calls, "session").total.usage.total == task.budget.root.tokens == result.subtree_usage.total
    purposes = {line.key: line.usage.total for line in fold(calls, "purpose").lines}
    assert purposes == {"main": 420, "child": 840}


@pytest.mark.fault("B033")
async def test_a_child_that_never_got_an_answer_leaves_a_diagnosis(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    child = call("spawn_agent", prompt="child waits", timeout=5)
    model = ScriptedModel("m", [reply(calls=[child]), reply("it hung")], scripts={"child": [hang()]}, check=False)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("go")
        logs = lab.assembly.home.path / "logs"
    answer = answers(model.requests[-1].entries)["results"][0]
    assert result.summary == "it hung"
    assert answer["status"] == "timeout"
    assert "in phase model" in answer["error"]
    path = Path(answer["diagnostic_path"])
    assert path.parent == logs
    assert path.name.startswith(f"subagent-timeout-{answer['task_id']}-20")
    text = path.read_text()
    assert "phase: model" in text
    assert "prompt: about " in text
    assert "tools: " in text
    assert "Turns._stream" in text


async def test_a_child_that_worked_leaves_none(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    child = call("spawn_agent", prompt="child works", timeout=5)
    steps: list[Any] = [reply(calls=[call("todo", todos=[])]), hang()]
    model = ScriptedModel("m", [reply(calls=[child]), reply("it hung")], scripts={"child": steps}, check=False)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        await lab.ask("go")
        logs = lab.assembly.home.path / "logs"
    answer = answers(model.requests[-1].entries)["results"][0]
    assert answer["status"] == "timeout"
    assert "diagnostic_path" not in answer
    assert not list(logs.glob("subagent-timeout-*"))


@pytest.mark.fault("B001")
async def test_a_silent_child_is_stopped_by_the_configured_inactivity(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    both = call("spawn_parallel", tasks=[{"prompt": "child quick"}, {"prompt": "child silent"}])
    scripts: dict[str, list[Any]] = {"quick": [reply("fine", delay=1.0)], "silent": [hang()]}
    model = ScriptedModel("m", [reply(calls=[both]), reply("done")], scripts=scripts, check=False)
    settings = {"delegation.inactivity_seconds": 2}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        await lab.ask("go")
    quick, silent = answers(model.requests[-1].entries)["results"]
    assert (quick["status"], quick["summary"]) == ("completed", "fine")
    assert silent["status"] == "timeout"
    assert "inactive: no step for 2 s in phase model" in silent["error"]
    assert virtual_clock.elapsed < 5


@pytest.mark.fault("B002")
async def test_output_of_a_command_is_progress_and_its_silence_is_not(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    """The clock, which stands while commands run, is moved whenever one of them has said something."""
    each = "for i in 1 2 3 4 5 6; do until test -e heard$i; do echo $i; sleep 0.05; done; done"
    noisy = reply(calls=[call("terminal", command=f"until test -e quiet; do sleep 0.01; done; {each}")])
    silent = reply(calls=[call("terminal", command="touch quiet; sleep 300")])
    both = call("spawn_parallel", tasks=[{"prompt": "child noisy"}, {"prompt": "child silent"}])
    scripts: dict[str, list[Any]] = {"noisy": [noisy, reply("counted")], "silent": [silent]}
    model = ScriptedModel("m", [reply(calls=[both]), reply("done")], scripts=scripts, check=False)
    settings = {"delegation.inactivity_seconds": 1}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        said: set[str] = set()
        lab.runtime.bus.subscribe(
            lambda envelope: said.add(envelope.event.text) if isinstance(envelope.event, ToolProgress) else None
        )
        task = await lab.start("go")
        for number in "123456":
            while number not in said:
                await anyio.sleep(0)
            virtual_clock.jump(0.6)
            await anyio.to_thread.run_sync((tmp_path / f"heard{number}").touch)
        await lab.runtime.result(task)
    loud, quiet = answers(model.requests[-1].entries)["results"]
    assert (loud["status"], loud["summary"]) == ("completed", "counted")
    assert quiet["status"] == "timeout"
    assert "inactive: no step for 1 s in phase tool terminal" in quiet["error"]


async def test_a_child_started_beside_the_conversation_may_have_limits_of_its_own(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    spawn = call("delegate_task_async", goal="child dear", max_cost=0.02, max_tokens_total=900_000)
    scripts: dict[str, list[Any]] = {
        "dear": [reply("part", calls=[call("todo", todos=[])], usage=used(19_000)), reply("x")]
    }
    main = [reply(calls=[spawn]), reply("waiting"), reply("seen")]
    model = ScriptedModel("m", main, PRICED, scripts=scripts, check=False)
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        task = await lab.start("go")
        await lab.runtime.result(task)
        child = task.children[0]
    assert (child.spec.limits.cost_usd, child.spec.limits.tokens) == (0.02, 900_000)
    assert child.result is not None
    assert (child.result.exit_reason, child.result.truncated, child.result.summary) == ("budget", True, "part")
    assert f"cost limit of $0.02 reached ({child.id})" in child.result.error


async def test_a_limit_on_a_child_of_unknown_price_is_refused_to_the_model(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    spawn = call("delegate_task_async", goal="child", max_cost=0.02)
    model = ScriptedModel("own/model", [reply(calls=[spawn]), reply("then without")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("go")
    answer = next(entry for entry in model.requests[1].entries if isinstance(entry, ToolResult))
    assert answer.is_error
    assert "the price of own/model is unknown" in plain_text(answer.content)
    assert result.summary == "then without"
