"""What a home knows of the batch runs that are worked on with it."""

from __future__ import annotations

import shutil
from pathlib import Path

from hermes.batch.announcing import announced, announced_runs
from hermes.batch.folder import RunFolder


def test_a_run_that_goes_on_after_a_kill_is_announced_once(tmp_path: Path) -> None:
    home, folder = tmp_path / "run", RunFolder(tmp_path / "data", "nightly ü")
    home.mkdir()
    with announced(home, folder, ["--yolo"], []):
        (path,) = home.iterdir()
        assert path.stat().st_mode & 0o077 == 0
        shutil.copy(path, tmp_path / "killed")
    assert list(home.iterdir()) == []
    shutil.copy(tmp_path / "killed", home / "batch-0000.json")  # as its process left it
    with announced(home, folder, [], ["--allow_host_commands"]):
        (one,) = announced_runs(home)
        assert (one.folder.path, one.before, one.after) == (folder.path, (), ("--allow_host_commands",))
        assert not (home / "batch-0000.json").exists()
    assert announced_runs(home) == []


def test_a_home_that_cannot_be_written_is_told_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with announced(tmp_path / "file" / "run", RunFolder(tmp_path, "r"), [], []):
        assert (tmp_path / "file").read_bytes() == b""
