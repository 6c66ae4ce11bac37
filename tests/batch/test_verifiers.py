"""Verifiers: what a row may say, and what they make of a rollout while its workspace still stands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from hermes.batch.attempt import write_up
from hermes.batch.dataset import DatasetRow
from hermes.batch.distribution import Draw
from hermes.batch.plan import Item
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.batch.verifiers import mean_score, parse_verifiers
from hermes.core.errors import UsageError
from hermes.core.result import CheckScore
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import ScriptedModel, call, reply
from tests.batch.fakes import Desk, FakeEngine, answered
from tests.batch.test_execute import opened
from tests.batch.test_journal import opened as journalled
from tests.environments.docker_stand_in import StandIn

pytestmark = pytest.mark.anyio

MODULE = "tests.batch.verifier_functions"


@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        ("exact", '"verifier": Expected `object`, got `str`'),
        ([], "an empty list"),
        ({"type": "guess"}, "Invalid value 'guess'"),
        ({"value": "x"}, "missing required field `type`"),
        ({"value": "x"}, "types: exact, contains, regex, json, file, command, python"),
        ({"type": "exact"}, "missing required field `value`"),
        ({"type": "exact", "value": "x", "wieght": 2}, "unknown field `wieght`"),
        ([{"type": "exact", "value": "x"}, {"type": "regex", "pattern": "("}], "\"verifier\"[1]: the pattern '('"),
        ({"type": "exact", "value": "x", "weight": 0}, "weight 0 is not above 0"),
        ({"type": "command", "run": "x", "timeout": -1}, "timeout -1"),
        ({"type": "command", "run": " "}, "the command is empty"),
        ({"type": "file", "path": "../secret"}, "leads out of the workspace"),
        ({"type": "python", "function": "no function"}, "is not module:function"),
        ({"type": "json", "schema": {"type": "obj"}}, "the schema is none"),
        ({"type": "json", "schema": {"$ref": "http://example.com/s"}}, "refers to 'http://example.com/s'"),
        ({"type": "python", "function": "os:system"}, "--verifier_modules=os"),
    ],
)
async def test_a_verifier_that_is_none_is_refused_with_its_line(desk: Desk, verifier: Any, said: str) -> None:
    path = desk.dataset([{"prompt": "fine"}, {"prompt": "p", "verifier": verifier}])
    with pytest.raises(UsageError) as error:
        await desk.start(FakeEngine())
    assert f"{path}:2: " in str(error.value) and said in str(error.value)


async def test_a_module_that_is_not_there_is_found_out_before_anything_runs(desk: Desk) -> None:
    desk.dataset([{"prompt": "p", "verifier": {"type": "python", "function": "nowhere_at_all:f"}}])
    with pytest.raises(UsageError, match="nowhere_at_all, which is not found"):
        await desk.start(FakeEngine(), verifier_modules=("nowhere_at_all",))


def asked(tmp_path: Path, verifiers: Any, **row: Any) -> RolloutRequest:
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    return RolloutRequest(
        key="k:0:0",
        index=0,
        prompt="go",
        workspace=str(workspace),
        toolsets=("terminal",),
        verifiers=parse_verifiers(verifiers),
        row={"prompt": "go", "expected": "42", **row},
    )


def model() -> ScriptedModel:
    """Writes a file, leaves a shell in which nothing is what it seems, and answers."""
    trick = "grep() { true; }; export -f grep; export PATH=/nowhere; mkdir below; cd below; alias test=true"
    steps = [
        reply(calls=[call("terminal", command="echo 42 > made.txt")]),
        reply(calls=[call("terminal", command=trick)]),
        reply("<REASONING_SCRATCHPAD>hm</REASONING_SCRATCHPAD>the answer is 42"),
    ]
    return ScriptedModel("m", scripts={"go": steps})


async def run(tmp_path: Path, clock: VirtualClock | None, verifiers: Any, **row: Any) -> RolloutResult:
    async with opened(model(), tmp_path, clock) as (_, engine):
        return await engine.run(asked(tmp_path, verifiers, **row))


async def test_each_kind_judges_what_was_made_and_said(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    checks: list[tuple[dict[str, Any], float]] = [
        ({"type": "exact", "value": " the answer is 42\n"}, 1),
        ({"type": "exact", "value": "THE ANSWER IS 42"}, 0),
        ({"type": "exact", "value": "THE ANSWER IS 42", "ignore_case": True}, 1),
        ({"type": "contains", "value": "42"}, 1),
        ({"type": "contains", "value": ["42", "43"]}, 0),
        ({"type": "regex", "pattern": r"\b\d\d$"}, 1),
        ({"type": "regex", "pattern": "^42"}, 0),
        ({"type": "json"}, 0),
        ({"type": "file", "path": "made.txt"}, 1),
        ({"type": "file", "path": "made.txt", "value": "42"}, 1),
        ({"type": "file", "path": "made.txt", "contains": "4", "pattern": "^5"}, 0),
        ({"type": "file", "path": "other.txt"}, 0),
        ({"type": "command", "run": "grep -q 42 made.txt"}, 1),
        ({"type": "command", "run": "grep -q 43 made.txt"}, 0),
        ({"type": "python", "function": f"{MODULE}:half_for_a_file"}, 0.5),
    ]
    result = await run(tmp_path, virtual_clock, [check for check, _ in checks])
    found = [(score.check, score.score, score.error) for score in result.scores]
    assert found == [(check["type"], wanted, "") for check, wanted in checks]


async def test_a_check_that_cannot_judge_scores_nothing_and_says_why(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    checks = [
        {"type": "python", "function": f"{MODULE}:raising"},
        {"type": "python", "function": f"{MODULE}:leaving"},
        {"type": "python", "function": f"{MODULE}:too_much"},
        {"type": "python", "function": f"{MODULE}:missing"},
        {"type": "exact", "value": "the answer is 42", "weight": 3},
    ]
    result = await run(tmp_path, virtual_clock, checks)
    assert [score.score for score in result.scores] == [0, 0, 0, 0, 1]
    errors = [score.error for score in result.scores]
    assert "raised LookupError: no such thing as the" in errors[0] and "exit code 3" in errors[1]
    assert "returned 17" in errors[2] and "AttributeError" in errors[3] and errors[4] == ""
    assert mean_score(result.scores) == pytest.approx(3 / 7)


async def test_what_never_comes_back_is_ended_and_scores_nothing(tmp_path: Path) -> None:
    checks = [
        {"type": "python", "function": f"{MODULE}:endless", "timeout": 1.5},
        {"type": "command", "run": "sleep 60", "timeout": 1},
        {"type": "contains", "value": "42"},
    ]
    result = await run(tmp_path, None, checks)
    assert [score.score for score in result.scores] == [0, 0, 1]
    assert result.scores[0].error == "took longer than 1.5 s" and "stopped after" in result.scores[1].error


async def test_no_secret_reaches_a_function(
    tmp_path: Path, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_TEST_KEY", "sk-test-0123456789abcdef")
    result = await run(tmp_path, virtual_clock, {"type": "python", "function": f"{MODULE}:half_for_a_file"})
    assert [(score.score, score.error) for score in result.scores] == [(0.5, "")]


@pytest.mark.fault("B124")
async def test_the_agents_own_word_is_no_verified_success(desk: Desk) -> None:
    rows = [{"prompt": "checked", "verifier": {"type": "exact", "value": "x"}}, {"prompt": "right"}, {"prompt": "free"}]
    desk.dataset(rows)

    async def script(request: RolloutRequest) -> RolloutResult:
        scores = {
            "checked": (CheckScore(check="exact", score=0.0, detail="it is 'done'"),),
            "right": (CheckScore(check="exact", score=1.0), CheckScore(check="file", score=1.0)),
        }
        return answered(request.prompt, "I am done.", scores=scores.get(request.prompt, ()))

    assert await desk.start(FakeEngine(script)) == 0
    rows = desk.lines("trajectories.jsonl")
    assert [row["completed"] for row in rows] == [True, True, True]
    assert [row["verified"] for row in rows] == [False, True, None], "unknown is never shown as true"
    assert [row["score"] for row in rows] == [0.0, 1.0, None]
    assert desk.json("statistics.json")["scores"] == {
        "scored": 2,
        "mean": 0.5,
        "lowest": 0.0,
        "highest": 1.0,
        "verified": 1,
        "verifier_errors": {},
    }


async def test_a_rollout_that_failed_has_no_score(tmp_path: Path) -> None:
    row = DatasetRow(line=1, prompt="p", source={"prompt": "p"})
    item = Item(key="k:0:0", row_id="k:0", index=0, row=row)
    scores = (CheckScore(check="exact", score=1.0),)
    good = write_up(item, Draw(toolsets=()), answered("p", scores=scores), 0.0)
    bad = write_up(item, Draw(toolsets=()), RolloutResult(state="timed_out", scores=scores), 0.0)
    assert (good.head.score, bad.head.score) == (1.0, None)


async def test_a_rollout_that_was_stopped_while_it_was_verified_is_verified_later_and_not_asked_again(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    checks = [
        {"type": "command", "run": "grep -q 42 made.txt"},
        {"type": "python", "function": f"{MODULE}:half_for_a_file"},
    ]
    async with journalled(model(), tmp_path, virtual_clock) as engine:
        with anyio.CancelScope() as scope:
            request = asked(tmp_path, checks)

            def stop_at_the_verifier(phase: str) -> None:
                if phase == "verifier":
                    scope.cancel()

            await engine.run(msgspec.structs.replace(request, report=stop_at_the_verifier))
        assert scope.cancelled_caught and len(engine.begun()) == 1
    for _ in range(2):  # the second time it has ended and was only not written up
        async with journalled(ScriptedModel("m", scripts={}), tmp_path, virtual_clock) as engine:
            result = await engine.run(asked(tmp_path, checks))
        assert result.state == "completed" and result.api_calls == 3
        assert [score.score for score in result.scores] == [1, 0.5]


async def test_a_command_judges_inside_the_container_of_its_rollout(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    (tmp_path / "bin").mkdir()
    engine = StandIn(tmp_path / "bin")
    environ = {"PATH": f"{engine.folder}:{os.environ['PATH']}"}
    async with opened(model(), tmp_path, virtual_clock, environ) as (_, rollouts):
        request = asked(tmp_path, [{"type": "command", "run": "grep -q 42 made.txt"}])
        result = await rollouts.run(msgspec.structs.replace(request, image="some/image:1"))
    assert [(score.score, score.error) for score in result.scores] == [(1.0, "")]
    assert len(engine.of("run")) == 1 and engine.containers == [], "in the one container that it had"
