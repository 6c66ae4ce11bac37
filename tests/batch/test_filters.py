from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.batch.again import merge_again
from hermes.batch.filter_settings import FILTERS, FilterSettings, filter_settings
from hermes.batch.filters import LOOP, Filters
from hermes.batch.rollout import RolloutResult
from hermes.core.errors import OperatorError, UsageError
from hermes.core.messages import Assistant, Text, ToolCall, Usage, User
from tests.batch.export.runs import record, write_run
from tests.batch.fakes import answered, spec


def only(name: str, **more: Any) -> Filters:
    return Filters(FilterSettings(names=(name,), **more))


def reason(filters: Filters, result: RolloutResult, index: int = 0, rollout: int = 0) -> str:
    found = filters.judge(record(result, index, rollout))
    return "" if found is None else found.reason


@pytest.mark.parametrize(
    "text", ["I'm sorry, but I can't help with that.", "Извините, я не могу помочь.", "抱歉，我不能。"]
)
def test_a_reply_that_declines(text: str) -> None:
    assert reason(only("refused"), answered("p", text=text)) == "refused"
    assert reason(only("refused"), answered("p", text="I can do this: done.")) == ""


def test_a_call_again_and_again() -> None:
    call = ToolCall(id="c", name="terminal", arguments={"command": "ls"})
    replies = [Assistant(calls=(call,), thinking="t") for _ in range(LOOP)]

    def result(count: int) -> RolloutResult:
        entries = (User(content=(Text("p"),)), *replies[:count], Assistant(text="end", thinking="t"))
        return RolloutResult(state="completed", entries=entries, tools=(spec("terminal"),))

    assert reason(only("looping"), result(LOOP)) == "looping"
    assert reason(only("looping"), result(LOOP - 1)) == ""


def test_length_is_what_the_provider_counted_last() -> None:
    long = RolloutResult(
        state="completed",
        entries=(User(content=(Text("p"),)), Assistant(text="x", usage=Usage(input=900, output=200))),
    )
    assert reason(only("too_long", max_tokens=1_000), long) == "too_long"
    assert reason(only("too_long", max_tokens=1_100), long) == ""


def test_a_duplicate_is_another_row_and_never_another_rollout() -> None:
    filters = only("duplicate")
    assert reason(filters, answered("same"), 0) == ""
    assert reason(filters, answered("same"), 0, 1) == ""
    other = record(answered("same"), 1)
    twin = type(other)(head=other.head, source={"prompt": "p0"}, toolsets=other.toolsets, result=other.result)
    found = filters.judge(twin)
    assert found is not None and found.detail == "The same conversation as row 0."
    assert reason(filters, answered("same", text="else"), 2) == ""


def test_no_room_for_what_was_seen_before_is_told() -> None:
    filters = only("duplicate")
    assert reason(filters, answered("first"), 0) == ""
    assert filters._seen is not None
    filters._seen.execute("PRAGMA max_page_count = 1")
    with pytest.raises(OperatorError, match=r"temporary files: database or disk is full.* TMPDIR"):
        for number in range(1, 10_000):
            reason(filters, answered(f"row {number}"), number)


def test_filters_are_named() -> None:
    assert set(filter_settings(["all"]).names) == set(FILTERS)
    assert filter_settings(["none"]).names == ()
    assert filter_settings(["default", "refused"]).names[-1] == "refused"
    with pytest.raises(UsageError, match="looping"):
        filter_settings(["loops"])


def test_merging_again_moves_rows_there_and_back(tmp_path: Path) -> None:
    write_run(tmp_path, [record(answered("p"), 0), record(answered("p", text="I cannot."), 1)])
    before = {}
    tally, pending = merge_again(tmp_path, "run", None)
    assert (tally.kept, pending) == (2, 0)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.jsonl")}
    tally, _ = merge_again(tmp_path, "run", filter_settings(["default", "refused"]))
    assert dict(tally.rejected) == {"refused": 1}
    rejected = json.loads((tmp_path / "run" / "rejected.jsonl").read_text())
    assert rejected["reason"] == "refused" and rejected["prompt_index"] == 1
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["filters"]["names"][-1] == "refused"
    merge_again(tmp_path, "run", filter_settings(["default"]))
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.jsonl")}
    with pytest.raises(UsageError, match="Runs there: run"):
        merge_again(tmp_path, "other", None)
