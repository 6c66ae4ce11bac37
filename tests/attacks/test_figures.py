"""The table and the figures of docs/approvals.md are what the code and the suite say."""

from __future__ import annotations

from collections import Counter

from hermes.runtime.modes import mode_table
from tests.attacks.ground import ROOT, cases

_STOPS = {"gate": "the gate, before anything ran", "bound": "limits", "screen": "what screens are given"}
PAGE = ROOT / "docs" / "approvals.md"


def figures() -> str:
    """The suite by family, as Markdown."""
    found = Counter(case.family for case in cases())
    stops = {case.family: _STOPS[case.expected] for case in cases()}
    lines = [f"| {family} | {count} | {stops[family]} | 0 | 0 |\n" for family, count in found.items()]
    head = "| family | attacks | stopped by | through | with an effect outside the sandbox |\n|---|---|---|---|---|\n"
    return f"{head}{''.join(lines)}| **all** | **{found.total()}** | | **0** | **0** |\n"


def test_the_page_shows_the_table_of_defaults() -> None:
    assert mode_table() in PAGE.read_text("utf-8"), mode_table()


def test_the_page_shows_the_figures_of_the_suite() -> None:
    assert figures() in PAGE.read_text("utf-8"), figures()
