from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from hermes.batch.again import merge_again
from hermes.batch.report_page import BINS, bins
from hermes.core.result import CheckScore
from tests.batch.export.runs import record, write_run
from tests.batch.fakes import answered, failed

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J"


def test_the_page_shows_the_run_and_runs_nothing_of_it(tmp_path: Path) -> None:
    records = [record(answered(EVIL, text=EVIL, output=EVIL), 0, 0, 1.0), record(failed("server_error", EVIL), 1)]
    write_run(tmp_path, [*records, record(answered("привет 漢字", thinking=""), 2)])
    merge_again(tmp_path, "run", None)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "<b>1</b>kept" in page and "<b>1</b>rejected" in page and "<b>1</b>failed" in page
    assert "привет 漢字" in page and "no_reasoning" in page
    assert page.count("<script") == 1 and "<img" not in page and "\x1b" not in page
    assert page.count("<svg") == 6
    loaded = re.findall(r'(?:src|href)\s*=\s*"?(https?:[^">\s]+)|@import|url\((https?:)', page)
    assert loaded == []


def test_the_page_says_what_the_verifiers_found(tmp_path: Path) -> None:
    scores = (
        CheckScore(check="command", score=0.0, detail=f"exit code 1: {EVIL}"),
        CheckScore(check="python", score=0.0, error="f raised KeyError"),
    )
    write_run(tmp_path, [record(answered("p", scores=scores), 0, 0, 0.0), record(answered("q"), 1, 0, 1.0)])
    merge_again(tmp_path, "run", None)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "exit code 1: &lt;script&gt;" in page and page.count("<script") == 1
    assert page.count("could not judge") == 1 and "f raised KeyError" in page


def test_an_empty_run_has_a_page_too(tmp_path: Path) -> None:
    write_run(tmp_path, [])
    merge_again(tmp_path, "run", None)
    assert "0 rollouts" in (tmp_path / "run" / "report.html").read_text("utf-8")


def test_bins_hold_every_value_once() -> None:
    for values in ([1.0], [1.0, 1.0], [0.0, 0.5, 1.0], [float(n) for n in range(101)], [3.0, 900.0, 17.5]):
        found = bins(Counter(values))
        assert sum(count for _, _, count in found) == len(values)
        assert len(found) <= BINS
    assert [low for low, _, _ in bins(Counter([1.0, 2.0, 3.0]))] == [1.0, 2.0, 3.0]
