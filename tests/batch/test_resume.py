from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.batch.folder import RunFolder
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.batch.settings import BatchSettings
from hermes.batch.summary import StopCause
from hermes.core.errors import OperatorError, TryLater, UsageError
from tests.batch.fakes import Desk, FakeEngine, answered, failed, prompts

pytestmark = pytest.mark.anyio


async def half(desk: Desk, count: int = 10, stop_at: int = 5, **settings: object) -> None:
    """Run a dataset of `count` rows and lose the endpoint at row `stop_at`."""
    desk.dataset(prompts(count))

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index >= stop_at:
            return failed("auth", "key revoked", permanent=True)
        return answered(request.prompt)

    assert await desk.start(FakeEngine(script), num_workers=1, **settings) == 1


@pytest.mark.fault("B125")
async def test_the_same_name_without_resume_touches_nothing_and_offers_three_ways(desk: Desk) -> None:
    await half(desk, max_turns=2)
    before = {path: path.read_bytes() for path in (desk.data / "r").rglob("*") if path.is_file()}
    with pytest.raises(UsageError) as error:
        await desk.start(FakeEngine(), max_turns=10)
    text = str(error.value)
    assert "kept 5" in text and "pending 5 of 10" in text and "--max_turns=10 (the run has 2)" in text
    assert "--resume" in text and "--run_name" in text and "--overwrite" in text
    assert {path: path.read_bytes() for path in (desk.data / "r").rglob("*") if path.is_file()} == before


async def test_overwrite_moves_the_old_folder_aside(desk: Desk) -> None:
    await half(desk)
    engine = FakeEngine()
    assert await desk.start(engine, overwrite=True) == 0
    assert len(engine.requests) == 10
    (old,) = [path for path in desk.data.iterdir() if path.name != "r"]
    assert len((old / "records.jsonl").read_text().splitlines()) == 5
    assert any(str(old) in note for note in desk.notes)


@pytest.mark.may_block
@pytest.mark.parametrize("fails", [False, True])
async def test_overwrite_gives_the_engine_nothing_of_the_old_run_and_is_undone_if_it_cannot_open(
    desk: Desk, fails: bool
) -> None:
    """What the old run left half-done is no part of the new one."""
    await half(desk)
    (desk.data / "r" / "run.db").write_bytes(b"half-done rollouts")
    before = {path: path.read_bytes() for path in (desk.data / "r").rglob("*") if path.name != "run.lock"}
    seen: list[str] = []

    class Opening(FakeEngine):
        @asynccontextmanager
        async def open(self, settings: BatchSettings) -> AsyncIterator[FakeEngine]:
            seen.extend(path.name for path in (desk.data / "r").iterdir())
            (desk.data / "r" / "run.db").write_bytes(b"new")
            if fails:
                raise OperatorError("no key")
            yield self

    if fails:
        with pytest.raises(OperatorError, match="no key"):
            await desk.start(Opening(), overwrite=True)
        assert [path.name for path in desk.data.iterdir()] == ["r"]
        after = {path: path.read_bytes() for path in (desk.data / "r").rglob("*") if path.name != "run.lock"}
        assert after == before
        assert await desk.start(FakeEngine(), resume=True) == 0
    else:
        assert await desk.start(Opening(), overwrite=True) == 0
    assert seen == ["run.lock"]


@pytest.mark.fault("B117")
async def test_a_given_setting_that_differs_is_refused_with_both_values(desk: Desk) -> None:
    await half(desk, model="anthropic/claude-sonnet-4-6", max_turns=7)
    with pytest.raises(UsageError) as error:
        await desk.start(FakeEngine(), resume=True, model="other", max_turns=9)
    text = str(error.value)
    assert "--model=other was given, the run has anthropic/claude-sonnet-4-6" in text
    assert "--max_turns=9 was given, the run has 7" in text
    engine = FakeEngine()
    code = await desk.start(
        engine, resume=True, model="claude-sonnet-4.6", num_workers=3, base_url="http://127.0.0.1:1/v1", api_key="k"
    )
    assert code == 0
    settings = engine.settings[0]
    assert (settings.max_turns, settings.num_workers, settings.model) == (7, 3, "anthropic/claude-sonnet-4-6")
    assert settings.api_key == "k" and settings.base_url == "http://127.0.0.1:1/v1"
    assert {request.max_turns for request in engine.requests} == {7}


@pytest.mark.fault("B117")
async def test_a_changed_dataset_is_refused_with_counts_and_accepted_on_demand(desk: Desk) -> None:
    await half(desk)
    rows = [{"prompt": "on top"}, *prompts(10)[:7], {"prompt": "new"}, *prompts(10)[8:]]
    desk.dataset(rows)
    with pytest.raises(UsageError, match="2 added, 1 removed, 0 moved"):
        await desk.start(FakeEngine(), resume=True)
    engine = FakeEngine()
    assert await desk.start(engine, resume=True, accept_changes=True) == 0
    assert {request.prompt: request.index for request in engine.requests} == {
        "on top": 10,
        "new": 11,
        "prompt 5": 5,
        "prompt 6": 6,
        "prompt 8": 8,
        "prompt 9": 9,
    }
    assert Counter(row["prompt_index"] for row in desk.batch_rows()) == Counter([0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11])
    sessions = desk.json("run.json")["sessions"]
    assert sessions[0]["dataset"] != sessions[1]["dataset"] and sessions[1]["changes"] == "2 added, 1 removed, 0 moved"
    assert await desk.start(FakeEngine(), resume=True) == 0, "the accepted dataset is the run's now"


@pytest.mark.fault("B107")
async def test_every_way_to_end_leaves_the_same_files(desk: Desk, tmp_path: Path) -> None:
    async def sick(request: RolloutRequest) -> RolloutResult:
        return failed("timeout")

    desk.dataset(prompts(4))
    assert await desk.start(FakeEngine(), run_name="normal") == 0
    assert await desk.start(FakeEngine(sick), run_name="sick") == 1
    assert await desk.start(FakeEngine(sick), run_name="resumed") == 1
    assert await desk.start(FakeEngine(), run_name="resumed", resume=True) == 0
    assert await desk.start(FakeEngine(), run_name="finished") == 0
    assert await desk.start(FakeEngine(), run_name="finished", resume=True) == 0
    assert "nothing is left to run" in desk.said
    wanted = {"trajectories.jsonl", "rejected.jsonl", "failed.jsonl", "statistics.json", "checkpoint.json", "run.json"}
    for name in ("normal", "sick", "resumed", "finished"):
        found = {path.name for path in (desk.data / name).iterdir()}
        assert wanted <= found and not any(item.endswith(".tmp") for item in found)
    statistics = [desk.json("statistics.json", name) for name in ("normal", "resumed", "finished")]
    for one in statistics:
        for key in ("completed_at", "duration_seconds", "run_name", "sessions"):
            del one[key]
    assert statistics[0] == statistics[1] == statistics[2]


@pytest.mark.fault("B106")
async def test_statistics_cover_all_sessions(desk: Desk) -> None:
    await half(desk)
    assert await desk.start(FakeEngine(), resume=True) == 0
    statistics = desk.json("statistics.json")
    assert statistics["kept"] == statistics["total_prompts"] == 10
    assert [session["exit_code"] for session in statistics["sessions"]] == [1, 0]
    assert desk.json("checkpoint.json")["batch_stats"]["0"]["skipped"] == 5


@pytest.mark.fault("B102")
async def test_a_broken_checkpoint_is_made_anew_with_a_warning(desk: Desk) -> None:
    await half(desk)
    path = desk.data / "r" / "checkpoint.json"
    path.write_bytes(path.read_bytes()[:20])
    engine = FakeEngine()
    assert await desk.start(engine, resume=True) == 0
    assert len(engine.requests) == 5 and any("checkpoint.json is damaged" in note for note in desk.notes)
    assert desk.json("checkpoint.json")["completed_prompts"] == list(range(10))


@pytest.mark.fault("B113")
async def test_lost_records_and_rows_are_told_apart_and_put_right(desk: Desk) -> None:
    desk.dataset(prompts(40))
    assert await desk.start(FakeEngine()) == 0
    folder = desk.data / "r"
    records = (folder / "records.jsonl").read_bytes().splitlines(keepends=True)
    chance = random.Random(7)
    gone = set(chance.sample(range(40), 5))
    (folder / "records.jsonl").write_bytes(b"".join(line for i, line in enumerate(records) if i not in gone) + b'{"he')
    batch = (folder / "batch_1.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "batch_1.jsonl").write_bytes(b"".join(batch[:-3]) + batch[0] + b'{"torn')
    lost = {json.loads(records[i])["head"]["index"] for i in gone}
    engine = FakeEngine()
    assert await desk.start(engine, resume=True) == 0
    assert {request.index for request in engine.requests} == lost
    assert Counter(row["prompt_index"] for row in desk.batch_rows()) == Counter(range(40))
    assert any("torn record" in note and "taken out" in note for note in desk.notes)


@pytest.mark.fault("B114")
@pytest.mark.parametrize("seed", range(12))
async def test_no_row_is_lost_or_doubled(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    count, workers = chance.randint(1, 50), chance.randint(1, 8)
    desk.dataset(prompts(count))
    fates = ["keep", "keep", "reject", "invent", "fail", "crash"]

    async def script(request: RolloutRequest) -> RolloutResult:
        for _ in range(chance.randint(0, 3)):
            await anyio.sleep(0)
        fate = chance.choice(fates)
        if fate == "fail":
            return failed("server_error")
        if fate == "crash":
            raise ValueError("bug")
        return answered(
            request.prompt, thinking="" if fate == "reject" else "why", call="nope" if fate == "invent" else "terminal"
        )

    await desk.start(FakeEngine(script), batch_size=chance.randint(1, 17), num_workers=workers, yes=True)
    while True:
        files = [desk.lines(name) for name in ("trajectories.jsonl", "rejected.jsonl", "failed.jsonl")]
        statistics = desk.json("statistics.json")
        assert [statistics["kept"], statistics["rejected"], statistics["failed"]] == [len(rows) for rows in files]
        assert statistics["pending"] == 0
        assert sorted(row["prompt_index"] for rows in files for row in rows) == list(range(count))
        assert sorted(row["prompt_index"] for row in desk.batch_rows()) == sorted(
            row["prompt_index"] for rows in files[:2] for row in rows
        )
        if not statistics["failed"]:
            break
        fates = ["keep", "reject"]
        assert await desk.start(FakeEngine(script), resume=True, yes=True) == 0


SCRIPT = """
import sys, anyio
from pathlib import Path
from tests.batch.fakes import Desk, FakeEngine, answered
left = int(sys.argv[2])
async def script(request):
    global left
    await anyio.sleep(0.01)
    left -= 1
    if left < 0:
        await anyio.sleep_forever()
    return answered(request.prompt)
async def main():
    desk = Desk(Path(sys.argv[1]))
    engine = FakeEngine(script)
    resume = (desk.data / "r" / "run.json").exists()
    return await desk.start(engine, resume=resume, num_workers=4, batch_size=7)
sys.exit(anyio.run(main))
"""


@pytest.mark.fault("B102")
@pytest.mark.fault("B119")
@pytest.mark.may_block
@pytest.mark.timeout(600)
async def test_killed_again_and_again_each_row_stands_once(desk: Desk, tmp_path: Path) -> None:
    desk.dataset(prompts(120))
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    chance = random.Random(3)
    records = desk.data / "r" / "records.jsonl"
    for target in (0, 20, 45, 80):
        target += chance.randint(0, 8)
        # So many rows and no more, lest it be done before a busy machine comes to kill it.
        left = target + 8 - (records.read_bytes().count(b"\n") if records.exists() else 0)
        process = subprocess.Popen([*command, str(left)], env=environment)
        while process.poll() is None and (not records.exists() or records.read_bytes().count(b"\n") < target):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        if records.exists():
            done = set(desk.json("checkpoint.json")["completed_prompts"]) if _has(desk, "checkpoint.json") else set()
            assert done <= {
                json.loads(line)["head"]["index"] for line in records.read_bytes().splitlines(True)[:-1]
            } | {row["prompt_index"] for row in _whole_rows(desk)}
    assert subprocess.run([*command, "120"], env=environment).returncode == 0
    assert Counter(row["prompt_index"] for row in desk.batch_rows()) == Counter(range(120))
    assert [row["prompt_index"] for row in desk.lines("trajectories.jsonl")] == list(range(120))
    assert Counter(row["head"]["index"] for row in desk.lines("records.jsonl")) == Counter(range(120))
    assert desk.json("statistics.json")["kept"] == 120
    assert len(desk.json("run.json")["sessions"]) >= 4


def _has(desk: Desk, name: str) -> bool:
    return (desk.data / "r" / name).exists()


def _whole_rows(desk: Desk) -> list[dict[str, int]]:
    rows = []
    for path in (desk.data / "r").glob("batch_*.jsonl"):
        rows += [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return rows


async def test_an_interrupt_before_the_first_row_leaves_all_pending(desk: Desk) -> None:
    desk.dataset(prompts(3))

    async def script(request: RolloutRequest) -> RolloutResult:
        assert desk.switch is not None
        desk.switch.stop(StopCause(kind="interrupted", message="interrupted", exit_code=130))
        await anyio.sleep_forever()
        raise AssertionError

    assert await desk.start(FakeEngine(script)) == 130
    assert desk.said[-1].startswith("kept 0 rejected 0 failed 0 pending 3 of 3")
    assert await desk.start(FakeEngine(), resume=True) == 0


def test_a_lock_that_a_refused_start_has_just_removed_is_held_by_nobody(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "r")
    with open(tmp_path / "removed", "wb") as file:
        os.unlink(file.name)
        folder.lock_path = Path(f"/proc/self/fd/{file.fileno()}")  # what had been opened before it was removed
        with pytest.raises(TryLater, match="Start it again"), folder.locked():
            pytest.fail("two could hold it")
