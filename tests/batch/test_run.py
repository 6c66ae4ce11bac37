from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import anyio
import pytest

from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.batch.rowclock import RowClock
from hermes.batch.run import StopSwitch
from hermes.batch.summary import StopCause
from hermes.core.errors import TryLater, UsageError
from hermes.testing.clock import VirtualClock
from tests.batch.fakes import Desk, FakeEngine, answered, failed, prompts

pytestmark = pytest.mark.anyio


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


async def test_a_run_leaves_its_files_and_says_its_counts(desk: Desk) -> None:
    desk.dataset(prompts(25))
    engine = FakeEngine()
    assert await desk.start(engine, batch_size=10, num_workers=4) == 0
    assert desk.said[-1].startswith("kept 25 rejected 0 failed 0 pending 0 of 25, ")
    assert sorted(row["prompt_index"] for row in desk.lines("batch_2.jsonl")) == [20, 21, 22, 23, 24]
    assert [row["prompt_index"] for row in desk.lines("trajectories.jsonl")] == list(range(25))
    assert desk.lines("rejected.jsonl") == desk.lines("failed.jsonl") == []
    checkpoint = desk.json("checkpoint.json")
    assert checkpoint["completed_prompts"] == list(range(25))
    assert checkpoint["batch_stats"]["2"] == {"processed": 5, "skipped": 0, "discarded_no_reasoning": 0}
    statistics = desk.json("statistics.json")
    assert (statistics["total_prompts"], statistics["total_batches"], statistics["kept"]) == (25, 3, 25)
    assert statistics["tool_statistics"]["terminal"] == {
        "count": 25,
        "success": 25,
        "failure": 0,
        "success_rate": 100.0,
        "failure_rate": 0.0,
    }
    assert 1 < engine.most <= 4
    assert not (desk.data / "r" / "workspaces").exists()


async def test_the_first_row_runs_alone(desk: Desk) -> None:
    desk.dataset(prompts(9))
    seen: list[int] = []
    all_at_once = anyio.Event()

    async def script(request: RolloutRequest) -> RolloutResult:
        seen.append(request.index)
        if request.index == 0:
            await anyio.sleep(0.05)
            assert seen == [0]
            return answered(request.prompt)
        if engine.most == 8:
            all_at_once.set()
        await all_at_once.wait()
        return answered(request.prompt)

    engine = FakeEngine(script)
    assert await desk.start(engine, num_workers=8) == 0
    assert engine.most == 8


@pytest.mark.fault("B099")
async def test_equal_prompts_are_rows_of_their_own_also_after_a_stop(desk: Desk) -> None:
    desk.dataset([{"prompt": "A"}, {"prompt": "A"}, {"prompt": "A"}, {"prompt": "B"}])

    async def script(request: RolloutRequest) -> RolloutResult:
        return answered("A") if request.index == 0 else failed("auth", "bad key", permanent=True)

    assert await desk.start(FakeEngine(script), num_workers=1) == 1
    engine = FakeEngine()
    assert await desk.start(engine, resume=True) == 0
    assert "resuming r: 1 done, 3 to run" in desk.notes
    assert [request.index for request in engine.requests] == [1, 2, 3]
    assert [row["prompt_index"] for row in desk.lines("trajectories.jsonl")] == [0, 1, 2, 3]


@pytest.mark.parametrize("taped", [False, True])
async def test_rollouts_of_one_prompt_are_numbered_in_their_order_where_they_are_taped(desk: Desk, taped: bool) -> None:
    desk.dataset([{"prompt": "same"}, {"prompt": "other"}, {"prompt": "same", "id": 7}, {"prompt": "same"}])
    engine = FakeEngine()
    engine.taped = taped
    assert await desk.start(engine, num_workers=8, rollouts_per_prompt=2) == 0
    found = sorted((request.index, request.rollout, request.twin) for request in engine.requests)
    twins = [1, 2, 1, 2, 3, 4, 5, 6] if taped else [0] * 8
    assert found == [(place // 2, place % 2, twin) for place, twin in enumerate(twins)]


@pytest.mark.fault("B100")
async def test_rejected_rows_are_kept_apart_and_never_paid_again(desk: Desk) -> None:
    desk.dataset(prompts(10))

    async def script(request: RolloutRequest) -> RolloutResult:
        return answered(request.prompt, thinking="why" if request.index % 5 < 3 else "")

    assert await desk.start(FakeEngine(script)) == 0
    for _ in range(2):
        engine = FakeEngine()
        assert await desk.start(engine, resume=True) == 0
        assert engine.requests == [] and engine.settings == []
    assert len(desk.batch_rows()) == 10
    rejected = desk.lines("rejected.jsonl")
    assert [row["prompt_index"] for row in rejected] == [3, 4, 8, 9]
    assert {row["reason"] for row in rejected} == {"no_reasoning"}
    statistics = desk.json("statistics.json")
    assert (statistics["kept"], statistics["rejected"], statistics["failed"], statistics["pending"]) == (6, 4, 0, 0)
    assert statistics["discarded_no_reasoning"] == 4


@pytest.mark.fault("B109")
async def test_sixty_rows_of_a_sick_endpoint_are_all_kept_later(desk: Desk) -> None:
    desk.dataset(prompts(60))

    async def sick(request: RolloutRequest) -> RolloutResult:
        return failed("server_error", "HTTP 500")

    assert await desk.start(FakeEngine(sick), num_workers=16) == 1
    assert desk.said[-1].startswith("kept 0 rejected 0 failed 60 pending 0 of 60, ")
    assert "--resume" in desk.said[-1]
    assert desk.json("checkpoint.json")["completed_prompts"] == []
    assert len(desk.lines("failed.jsonl")) == 60 and desk.batch_rows() == []
    engine = FakeEngine()
    assert await desk.start(engine, resume=True) == 0
    assert desk.json("statistics.json")["kept"] == 60 and len(desk.lines("trajectories.jsonl")) == 60
    assert {request.attempt for request in engine.requests} == {2}


@pytest.mark.fault("B109")
async def test_lasting_failures_are_run_again_only_when_asked_for(desk: Desk) -> None:
    desk.dataset([{"prompt": "a"}, {"prompt": "b", "docker_image": "python:3.12"}, {"prompt": "c", "cwd": "/nowhere"}])

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.image:
            return failed("environment_unavailable", "Docker image not available: python:3.12")
        return answered(request.prompt)

    engine = FakeEngine(script)
    assert await desk.start(engine) == 1
    assert [(request.prompt, request.image) for request in engine.requests] == [("a", ""), ("b", "python:3.12")]
    assert [row["reason"] for row in desk.lines("failed.jsonl")] == ["environment_unavailable"] * 2
    assert "--retry=environment_unavailable" in desk.said[-1]
    again = FakeEngine(script)
    assert await desk.start(again, resume=True) == 1
    assert again.settings == []
    assert await desk.start(again, resume=True, retry=("environment_unavailable",)) == 1
    assert len(again.settings) == 1 and desk.json("statistics.json")["failed"] == 2


@pytest.mark.fault("B108")
async def test_a_wrong_key_costs_one_request(desk: Desk) -> None:
    desk.dataset(prompts(1000))

    async def script(request: RolloutRequest) -> RolloutResult:
        return failed("auth", "the endpoint refuses the key (401)", permanent=True)

    engine = FakeEngine(script)
    assert await desk.start(engine, num_workers=100) == 1
    assert len(engine.requests) == 1
    assert "refuses the key (401)" in desk.said[0] and "pending 1000 of 1000" in desk.said[-1]
    assert "hermes batch run --run_name=r --resume" in desk.said[-1]
    assert desk.lines("failed.jsonl") == []


async def test_an_endpoint_that_the_first_row_cannot_reach_stops_the_run(desk: Desk) -> None:
    desk.dataset(prompts(100))

    async def script(request: RolloutRequest) -> RolloutResult:
        return failed("unreachable", "nothing listens at 127.0.0.1:9")

    engine = FakeEngine(script)
    assert await desk.start(engine, num_workers=50) == 1
    assert len(engine.requests) == 1 and "127.0.0.1:9" in desk.said[-2]
    assert "failed 1 pending 99 of 100" in desk.said[-1]
    assert await desk.start(FakeEngine(), resume=True) == 0


async def test_a_key_that_a_command_printed_stands_in_no_file(desk: Desk) -> None:
    desk.dataset(prompts(3))

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index == 2:
            return failed("server_error", "the server said sk-planted-key")
        return answered(request.prompt, output="KEY=sk-planted-key", thinking="sk-planted-key is the key")

    await desk.start(FakeEngine(script))
    files = [path for path in (desk.data / "r").rglob("*") if path.is_file()]
    assert all(b"sk-planted-key" not in path.read_bytes() for path in files)
    assert "KEY=[redacted:key]" in (desk.data / "r" / "batch_0.jsonl").read_text()
    assert "sk-planted-key" not in " ".join(desk.said + desk.notes)


async def test_an_endpoint_fault_later_stops_admission_and_keeps_what_ends(desk: Desk) -> None:
    desk.dataset(prompts(400))

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index == 10:
            return failed("rate_limit", "quota used up", permanent=True, retry_after=3600.0)
        return answered(request.prompt)

    engine = FakeEngine(script)
    assert await desk.start(engine, num_workers=4) == 75
    assert len(engine.requests) < 200, "those that had begun by then"
    statistics = desk.json("statistics.json")
    assert statistics["kept"] == len(engine.requests) - 1 and statistics["failed"] == 0
    assert sum("quota used up" in line for line in desk.said) == 1


async def test_ten_rejections_for_one_reason_stop_a_run_without_a_terminal(desk: Desk) -> None:
    desk.dataset(prompts(40))

    async def script(request: RolloutRequest) -> RolloutResult:
        return answered(request.prompt, thinking="")

    engine = FakeEngine(script)
    assert await desk.start(engine, num_workers=2) == 1
    assert 10 <= len(engine.requests) <= 12
    assert all(word in desk.said[-2] for word in ("no_reasoning", "--reasoning_effort", "1,200 tokens"))
    assert "--yes" in desk.said[-1]
    again = FakeEngine(script)
    assert await desk.start(again, resume=True) == 1
    assert again.requests == [], "it says so before more is paid for"
    assert await desk.start(again, resume=True, yes=True) == 0
    assert desk.json("statistics.json")["rejected"] == 40


@pytest.mark.parametrize("good", [True, False])
async def test_a_person_is_asked_after_ten_rejections(desk: Desk, good: bool) -> None:
    desk.dataset(prompts(30))
    asked: list[str] = []

    async def script(request: RolloutRequest) -> RolloutResult:
        return answered(request.prompt, call="teleport")

    async def ask(why: str) -> bool:
        before = len(engine.requests)
        await anyio.sleep(0.1)
        assert len(engine.requests) - before <= 3, "nothing starts while the question stands"
        asked.append(why)
        return good

    engine = FakeEngine(script)
    assert await desk.start(engine, num_workers=3, ask=ask) == (0 if good else 1)
    assert len(asked) == 1 and "hallucinated_tool" in asked[0]
    assert (len(engine.requests) == 30) is good


@pytest.mark.fault("B116")
async def test_an_interrupt_saves_within_two_seconds_and_resume_goes_on(
    desk: Desk, virtual_clock: VirtualClock
) -> None:
    desk.dataset(prompts(20))

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index == 3:
            assert desk.switch is not None
            desk.switch.stop(StopCause(kind="interrupted", message="interrupted", exit_code=130))
        if request.index > 3:
            await anyio.sleep_forever()
        return answered(request.prompt)

    with anyio.fail_after(2):
        assert await desk.start(FakeEngine(script), num_workers=5, hold=virtual_clock) == 130
    done = desk.json("statistics.json")["kept"]
    assert done >= 4 and desk.json("statistics.json")["pending"] == 20 - done
    assert await desk.start(FakeEngine(), resume=True, hold=virtual_clock) == 0
    assert sorted(row["prompt_index"] for row in desk.batch_rows()) == list(range(20))


@pytest.mark.fault("B116")
async def test_a_run_in_which_all_rows_are_rejected_ends(desk: Desk) -> None:
    desk.dataset(prompts(3))

    async def script(request: RolloutRequest) -> RolloutResult:
        return answered(request.prompt, thinking="")

    assert await desk.start(FakeEngine(script), batch_size=2) == 0
    assert len(desk.lines("rejected.jsonl")) == 3 and desk.lines("trajectories.jsonl") == []


@pytest.mark.fault("B111")
async def test_a_hung_row_is_a_timeout_and_the_others_are_unaffected(desk: Desk, virtual_clock: VirtualClock) -> None:
    desk.dataset(prompts(10))

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index == 4:
            request.report("tool terminal")
            await anyio.sleep_forever()
        if request.index == 5:
            raise RuntimeError("worker lost")
        return answered(request.prompt)

    assert await desk.start(FakeEngine(script), num_workers=4, row_timeout=120.0, hold=virtual_clock) == 1
    rows = {row["prompt_index"]: row for row in desk.lines("failed.jsonl")}
    assert {index: row["reason"] for index, row in rows.items()} == {4: "timeout", 5: "crashed"}
    assert "tool terminal" in rows[4]["detail"] and "worker lost" in rows[5]["detail"]
    assert desk.json("statistics.json")["kept"] == 8
    assert any("nothing has advanced" in note and "row 4 (tool terminal" in note for note in desk.notes)


@pytest.mark.fault("B108")
async def test_a_share_of_failures_can_stop_the_run(desk: Desk) -> None:
    desk.dataset(prompts(200))

    async def script(request: RolloutRequest) -> RolloutResult:
        return failed("server_error") if request.index % 2 else answered(request.prompt)

    engine = FakeEngine(script)
    assert await desk.start(engine, max_failure_share=0.3, num_workers=2) == 1
    assert len(engine.requests) < 60 and "--max_failure_share=0.3" in desk.said[-2]


async def test_each_row_works_on_its_own_copy(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "project"
    source.mkdir()
    (source / "a.txt").write_text("original")
    (source / "link").symlink_to("a.txt")
    os.mkfifo(source / "pipe")
    desk.dataset([{"prompt": "x", "cwd": str(source)}, {"prompt": "y", "cwd": str(source)}, {"prompt": "z"}])

    def work(workspace: Path) -> str:
        path = workspace / "a.txt"
        found = sorted(item.name for item in workspace.iterdir())
        if path.exists():
            assert path.read_text() == "original" and (workspace / "link").is_symlink()
            path.write_text("changed")
        return ",".join(found)

    async def script(request: RolloutRequest) -> RolloutResult:
        found = await anyio.to_thread.run_sync(work, Path(request.workspace))
        return answered(request.prompt, text=found or "nothing")

    engine = FakeEngine(script)
    assert await desk.start(engine, keep_workspaces=True) == 0
    answers = [row["conversations"][-1]["value"].splitlines()[-1] for row in desk.lines("trajectories.jsonl")]
    assert answers == ["a.txt,link", "a.txt,link", "nothing"]
    assert (source / "a.txt").read_text() == "original"
    assert len({request.workspace for request in engine.requests}) == 3
    assert (desk.data / "r" / "workspaces" / "0-0" / "a.txt").read_text() == "changed"


async def test_in_place_rows_run_one_at_a_time_in_the_folder_itself(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "project"
    source.mkdir()
    desk.dataset([{"prompt": str(number), "cwd": str(source)} for number in range(4)])
    engine = FakeEngine()
    assert await desk.start(engine, cwd_mode="inplace", num_workers=4) == 0
    assert engine.most == 1 and {request.workspace for request in engine.requests} == {str(source)}
    assert source.is_dir() and any("one at a time" in note for note in desk.notes)


async def test_a_copy_of_a_folder_that_holds_the_run_leaves_runs_out(desk: Desk, tmp_path: Path) -> None:
    desk.dataset([{"prompt": "x", "cwd": str(tmp_path)}])

    async def script(request: RolloutRequest) -> RolloutResult:
        inside = Path(request.workspace)
        good = await anyio.to_thread.run_sync(
            lambda: (inside / "prompts.jsonl").exists() and not (inside / "data" / "r").exists()
        )
        return answered("x") if good else failed("wrong_copy")

    assert await desk.start(FakeEngine(script)) == 0


async def test_a_model_that_does_not_reason_is_asked_to_and_that_text_is_not_saved(desk: Desk) -> None:
    desk.dataset(prompts(1))
    engine = FakeEngine(thinking=False)
    await desk.start(engine, ephemeral_system_prompt="Be brief, SENTINEL.")
    assert "<REASONING_SCRATCHPAD>" in engine.requests[0].system and "SENTINEL" in engine.requests[0].system
    for name in ("trajectories.jsonl", "batch_0.jsonl", "records.jsonl"):
        text = (desk.data / "r" / name).read_text()
        assert "SENTINEL" not in text and "SCRATCHPAD" not in text
    thinker = FakeEngine()
    await desk.start(thinker, run_name="other")
    assert thinker.requests[0].system == ""


async def test_toolsets_of_the_row_or_the_distribution_and_what_is_missing_is_said(desk: Desk) -> None:
    desk.dataset([{"prompt": "a", "toolsets": ["todo", "web"]}, {"prompt": "b"}, {"prompt": "c", "toolsets": ["moa"]}])
    engine = FakeEngine()
    assert await desk.start(engine, num_workers=1) == 1
    assert [request.toolsets for request in engine.requests] == [("todo",), ("terminal", "file")]
    assert any("left out" in note and "web" in note and "browser" in note for note in desk.notes)
    row = desk.lines("trajectories.jsonl")[0]
    assert list(row["tool_stats"]) == ["read_file", "terminal", "todo", "write_file"]
    assert desk.lines("failed.jsonl")[0]["detail"] == "no such toolset here: moa"


@pytest.mark.fault("B121")
async def test_a_second_runner_of_the_same_name_refuses(desk: Desk) -> None:
    desk.dataset(prompts(2))
    other = Desk(desk.path)

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index == 0:
            with pytest.raises(TryLater, match=f"process {os.getpid()}"):
                await other.start(FakeEngine(), resume=True)
        return answered(request.prompt)

    assert await desk.start(FakeEngine(script)) == 0


@pytest.mark.fault("B121")
async def test_a_process_that_stood_still_times_nothing_out() -> None:
    clock, scope = RowClock(60.0), anyio.CancelScope()
    clock.enter("a", scope)
    clock.tick(1.0)
    clock.tick(3600.0)
    assert not scope.cancel_called
    for _ in range(59):
        clock.tick(1.0)
    assert scope.cancel_called


async def test_no_key_stands_in_any_file_of_the_run(desk: Desk) -> None:
    desk.dataset(prompts(2))
    await desk.start(FakeEngine(), api_key="sk-very-secret", base_url="https://user:passw0rd@host/v1?key=passw0rd")
    for path in (desk.data / "r").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"sk-very-secret" not in data and b"passw0rd" not in data, path
    assert desk.json("run.json")["settings"]["base_url"] == "https://host/v1"


async def test_the_full_disk_is_one_message_and_nothing_is_lost(desk: Desk) -> None:
    desk.dataset(prompts(30))
    path = desk.data / "r" / "records.jsonl"

    def break_records() -> None:
        path.rename(path.with_name("aside"))
        path.mkdir()

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index == 12:
            while await anyio.to_thread.run_sync(lines_of, path) < 12:
                await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(break_records)
        return answered(request.prompt)

    assert await desk.start(FakeEngine(script), num_workers=1) == 1
    assert "cannot write" in desk.said[-2] and "records.jsonl" in desk.said[-2]
    path.rmdir()
    path.with_name("aside").rename(path)
    engine = FakeEngine()
    assert await desk.start(engine, resume=True) == 0
    assert engine.requests[0].index == 12
    assert sorted(row["prompt_index"] for row in desk.batch_rows()) == list(range(30))


async def test_usage_errors_write_nothing(desk: Desk) -> None:
    desk.dataset(prompts(1))
    engine = FakeEngine()
    for wrong in (
        {"batch_size": 0},
        {"num_workers": -1},
        {"max_turns": 0},
        {"run_name": "a/b"},
        {"run_name": ".."},
        {"run_name": ""},
        {"run_name": "-x"},
        {"reasoning_effort": "huge"},
        {"cwd_mode": "x"},
        {"distribution": "nope"},
        {"resume": True},
        {"prefill_messages_file": "/nowhere.json"},
    ):
        with pytest.raises(UsageError):
            await desk.start(engine, **wrong)
    assert engine.requests == []
    assert not any(path.name != "run.lock" for path in desk.data.rglob("*") if path.is_file())
    assert await desk.start(engine, run_name="42") == 0


@pytest.mark.timeout(600)
async def test_a_thousand_workers(desk: Desk) -> None:
    desk.dataset(prompts(1500))
    all_at_once = anyio.Event()

    async def script(request: RolloutRequest) -> RolloutResult:
        if engine.most == 1000:
            all_at_once.set()
        if 0 < request.index < 1001:
            await all_at_once.wait()
        return answered(request.prompt)

    engine = FakeEngine(script)
    assert await desk.start(engine, num_workers=1000) == 0
    assert engine.most == 1000
    assert Counter(row["prompt_index"] for row in desk.batch_rows()) == Counter(range(1500))


def test_a_switch_keeps_its_first_cause() -> None:
    async def main() -> None:
        switch = StopSwitch()
        switch.stop(StopCause(kind="interrupted", message="a"))
        switch.stop(StopCause(kind="storage", message="b"))
        assert (await switch.wait()).message == "a"

    anyio.run(main)
