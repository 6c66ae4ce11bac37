"""Steering a run while it works, and the limits it holds."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from hermes.batch.accounts import Allowed, balance, read_allowed
from hermes.batch.folder import RunFolder
from hermes.batch.index import RecordIndex
from hermes.batch.listing import run_state, run_states
from hermes.batch.progress import Progress
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.batch.rowtable import RowEntry, RowTable
from hermes.batch.steering import Status, Wish, change_wish, is_held, read_status
from hermes.core.errors import OperatorError, UsageError
from hermes.core.messages import Usage
from hermes.testing.clock import VirtualClock
from tests.batch.fakes import Desk, FakeEngine, answered, failed, prompts

pytestmark = pytest.mark.anyio


def wish(desk: Desk, **changes: object) -> Wish:
    folder = RunFolder(desk.data, "r")
    return change_wish(folder, lambda old: msgspec.structs.replace(old, **changes))


async def obeyed(desk: Desk, number: int) -> Status:
    """Wait until the run has done the wish: it looks twice a second."""
    for _ in range(20):
        said = read_status(RunFolder(desk.data, "r"))
        if said is not None and said.obeyed >= number:
            return said
        await anyio.sleep(0.1)
    raise AssertionError("the run did not obey")


async def steered(
    desk: Desk, clock: VirtualClock, person: Callable[[FakeEngine], object], rows: int = 40, **settings: object
) -> tuple[int, FakeEngine]:
    """Run rows of a second each while `person` does something."""

    async def script(request: RolloutRequest) -> RolloutResult:
        await anyio.sleep(1)
        return answered(request.prompt)

    desk.dataset(prompts(rows))
    engine = FakeEngine(script)
    codes = []

    async def run() -> None:
        codes.append(await desk.start(engine, hold=clock, **settings))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        while not engine.requests:
            await anyio.sleep(0.1)
        await person(engine)  # type: ignore[misc]
    return codes[0], engine


@pytest.mark.may_block
async def test_a_paused_run_starts_no_row_until_it_goes_on(desk: Desk, virtual_clock: VirtualClock) -> None:
    async def person(engine: FakeEngine) -> None:
        await anyio.sleep(3)
        said = await obeyed(desk, wish(desk, paused=True).number)
        assert said.state == "paused"
        await anyio.sleep(2)
        before = len(engine.requests)
        await anyio.sleep(30)
        assert len(engine.requests) == before and engine.running == 0 and before < 40
        state = run_state(RunFolder(desk.data, "r"))
        assert (state.state, state.running, state.total) == ("paused", 0, 40)
        assert (await obeyed(desk, wish(desk, paused=False).number)).state == "running"

    code, engine = await steered(desk, virtual_clock, person, num_workers=4)
    assert code == 0 and len(engine.requests) == 40


@pytest.mark.may_block
async def test_the_number_of_workers_changes_while_it_runs(desk: Desk, virtual_clock: VirtualClock) -> None:
    async def person(engine: FakeEngine) -> None:
        await anyio.sleep(3)
        assert engine.running == 2
        assert (await obeyed(desk, wish(desk, workers=9).number)).workers == 9
        await anyio.sleep(1.5)
        assert engine.running == 9
        await obeyed(desk, wish(desk, workers=1).number)
        await anyio.sleep(1.5)
        assert engine.running == 1

    code, _ = await steered(desk, virtual_clock, person, num_workers=2)
    assert code == 0


@pytest.mark.may_block
async def test_a_run_that_is_stopped_keeps_all_and_goes_on(desk: Desk, virtual_clock: VirtualClock) -> None:
    async def person(engine: FakeEngine) -> None:
        await anyio.sleep(4)
        folder = RunFolder(desk.data, "r")
        assert is_held(folder)
        for name in ("status.json", "control.json"):
            wish(desk, paused=False)
            assert stat.S_IMODE(os.stat(folder.path / name).st_mode) == 0o600
        wish(desk, stop=True)

    code, engine = await steered(desk, virtual_clock, person, num_workers=2)
    state = run_state(RunFolder(desk.data, "r"))
    assert code == 130 and not is_held(RunFolder(desk.data, "r"))
    assert state.state == "stopped" and 0 < state.kept < 40 and state.kept + state.pending == 40
    assert await desk.start(FakeEngine(), resume=True) == 0, "the old wish to stop is forgotten"
    assert [state.state for state in run_states(desk.data)] == ["finished"]


@pytest.mark.may_block
async def test_a_run_whose_process_died_is_said_to_be_dead(desk: Desk) -> None:
    desk.dataset(prompts(2))
    assert await desk.start(FakeEngine()) == 0
    path = desk.data / "r" / "run.json"
    meta = json.loads(path.read_text("utf-8"))
    meta["sessions"][-1]["ended_at"] = None
    path.write_text(json.dumps(meta), "utf-8")
    assert run_state(RunFolder(desk.data, "r")).state == "died"


def costing(tokens: int, usd: float) -> Callable[[RolloutRequest], object]:
    async def script(request: RolloutRequest) -> RolloutResult:
        await anyio.sleep(0.01)
        return answered(request.prompt, usage=Usage(input=tokens, cost_usd=usd))

    return script


@pytest.mark.parametrize(
    ("limit", "flag"), [({"max_cost": 1.05}, "--max_cost=2.1"), ({"max_total_tokens": 1050}, "--max_total_tokens=2100")]
)
async def test_at_a_limit_no_row_starts_and_running_ones_end(
    desk: Desk, limit: dict[str, float], flag: str, virtual_clock: VirtualClock
) -> None:
    desk.dataset(prompts(50))
    engine = FakeEngine(costing(100, 0.1))  # type: ignore[arg-type]
    assert await desk.start(engine, num_workers=4, hold=virtual_clock, **limit) == 75
    assert desk.said[-1].startswith("kept 10 rejected 0 failed 0 pending 40 of 50") and flag in desk.said[-1]
    assert len(engine.requests) == 10, "rows under way are reckoned with, so that none goes over the limit"
    again = FakeEngine(costing(100, 0.1))  # type: ignore[arg-type]
    assert await desk.start(again, resume=True, hold=virtual_clock) == 75
    assert again.requests == [], "what earlier sessions used counts"
    more = {name: 2 * value for name, value in limit.items()}
    assert await desk.start(again, resume=True, hold=virtual_clock, **more) == 75
    assert len(again.requests) == 11
    assert "$" in Progress(total=1, started=0.0, priced=1, paid=0.5).line(1.0)


async def test_failures_may_be_allowed(desk: Desk) -> None:
    async def script(request: RolloutRequest) -> RolloutResult:
        return failed("server_error") if request.index < 2 else answered(request.prompt)

    desk.dataset(prompts(20))
    assert await desk.start(FakeEngine(script), allowed=Allowed(count=1)) == 1
    assert await desk.start(FakeEngine(script), resume=True, allowed=Allowed(count=2)) == 0
    assert await desk.start(FakeEngine(script), resume=True, allowed=read_allowed("10%")) == 0
    assert await desk.start(FakeEngine(script), resume=True, allowed=read_allowed("9.9%")) == 1
    for text in ("x", "-1", "101%", "%"):
        with pytest.raises(UsageError, match="allow_failed"):
            read_allowed(text)


async def test_rejected_rows_are_run_again_for_a_reason(desk: Desk) -> None:
    bad = {1: "", 4: "", 7: "why"}

    async def script(request: RolloutRequest) -> RolloutResult:
        thinking = bad.get(request.index, "why")
        return answered(request.prompt, thinking=thinking, call="nope" if request.index == 7 else "terminal")

    desk.dataset(prompts(9))
    assert await desk.start(FakeEngine(script), yes=True) == 0
    assert desk.json("statistics.json")["rejected_by_reason"] == {"hallucinated_tool": 1, "no_reasoning": 2}
    with pytest.raises(UsageError, match=r"Reasons there are: hallucinated_tool \(1\), no_reasoning \(2\)"):
        await desk.start(FakeEngine(), resume=True, redo=("rejected:nothing",))
    with pytest.raises(UsageError, match="rejected:REASON"):
        await desk.start(FakeEngine(), resume=True, redo=("failed",))
    bad[1] = "now I think"

    async def half_sick(request: RolloutRequest) -> RolloutResult:
        return failed("server_error") if request.index == 4 else await script(request)

    engine = FakeEngine(half_sick)
    assert await desk.start(engine, resume=True, redo=("rejected:no_reasoning",)) == 0
    assert sorted(request.index for request in engine.requests) == [1, 4]
    assert [row["prompt_index"] for row in desk.lines("trajectories.jsonl")] == [0, 1, 2, 3, 5, 6, 8]
    assert [row["prompt_index"] for row in desk.lines("rejected.jsonl")] == [4, 7], "what failed stands as it stood"
    assert sorted(row["prompt_index"] for row in desk.batch_rows()) == list(range(9))


def test_accounts_that_do_not_add_up_are_a_fault_with_its_numbers() -> None:
    rows = RowTable([RowEntry(f"{number:032x}:0", number) for number in range(3)])
    balance(Progress(total=3, started=0.0), rows, 1, RecordIndex())
    with pytest.raises(OperatorError, match=r"kept 1 .* pending 2 of 3, but the rows have 0 ended and 3 pending"):
        balance(Progress(total=3, started=0.0, kept=1), rows, 1, RecordIndex())


@pytest.mark.may_block
async def test_a_dataset_that_changes_under_a_run_stops_it(desk: Desk, tmp_path: Path) -> None:
    path = desk.dataset(prompts(400))

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index == 0:
            path.write_text(path.read_text("utf-8").replace("prompt 399", "prompt 999"), "utf-8")
        return answered(request.prompt)

    assert await desk.start(FakeEngine(script)) == 1
    assert any("line 400 is another than at the start" in line for line in desk.said)
    statistics = desk.json("statistics.json")
    assert statistics["kept"] + statistics["pending"] == 400 and statistics["pending"] > 0
    path.write_text(path.read_text("utf-8").replace("prompt 999", "prompt 399"), "utf-8")
    assert await desk.start(FakeEngine(), resume=True) == 0
