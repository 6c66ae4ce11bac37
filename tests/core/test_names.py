"""Mistyped names."""

from __future__ import annotations

from hermes.core.names import did_you_mean
from hermes.core.toolsets import ToolsetRegistry


def test_the_nearest_name_is_offered_and_no_far_one() -> None:
    known = {"terminal": 1, "file": 2}
    assert did_you_mean("termnal", known) == " Did you mean 'terminal'?"
    assert did_you_mean("cooking", known) == ""


def test_a_mistyped_toolset_is_told_with_the_nearest() -> None:
    """Also where several stand for one name."""
    (note,) = ToolsetRegistry([]).expand(["debuging"]).notes
    assert note.startswith("unknown toolset 'debuging' was left out. Did you mean 'debugging'? Known:")
