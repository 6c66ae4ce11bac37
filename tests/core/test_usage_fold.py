"""Usage as a fold over stored calls: nothing is lost, nothing counted twice."""

from __future__ import annotations

from datetime import datetime

import pytest

from hermes.core.codec import encode_envelope
from hermes.core.events import Envelope, TurnEnded
from hermes.core.messages import Usage
from hermes.core.usage import Grouping, StoredCall, fold, stored_call

PARENTS = {"main": None, "a": "main", "a1": "a", "b": "main"}


def made(
    task: str, tokens: int, cost: float | None = None, *, purpose: str = "main", at: float = 0.0, model: str = "m"
) -> StoredCall:
    event = TurnEnded(turn=1, model=model, usage=Usage(input=tokens, cost_usd=cost), duration=1.0, purpose=purpose)
    envelope = Envelope(seq=1, at=at, session_id="s", task_id=task, parent_id=PARENTS[task], event=event)
    return stored_call(task, "s", at, encode_envelope(envelope))


@pytest.mark.fault("B019")
def test_each_task_has_own_and_subtree_figures_and_the_sum_is_not_counted_twice() -> None:
    table = fold([made("main", 100, 1.0), made("a", 200, 2.0), made("a1", 300, 3.0)], "task")
    figures = {line.key: (line.usage.total, line.subtree and line.subtree.total) for line in table.lines}
    assert figures == {"main": (100, 600), "a": (200, 500), "a1": (300, 300)}
    assert table.total.usage.total == 600
    assert table.total.usage.cost_usd == pytest.approx(6.0)


@pytest.mark.fault("B020")
def test_side_calls_are_counted_by_purpose() -> None:
    calls = [made("main", 10), made("main", 7, purpose="compaction"), made("a", 5), made("a", 3, purpose="summary")]
    table = fold(calls, "purpose")
    assert {line.key: line.usage.total for line in table.lines} == {
        "main": 10,
        "compaction": 7,
        "child": 5,
        "summary": 3,
    }
    assert table.total.usage.total == 25


@pytest.mark.parametrize("by", ["day", "session", "task", "model", "purpose"])
def test_every_grouping_has_the_same_sum(by: Grouping) -> None:
    calls = [made("main", 10, 1.0), made("a", 20, at=90_000.0, model="n"), made("b", 40, 0.5, at=200_000.0)]
    table = fold(calls, by)
    assert sum(line.usage.total for line in table.lines) == table.total.usage.total == 70
    assert sum(line.calls for line in table.lines) == table.total.calls == 3


def test_an_unknown_price_is_marked_and_not_taken_for_nothing() -> None:
    table = fold([made("main", 10, 1.0), made("main", 10), made("main", 0)], "model")
    assert (table.total.unpriced, table.total.usage.cost_usd) == (1, 1.0)


def test_days_come_in_order_and_others_by_what_they_cost() -> None:
    late, early = 1_700_200_000.0, 1_700_000_000.0
    table = fold([made("main", 1, at=late), made("main", 1, at=early)], "day")
    days = [datetime.fromtimestamp(at).strftime("%Y-%m-%d") for at in (early, late)]
    assert [line.key for line in table.lines] == days
    table = fold([made("a", 1, 0.1), made("b", 1, 0.9)], "task")
    assert [line.key for line in table.lines] == ["b", "a"]
