"""`hermes usage`: sums over the stored calls of a home."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from hermes.core.codec import encode_envelope
from hermes.core.events import Envelope, TurnEnded
from hermes.core.messages import Usage
from hermes.store.ops import AddEvent, EventRow, Op, Unit
from hermes.store.sqlite import open_store
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]
DAY = 86_400.0


def kept(seq: int, task: str, parent: str | None, used: Usage, *, ago: float = 60.0, purpose: str = "main") -> Op:
    at = time.time() - ago
    turn = TurnEnded(turn=1, model="gpt-5" if used.cost_usd else "own/model", usage=used, duration=1.0, purpose=purpose)
    envelope = Envelope(seq=seq, at=at, session_id="s1", task_id=task, parent_id=parent, event=turn)
    row = EventRow(session_id="s1", task_id=task, seq=seq, type="turn.ended", at=at, body=encode_envelope(envelope))
    return AddEvent(row=row)


@pytest.fixture
def calls(hermes_home: Path) -> None:
    async def fill() -> None:
        store = await open_store(hermes_home / "runtime.db")
        units = (
            kept(1, "main_1", None, Usage(input=1_000, output=100, cost_usd=0.5)),
            kept(2, "main_1", None, Usage(input=200, output=20, cost_usd=0.1), purpose="compaction"),
            kept(3, "sa-1", "main_1", Usage(input=400, output=40, estimated=True)),
            kept(4, "sa-1", "main_1", Usage(input=8_000, output=1, cost_usd=0.25), ago=20 * DAY),
        )
        await store.submit(Unit(ops=units)).wait()
        await store.close()

    anyio.run(fill)


@pytest.mark.fault("B020")
def test_the_sums_hold_every_purpose_of_the_last_week(hermes: Hermes, calls: None) -> None:
    found = json.loads(hermes("usage", "--by", "purpose", "--json").out)
    assert {row["key"]: row["total"] for row in found["rows"]} == {"main": 1_100, "compaction": 220, "child": 440}
    assert found["total"]["calls"] == 3
    assert found["total"]["total"] == 1_760
    assert found["total"]["cost_usd"] == pytest.approx(0.6)
    assert (found["total"]["unpriced_calls"], found["total"]["estimated_calls"]) == (1, 1)


@pytest.mark.fault("B019")
def test_tasks_have_figures_with_and_without_what_is_under_them(hermes: Hermes, calls: None) -> None:
    found = json.loads(hermes("usage", "--since", "all", "--by", "task", "--json").out)
    rows = {row["key"]: (row["total"], row["subtree"]["total"]) for row in found["rows"]}
    assert rows == {"main_1": (1_320, 9_761), "sa-1": (8_441, 8_441)}
    assert found["total"]["total"] == 9_761


def test_the_table_marks_what_is_estimated_and_what_has_no_price(hermes: Hermes, calls: None) -> None:
    out = hermes("usage", "--by", "model").out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "gpt-5 2 1,200 0 120 0 $0.6000" in lines
    assert "own/model 1 ~400 0 ~40 0 unknown price" in lines
    assert "total 3 ~1,600 0 ~160 0 $0.6000 + unknown price" in lines
    assert "1 calls have an unknown price" in out


@pytest.mark.parametrize("span", ["7", "week", "-3d", "1y"])
def test_a_span_that_is_none_is_refused(hermes: Hermes, span: str) -> None:
    ran = hermes("usage", f"--since={span}")
    assert ran.code == 2
    assert "write 30m, 12h, 7d, 4w, or all" in ran.err


def test_an_empty_home_has_no_journal_afterwards(hermes: Hermes, hermes_home: Path) -> None:
    assert hermes("usage").out == "no model calls in this time\n"
    assert json.loads(hermes("usage", "--json").out)["rows"] == []
    assert not (hermes_home / "runtime.db").exists()
