"""What a run keeps of its ended rollouts: the last record of each, whatever the file looks like, in few bytes."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from hermes.batch.checkpoint import checkpoint
from hermes.batch.index import RecordIndex, Slots, open_index
from hermes.batch.plan import compare
from hermes.batch.record import Head, Outcome, RecordFile
from hermes.batch.rowtable import RowEntry, RowTable
from hermes.batch.spread import CELLS, Spread
from hermes.core.codec import encode_json


def table(count: int, *, first: int = 0) -> RowTable:
    return RowTable.of(bytearray(b"".join(number.to_bytes(16, "big") for number in range(first, first + count))))


def head(rows: RowTable, position: int, rollout: int = 0, outcome: Outcome = "finished", **more: object) -> Head:
    key = f"{rows.row_id(position)}:{rollout}"
    fields = {"key": key, "index": rows.place(position), "rollout": rollout, "outcome": outcome, **more}
    return Head(**fields)  # type: ignore[arg-type]


def write(path: Path, heads: list[Head]) -> Path:
    path.write_bytes(b"".join(encode_json({"head": one, "more": "x" * (one.index % 7)}) + b"\n" for one in heads))
    return path


def shown(index: RecordIndex) -> list[tuple[int, int, str, int]]:
    return [(place.index, place.rollout, place.ended.reason, place.ended.attempt) for place in index.places()]


def test_the_last_record_counts_and_a_failure_takes_no_finished_one_away(tmp_path: Path) -> None:
    rows = table(3)
    heads = [
        head(rows, 2, 1, "failed", reason="timeout", cost_usd=0.5, calls=3, denied=1, detail="slow"),
        head(rows, 0, reason="no_reasoning", cost_usd=1.0, calls=1),
        head(rows, 2, 1, attempt=2, cost_usd=0.25, calls=4, tokens=7),
        head(rows, 0, 0, "failed", reason="crashed", attempt=2, cost_usd=4.0, calls=9),
        head(rows, 1, 1, "failed", reason="crashed"),
    ]
    path = write(tmp_path / "records.jsonl", heads)
    index = open_index(path, rows, 2)
    assert shown(index) == [(0, 0, "no_reasoning", 1), (1, 1, "crashed", 1), (2, 1, "", 2)]
    counts = index.counts
    assert (counts.kept, +counts.rejected, +counts.failed) == (1, {"no_reasoning": 1}, {"crashed": 1})
    assert (counts.calls, counts.denied, counts.priced, counts.paid) == (5, 0, 2, 1.25)
    assert index.used.rollouts == 5 and index.used.cost_usd == 5.75
    assert [place.index for place in index.first_finished(5)] == [0, 2], "in the order in which they were written"
    assert index.ended_of(rows, range(3)) == 3 and index.ended(rows, 0, 1) is None
    with RecordFile(path) as records:
        assert [records.head(place) for place in index.places()] == [heads[1], heads[4], heads[2]]


@pytest.mark.parametrize("lost", [False, True])
def test_any_order_of_records_is_the_same_with_the_rows_lost(tmp_path: Path, lost: bool) -> None:
    chance = random.Random(7)
    rows = RowTable(RowEntry(f"{number:032x}:{number % 2}", place) for number, place in enumerate((4, 0, 9, 2, 7)))
    expected: dict[tuple[int, int], Head] = {}
    heads = []
    for _ in range(300):
        outcome: Outcome = "failed" if chance.random() < 0.7 else "finished"
        reason = chance.choice(("timeout", "crashed")) if outcome == "failed" else chance.choice(("", "no_reasoning"))
        attempt = len(heads) + 1
        one = head(
            rows, chance.randrange(5), chance.randrange(3), outcome, reason=reason, attempt=attempt, calls=attempt
        )
        heads.append(one)
        known = expected.get((one.index, one.rollout))
        if known is None or known.outcome == "failed" or outcome == "finished":
            expected[one.index, one.rollout] = one
    index = open_index(write(tmp_path / "records.jsonl", heads), None if lost else rows, 3)
    assert shown(index) == [(*at, one.reason, one.attempt) for at, one in sorted(expected.items())]
    assert index.counts.calls == sum(one.calls for one in expected.values())
    failed = Counter(one.reason for one in expected.values() if one.outcome == "failed")
    assert +index.counts.failed == failed
    index.follow(rows)
    assert index.ended_of(rows, range(5)) == len(expected)
    done = [one for one in expected.values() if one.outcome == "finished"]
    assert [place.ended.attempt for place in index.places(2, 8, finished=True)] == [
        one.attempt for one in sorted(done, key=lambda one: (one.index, one.rollout)) if 2 <= one.index < 8
    ]


def test_records_that_are_no_rollouts_of_the_rows_are_known_by_their_key(tmp_path: Path) -> None:
    rows, others = table(2), table(2, first=50)
    heads = [head(rows, 0), head(others, 0), head(rows, 1, 5), head(others, 1, 0, "failed", reason="x")]
    index = open_index(write(tmp_path / "records.jsonl", heads), rows, 1)
    assert index.counts.kept == 3 and index.ended_of(rows, range(2)) == 1
    assert [(place.index, place.rollout) for place in index.places()] == [(0, 0), (0, 0), (1, 0), (1, 5)]
    assert index.ended_of(others, range(2)) == 2 and index.last_index() == 1
    again = head(others, 1, attempt=2)
    before = index.before(again)
    assert before is not None and before.ended.reason == "x"
    index.add(again, index.size, 10, heads[3])
    assert index.counts.kept == 4 and not +index.counts.failed


def test_a_million_rows_would_take_forty_megabytes(tmp_path: Path) -> None:
    count = 20_000
    tracemalloc.start()
    try:
        rows = table(count)
        index = RecordIndex(rows, 1)
        for position in range(count):
            index.add(head(rows, position, offered=("terminal", "file"), tokens=position), 400 * position, 400)
        content = b"".join(checkpoint("r", index, 10, 400 * 5_000, 0.0))
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in checkpoint("r", index, 10, 400 * 5_000, 0.0):
            pass
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept - len(content) < 40 * count
    assert most - kept < 1_000_000, "a checkpoint is written in pieces"
    assert json.loads(content)["completed_prompts"] == list(range(count))


def test_a_checkpoint_counts_rows_whose_rollouts_have_all_ended(tmp_path: Path) -> None:
    rows = table(5)
    heads = [head(rows, 3), head(rows, 3, 1), head(rows, 4), head(rows, 0, 0, "failed", reason="x")]
    index = open_index(write(tmp_path / "records.jsonl", heads), rows, 2)
    earlier = index.size
    index.add(head(rows, 0, 1, reason="no_reasoning"), index.size, 10)
    index.add(head(rows, 0, 0, attempt=2), index.size, 10, heads[3])
    found = json.loads(b"".join(checkpoint("läuft", index, 2, earlier, 0.0)))
    assert (found["run_name"], found["completed_prompts"]) == ("läuft", [0, 3])
    assert found["batch_stats"] == {
        "0": {"processed": 2, "skipped": 0, "discarded_no_reasoning": 1},
        "1": {"processed": 0, "skipped": 2, "discarded_no_reasoning": 0},
        "2": {"processed": 0, "skipped": 1, "discarded_no_reasoning": 0},
    }
    assert json.loads(b"".join(checkpoint("r", RecordIndex(), 1, 0, 0.0)))["completed_prompts"] == []


def test_slots_hold_only_rollouts_that_there_can_be() -> None:
    slots = Slots(2)
    for index, rollout in ((3, 1), (0, 2), (-1, 0), (1, -1)):
        slots.add(index, rollout)
    assert [(at, n) for at in range(5) for n in range(2) if slots.has(at, n)] == [(3, 1)]
    assert not any(slots.has(index, rollout) for index, rollout in ((2, 3), (-1, 1), (4, -1)))
    assert not Slots(1)


def test_a_table_of_rows_keeps_places_numbers_and_those_that_are_gone() -> None:
    entries = [RowEntry("00" * 16 + ":0", 0), RowEntry("00" * 16 + ":1", 5), RowEntry("0f" * 16 + ":0", 3, True)]
    rows = RowTable(entries)
    assert list(rows) == entries and rows.present == 2 and rows.following() == 6
    assert list(rows.by_place()) == [0, -1, -1, 2, -1, 1]
    fresh = RowTable.of(bytearray(32))
    assert fresh.same_rows(rows) and fresh.placed_as(rows) is rows
    assert list(rows.positions_in(fresh)) == [0, 1]
    moved = RowTable.of(bytearray(b"\x0f" * 16 + bytes(16)))
    changes = compare(rows, rows.positions_in(moved))
    assert (changes.added, changes.removed, changes.moved) == (1, 1, 0), "one that was gone and is back is new"


def test_numbers_are_counted_in_a_size_that_does_not_grow() -> None:
    few, many = Spread(), Spread()
    for value in (3.0, 900.0, 17.5, 3.0):
        few.add(value)
    assert few.counts() == {3.0: 2, 17.5: 1, 900.0: 1} and few.sum == 923.5
    for number in range(50_000):
        many.add(float(number * 37 % 100_003))
    counts = many.counts()
    assert counts.total() == many.count == 50_000 and len(counts) <= CELLS
    assert min(counts) == many.low == 0.0 and all(value.is_integer() for value in counts)
    below = sum(count for value, count in counts.items() if value < 50_000)
    assert abs(below - sum(number * 37 % 100_003 < 50_000 for number in range(50_000))) < 60
