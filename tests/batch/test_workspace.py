"""The copy of a row's folder that a rollout works on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes.batch.workspace import WorkspaceError, prepare, share


def source(path: Path, size: int = 10) -> Path:
    folder = path / "source"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "data").write_bytes(b"x" * size)
    (folder / "run.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("/etc/hostname")
    return folder


def test_a_copy_is_its_own_and_keeps_links_and_modes(tmp_path: Path) -> None:
    folder, target = source(tmp_path), tmp_path / "run" / "workspaces" / "0-0"
    assert prepare(str(folder), target, tmp_path / "run", inplace=False) == target
    assert (target / "below" / "data").read_bytes() == b"x" * 10
    assert os.access(target / "run.sh", os.X_OK) and os.readlink(target / "link") == "/etc/hostname"
    (target / "below" / "data").write_text("changed", encoding="utf-8")
    assert (folder / "below" / "data").read_bytes() == b"x" * 10


def test_what_is_too_large_is_refused_with_both_figures_and_nothing_is_left(tmp_path: Path) -> None:
    folder, target = source(tmp_path, 3 * 2**20), tmp_path / "run" / "workspaces" / "0-0"
    if share(str(folder / "run.sh"), str(tmp_path / "shared")):
        pytest.skip("this file system shares blocks, so nothing is copied")
    with pytest.raises(WorkspaceError) as error:
        prepare(str(folder), target, tmp_path / "run", inplace=False, most_mb=2)
    text = str(error.value)
    assert "holds 4 MB" in text and "may have 2 MB" in text and "--max_copy_mb" in text
    assert not target.exists()


def test_a_copy_of_a_linked_checkout_does_not_lead_back_to_its_repository(tmp_path: Path) -> None:
    folder, target = source(tmp_path), tmp_path / "run" / "workspaces" / "0-0"
    (folder / ".git").write_text("gitdir: /somewhere/else/.git/worktrees/x\n", encoding="utf-8")
    prepare(str(folder), target, tmp_path / "run", inplace=False)
    assert not (target / ".git").exists() and (folder / ".git").exists()
