"""Groups of rollouts: so many of each row, sampled, resumed one by one, with the same tools."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import anyio
import pytest

from hermes.batch.again import merge_again
from hermes.batch.export.job import ExportOptions, export_run
from hermes.batch.export.source import open_run
from hermes.batch.filter_settings import FilterSettings
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.batch.settings import check_routing, new_settings
from hermes.batch.show import show_rows
from hermes.core.errors import UsageError
from hermes.core.result import CheckScore
from tests.batch.fakes import Desk, FakeEngine, answered, failed, prompts

pytestmark = pytest.mark.anyio


async def test_each_row_runs_so_often_with_seeds_that_differ_and_the_same_tools(desk: Desk) -> None:
    desk.dataset(prompts(5))
    engine = FakeEngine()
    sampling: dict[str, Any] = {"temperature": 0.8, "top_p": 0.9, "seed": 40}
    assert await desk.start(engine, rollouts_per_prompt=3, distribution="development", **sampling) == 0
    asked = {(request.index, request.rollout): request for request in engine.requests}
    assert sorted(asked) == [(row, number) for row in range(5) for number in range(3)]
    assert {(number, request.seed) for (_, number), request in asked.items()} == {(0, 40), (1, 41), (2, 42)}
    assert {(request.temperature, request.top_p) for request in engine.requests} == {(0.8, 0.9)}
    for row in range(5):
        assert len({asked[row, number].toolsets for number in range(3)}) == 1, "a group has one draw of toolsets"
        assert len({asked[row, number].workspace for number in range(3)}) == 3
    rows = desk.lines("trajectories.jsonl")
    assert [(row["prompt_index"], row["rollout_index"]) for row in rows] == sorted(asked)
    assert len({row["group_id"] for row in rows}) == 5
    statistics = desk.json("statistics.json")
    assert (statistics["total_prompts"], statistics["total_rollouts"], statistics["kept"]) == (5, 15, 15)
    manifest = desk.json("manifest.json")
    assert (manifest["sampling"]["temperature"], manifest["sampling"]["seed"]) == (0.8, 40)
    assert (manifest["prices"]["usd_per_million_input"], manifest["prices"]["usd_per_million_output"]) == (0.5, 2.0)
    assert manifest["rollouts_per_prompt"] == 3 and manifest["distribution_table"]["terminal"] == 80
    assert desk.said[-1].startswith("kept 15 rejected 0 failed 0 pending 0 of 15")


async def test_without_wishes_nothing_is_said_of_sampling(desk: Desk) -> None:
    desk.dataset(prompts(1))
    engine = FakeEngine()
    assert await desk.start(engine) == 0
    (request,) = engine.requests
    assert (request.temperature, request.top_p, request.seed, request.extra) == (None, None, None, {})


@pytest.mark.fault("B118")
async def test_a_group_is_resumed_rollout_by_rollout_and_more_rollouts_only_add(desk: Desk) -> None:
    desk.dataset(prompts(2))

    async def script(request: RolloutRequest) -> RolloutResult:
        if (request.index, request.rollout) == (0, 1):
            return failed("auth", "key revoked", permanent=True)
        return answered(request.prompt)

    assert await desk.start(FakeEngine(script), rollouts_per_prompt=4, num_workers=1) == 1
    before = (desk.data / "r" / "records.jsonl").read_bytes()
    assert "pending 7 of 8" in desk.said[-1]
    assert desk.json("checkpoint.json")["completed_prompts"] == []
    engine = FakeEngine()
    assert await desk.start(engine, resume=True) == 0
    ran = sorted((request.index, request.rollout) for request in engine.requests)
    assert ran == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)], "three more of the first row"
    assert desk.json("checkpoint.json")["completed_prompts"] == [0, 1]
    more = FakeEngine()
    assert await desk.start(more, resume=True, rollouts_per_prompt=6) == 0
    assert sorted((request.index, request.rollout) for request in more.requests) == [(0, 4), (0, 5), (1, 4), (1, 5)]
    assert (desk.data / "r" / "records.jsonl").read_bytes().startswith(before), "nothing that ended is written anew"
    rows = desk.lines("trajectories.jsonl")
    assert [(row["prompt_index"], row["rollout_index"]) for row in rows] == [(i, n) for i in (0, 1) for n in range(6)]
    with pytest.raises(UsageError, match="--rollouts_per_prompt=2 was given, the run has 6"):
        await desk.start(FakeEngine(), resume=True, rollouts_per_prompt=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rollouts_per_prompt": 2, "temperature": 0.0}, "--rollouts_per_prompt=2 at --temperature=0"),
        ({"rollouts_per_prompt": 0}, "--rollouts_per_prompt=0"),
        ({"temperature": 2.5}, "--temperature=2.5"),
        ({"top_p": 0.0}, "--top_p=0"),
        ({"provider_sort": "mood"}, "--provider_sort=mood"),
        ({"cwd_mode": "move"}, "--cwd_mode=move"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(desk: Desk, given: dict[str, Any], said: str) -> None:
    desk.dataset(prompts(1))
    with pytest.raises(UsageError) as error:
        await desk.start(FakeEngine(), **given)
    assert said in str(error.value)
    assert not (desk.data / "r" / "run.json").exists()


async def test_a_router_is_told_which_providers_to_ask_and_another_endpoint_refuses_by_name(desk: Desk) -> None:
    desk.dataset(prompts(1))
    engine = FakeEngine()
    wishes = {"providers_allowed": ("a", "b"), "providers_ignored": ("c",), "providers_order": ("b", "a")}
    assert await desk.start(engine, provider_sort="price", **wishes) == 0
    assert engine.requests[0].extra == {
        "provider": {"only": ["a", "b"], "ignore": ["c"], "order": ["b", "a"], "sort": "price"}
    }
    settings = new_settings({"dataset_file": "d", "run_name": "r", "provider_sort": "price", **wishes})
    check_routing(settings, "openrouter.ai")
    with pytest.raises(UsageError) as error:
        check_routing(settings, "api.openai.com:443")
    for name in (
        "--providers_allowed",
        "--providers_ignored",
        "--providers_order",
        "--provider_sort",
        "api.openai.com",
    ):
        assert name in str(error.value)


async def test_a_log_line_shows_as_much_of_a_prompt_as_was_asked_for(desk: Desk) -> None:
    desk.dataset([{"prompt": "first line\n second line"}])
    assert await desk.start(FakeEngine(), verbose=True, log_prefix_chars=12) == 0
    assert any(note.endswith("· first line s…") for note in desk.notes), desk.notes
    assert await desk.start(FakeEngine(), run_name="quiet", verbose=True, log_prefix_chars=0) == 0
    assert desk.notes[-1].endswith("tokens")


async def test_show_finds_all_rollouts_of_a_row_wherever_they_stand(desk: Desk) -> None:
    desk.dataset(prompts(2))

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.rollout == 1:
            return answered(request.prompt, "no word of why", thinking="")
        if request.rollout == 2:
            return failed("server_error", "sick")
        return answered(request.prompt, f"good {request.index}", scores=(CheckScore(check="exact", score=0.25),))

    assert await desk.start(FakeEngine(script), rollouts_per_prompt=3) == 1
    text = "\n".join(show_rows(desk.data, "r", "", 3, 1))
    assert "row 1 · fake-model · completed · score 0.25" in text and "good 1" in text and "good 0" not in text
    assert "row 1.1 " in text and "no_reasoning" in text and "row 1.2 " in text and "server_error" in text
    assert "good 1" not in "\n".join(show_rows(desk.data, "r", "rejected", 3, 1))
    with pytest.raises(UsageError, match="no row 9"):
        list(show_rows(desk.data, "r", "", 3, 9))


@pytest.mark.fault("B114")
@pytest.mark.parametrize("seed", range(6))
async def test_no_rollout_of_a_group_is_lost_or_doubled(desk: Desk, seed: int) -> None:
    chance = random.Random(seed)
    count, size = chance.randint(1, 15), chance.randint(2, 5)
    desk.dataset([{"prompt": "the same"} if number % 3 else {"prompt": f"p{number}"} for number in range(count)])
    fates = ["keep", "reject", "fail"]

    async def script(request: RolloutRequest) -> RolloutResult:
        for _ in range(chance.randint(0, 3)):
            await anyio.sleep(0)
        fate = chance.choice(fates)
        if fate == "fail":
            return failed("server_error")
        return answered(request.prompt, thinking="" if fate == "reject" else "why")

    shape = {"batch_size": chance.randint(1, 7), "num_workers": chance.randint(1, 8), "rollouts_per_prompt": size}
    await desk.start(FakeEngine(script), yes=True, **shape)
    while True:
        files = [desk.lines(name) for name in ("trajectories.jsonl", "rejected.jsonl", "failed.jsonl")]
        found = sorted((row["prompt_index"], row["rollout_index"]) for rows in files for row in rows)
        assert found == [(index, number) for index in range(count) for number in range(size)]
        statistics = desk.json("statistics.json")
        assert [statistics["kept"], statistics["rejected"], statistics["failed"]] == [len(rows) for rows in files]
        if not statistics["failed"]:
            break
        fates = ["keep", "reject"]
        assert await desk.start(FakeEngine(script), resume=True, yes=True) == 0


@pytest.mark.fault("B123")
@pytest.mark.may_block
async def test_work_on_ended_groups_never_doubles_them(desk: Desk) -> None:
    desk.dataset(prompts(12))

    async def script(request: RolloutRequest) -> RolloutResult:
        score = (CheckScore(check="exact", score=float(request.rollout)),)
        return answered(request.prompt, thinking="why" if request.index else "", scores=score)

    assert await desk.start(FakeEngine(script), rollouts_per_prompt=2, yes=True) == 0
    for filters, kept in (((), 24), (("no_reasoning",), 22), ((), 24), (("no_reasoning",), 22)):
        tally, pending = merge_again(desk.data, "r", FilterSettings(names=filters))
        assert (tally.kept, tally.kept + tally.rejected.total(), pending) == (kept, 24, 0)
        groups = Counter(row["group_id"] for row in desk.lines("trajectories.jsonl"))
        assert len(groups) == kept // 2 and set(groups.values()) == {2}
    report = export_run(open_run(desk.data, "r"), "dpo", desk.path / "dpo.jsonl", ExportOptions())
    rows = desk.lines("../../dpo.jsonl")
    assert report.rows == len(rows) == len({row["group_id"] for row in rows})


@pytest.mark.may_block
async def test_a_run_that_goes_on_keeps_the_filters_of_its_last_merge(desk: Desk) -> None:
    desk.dataset(prompts(3))

    async def script(request: RolloutRequest) -> RolloutResult:
        return answered(request.prompt, thinking="")

    await desk.start(FakeEngine(script), yes=True)
    tally, _ = merge_again(desk.data, "r", FilterSettings(names=()))
    assert tally.kept == 3
    assert await desk.start(FakeEngine(script), resume=True, rollouts_per_prompt=2, yes=True) == 0
    assert len(desk.lines("trajectories.jsonl")) == 6 and desk.json("manifest.json")["filters"]["names"] == []
