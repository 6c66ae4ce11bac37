"""What tasks are told of the project they work in, without a reading for each."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from hermes.compose.project import FRESH, project_notes
from hermes.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


def at_work(folder: Path) -> Any:
    return SimpleNamespace(scope=SimpleNamespace(workspace=str(folder)))


async def test_a_crowd_in_one_folder_reads_its_file_once_and_later_tasks_what_it_says_then(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    notes = project_notes(1_000, virtual_clock)
    there, other = tmp_path / "a", tmp_path / "b"
    for folder in (there, other):
        folder.mkdir()
        (folder / "AGENTS.md").write_text(f"rules of {folder.name}", encoding="utf-8")
    assert "rules of a" in await notes(at_work(there))
    (there / "AGENTS.md").write_text("new rules", encoding="utf-8")
    assert "rules of a" in await notes(at_work(there)), "one of the same crowd"
    assert "rules of b" in await notes(at_work(other))
    await anyio.sleep(FRESH)
    assert "new rules" in await notes(at_work(there))
