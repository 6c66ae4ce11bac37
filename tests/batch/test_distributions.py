"""Where toolsets come from: built-in tables, tables of the user's own, seeded and repeatable."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.batch.distribution import DISTRIBUTIONS, distribution
from hermes.batch.tables import read_tables
from hermes.core.errors import UsageError
from tests.batch.fakes import Desk, FakeEngine, prompts

ALL = {toolset for table in DISTRIBUTIONS.values() for toolset in table}


def test_draws_follow_their_percentages_and_their_seed() -> None:
    rows = [f"{number}:0" for number in range(4000)]
    table = distribution("science", ALL)
    drawn = [table.draw(row) for row in rows]
    for toolset, percent in DISTRIBUTIONS["science"].items():
        share = 100 * sum(toolset in names for names in drawn) / len(rows)
        assert abs(share - percent) < 3, toolset
    assert drawn == [distribution("science", ALL).draw(row) for row in rows], "the same again"
    seeded = distribution("science", ALL, seed=1)
    assert [seeded.draw(row) for row in rows] != drawn
    assert [seeded.draw(row) for row in rows] == [distribution("science", ALL, seed=1).draw(row) for row in rows]
    assert distribution("reasoning", {"web", "terminal"}).missing == ("moa",)
    lone = distribution("mine", {"web", "file"}, {"web": 1, "file": 2})
    assert {lone.draw(row) for row in rows} >= {("file",)} and () not in {lone.draw(row) for row in rows}


def test_a_file_that_holds_no_tables_is_refused_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "mix.yaml"
    for text, said in (
        ("", "holds no distributions"),
        ("- a", "holds no distributions"),
        ("a: 3", "'a' needs lines"),
        ("a: {web: 120}", "a.web is 120"),
        ("a: {web: true}", "a.web is True"),
        ("a: [", "is not YAML"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError) as error:
            read_tables(path)
        assert said in str(error.value) and str(path) in str(error.value), text
    with pytest.raises(UsageError, match="cannot read the distributions"):
        read_tables(tmp_path / "none.yaml")
    path.write_text("a: {web: 12.5, file: 100}\n", encoding="utf-8")
    assert read_tables(path) == {"a": {"web": 12.5, "file": 100.0}}


@pytest.mark.anyio
async def test_a_run_keeps_the_table_that_it_began_with(desk: Desk) -> None:
    desk.dataset(prompts(4))
    engine = FakeEngine()
    mine = {"mine": {"terminal": 100.0, "moa": 100.0}}
    assert await desk.start(engine, distribution="mine", tables=mine, max_samples=None) == 0
    assert {request.toolsets for request in engine.requests} == {("terminal",)}
    assert any("left out" in note and "moa" in note for note in desk.notes)
    later = FakeEngine()
    assert await desk.start(later, resume=True, rollouts_per_prompt=2, tables={"mine": {"file": 100.0}}) == 0
    assert {request.toolsets for request in later.requests} == {("terminal",)}, "whatever the file says now"
    with pytest.raises(UsageError, match="unknown distribution 'other'. There are: mine, default"):
        await desk.start(FakeEngine(), run_name="s", distribution="other", tables=mine)
