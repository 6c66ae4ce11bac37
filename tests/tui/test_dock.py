"""The living tasks above the editor: each on one line, in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.chat.render import columns
from hermes.core.events import TaskPhase
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel
from hermes.tui.dock import dock_lines
from tests.tui.stage import Told

pytestmark = pytest.mark.anyio
NOW = 1_750_000_000.0


@pytest.mark.parametrize("width", [24, 40, 78, 158])
async def test_a_line_fits_whatever_is_in_it_and_keeps_its_place(tmp_path: Path, width: int) -> None:
    async with open_lab(ScriptedModel("m", []), workspace=tmp_path) as lab:
        told = Told(lab.runtime.bus, "S1", NOW - 60)
        told.start("main_0", "go")
        for number, goal in enumerate(("dig " * 40, "测试中文字符" * 20, "short")):
            told.start(f"sa-{number}", goal, "main_0")
        told.tell("sa-1", TaskPhase(phase="approval", detail="rm -rf build && git push --force origin main " * 3))
        tree = lab.runtime.bus.tree
        lines = dock_lines(tree, "S1", NOW, width=width)
        assert len(lines) == 4 and all(columns(line) <= width for line in lines)
        assert lines[0].startswith("▾ tasks: 3 running") and lines[1].startswith("  ▶ 测试")
        told.at = NOW - 1
        told.turn("sa-2", 10)  # the newest activity moves nothing
        again = dock_lines(tree, "S1", NOW, width=width)
        assert [line[:8] for line in again] == [line[:8] for line in lines] and "short" in again[3]
