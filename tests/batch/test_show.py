"""Reading rows in the terminal: of a run that has ended, of one that has not, and what tools brought in lines."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.batch.show import readable_row, rows_of, show_rows
from hermes.batch.summary import StopCause
from hermes.core.errors import OperatorError, UsageError
from tests.batch.fakes import Desk, FakeEngine, answered, prompts

pytestmark = [pytest.mark.anyio, pytest.mark.may_block]


def shown(desk: Desk, which: str = "trajectories", index: int | None = None) -> str:
    return "\n".join(show_rows(desk.data, "r", which, 3, index))


async def test_rows_that_have_ended_can_be_read_while_the_run_goes_on(desk: Desk) -> None:
    desk.dataset(prompts(6))
    seen: list[str] = []

    async def script(request: RolloutRequest) -> RolloutResult:
        if request.index == 1:
            while not desk.batch_rows():  # it is written beside what goes on
                await anyio.sleep(0.01)
            seen.append(shown(desk))
            seen.append("\n".join(show_rows(desk.data, "r", "", 3, 0)))
            with pytest.raises(
                UsageError, match=r"has no row 5 in batch_0\.jsonl\. .* status` says how many are pending"
            ):
                list(rows_of(desk.data, "r", "", 3, 5))
            with pytest.raises(
                UsageError, match=r"no rejected\.jsonl yet: it is made when the run ends; `hermes batch sh"
            ):
                list(rows_of(desk.data, "r", "rejected", 3))
        return answered(request.prompt)

    assert await desk.start(FakeEngine(script), num_workers=1) == 0, [
        row["detail"] for row in desk.lines("failed.jsonl")
    ]
    for text in seen:
        assert text.startswith("run 'r' has not ended: its rows as they stand before the filters\n\n── row 0 · ")
        assert "prompt 0" in text and "prompt 1" not in text
    assert shown(desk).startswith("── row 0 · ")
    assert [row["prompt_index"] for row in rows_of(desk.data, "r", "trajectories", 4)] == [0, 1, 2, 3]
    assert shown(desk, "failed").endswith("failed.jsonl has no rows")


async def test_of_a_run_that_goes_on_the_rows_of_now_are_read_and_not_those_of_its_last_end(desk: Desk) -> None:
    desk.dataset(prompts(3))
    seen: list[str] = []

    async def first(request: RolloutRequest) -> RolloutResult:
        assert desk.switch is not None
        desk.switch.stop(StopCause(kind="interrupted", message="x", exit_code=130))
        return answered(request.prompt)

    async def then(request: RolloutRequest) -> RolloutResult:
        if request.index == 2:
            while len(desk.batch_rows()) < 2:
                await anyio.sleep(0.01)
            seen.append(shown(desk, "", 1))
        return answered(request.prompt)

    assert await desk.start(FakeEngine(first), num_workers=1) == 130
    assert len(desk.lines("trajectories.jsonl")) == 1
    assert await desk.start(FakeEngine(then), num_workers=1, resume=True) == 0
    assert len(seen) == 1 and "has not ended" in seen[0] and "prompt 1" in seen[0]


async def test_before_any_row_has_ended(desk: Desk) -> None:
    desk.dataset(prompts(2))

    async def script(request: RolloutRequest) -> RolloutResult:
        assert shown(desk).endswith("none has ended yet")
        assert desk.switch is not None
        desk.switch.stop(StopCause(kind="interrupted", message="x", exit_code=130))
        return answered(request.prompt)

    assert await desk.start(FakeEngine(script), num_workers=1) == 130


async def test_a_line_that_is_being_written_is_no_row_and_another_thing_is_told(desk: Desk) -> None:
    desk.dataset(prompts(3))
    assert await desk.start(FakeEngine()) == 0
    path = desk.data / "r" / "trajectories.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert len(list(rows_of(desk.data, "r", "trajectories", 9))) == 2
    path.write_bytes(whole + b'{"else": 1}\n')
    with pytest.raises(OperatorError, match=r"trajectories\.jsonl:4 is no row"):
        list(rows_of(desk.data, "r", "trajectories", 9))


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ('{"output": "a\\n  b\\n", "exit_code": 0}', ["  output:", "  a", "    b", "  exit_code: 0"]),
        ('{"output": "\\u001b[31mred", "n": {"x": 1}}', ["  output: \\x1b[31mred", '  n: {"x":1}']),
        ("no object", ["  no object"]),
        ("[1, 2]", ["  [1, 2]"]),
        ("", []),
    ],
)
async def test_results_of_tools_are_lines(value: str, lines: list[str]) -> None:
    row: dict[str, Any] = {
        "prompt_index": 0,
        "model": "m",
        "completed": True,
        "tool_stats": {},
        "conversations": [{"from": "tool", "value": value}],
    }
    assert "\n".join(readable_row(row)).rstrip("\n").splitlines()[1:] == ["[tool]", *lines]
