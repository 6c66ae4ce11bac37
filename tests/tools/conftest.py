"""A place with an empty workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "work"
    folder.mkdir()
    return Place(folder)
