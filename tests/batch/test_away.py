"""The folder of a process that works for a run of another machine."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from hermes.batch.away import Outpost, id_away
from hermes.batch.folder import RunFolder
from hermes.core.errors import OperatorError


def test_each_process_has_a_folder_of_its_own_that_nobody_else_reads(tmp_path: Path) -> None:
    base = tmp_path / "away"
    first, second = Outpost.take("run", base=base), Outpost.take("run", base=base)
    assert (first.journal, second.journal) == ("0", "1")
    for folder in (base, base / "run", first.path):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    first.leave("r", half_done=False, keep_workspaces=False)
    second.leave("r", half_done=False, keep_workspaces=False)
    assert not (base / "run").exists()


def test_what_is_half_done_stays_and_is_found_by_the_next_process(tmp_path: Path) -> None:
    base = tmp_path / "away"
    first = Outpost.take("run", base=base)
    (first.path / "kept").write_text("x", "utf-8")
    first.leave("r", half_done=True, keep_workspaces=False)
    again = Outpost.take("run", base=base)
    assert (again.path / "kept").exists()
    again.leave("r", half_done=False, keep_workspaces=False)
    assert not (base / "run").exists()


def test_who_takes_over_a_journal_waits_for_its_last_owner(tmp_path: Path) -> None:
    base = tmp_path / "away"
    first, beside = Outpost.take("run", base=base), Outpost.take("run", base=base)
    took: list[Outpost] = []
    after = threading.Thread(target=lambda: took.append(Outpost.take("run", "0", base=base)))
    after.start()
    os.close(first.lock)
    after.join()
    assert took[0].journal == "0" and beside.journal == "1"
    os.close(took[0].lock)
    os.close(beside.lock)


def test_a_journal_that_is_not_on_this_machine_is_not_waited_for(tmp_path: Path) -> None:
    assert Outpost.take("run", "7", base=tmp_path / "away").journal == "0"


def test_a_lock_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    base = tmp_path / "away"
    (base / "run").mkdir(mode=0o700, parents=True)
    base.chmod(0o700)
    (base / "run" / "0.lock").symlink_to(tmp_path / "theirs")
    with pytest.raises(OperatorError, match=r"cannot write .*0\.lock.* TMPDIR"):
        Outpost.take("run", base=base)


def test_workspaces_stay_where_they_are_wanted(tmp_path: Path) -> None:
    outpost = Outpost.take("run", base=tmp_path / "away")
    folder = RunFolder(outpost.data_dir, "r")
    folder.workspace(0, 0).mkdir(parents=True)
    folder.journal_path.write_bytes(b"")
    outpost.leave("r", half_done=False, keep_workspaces=True)
    assert folder.workspace(0, 0).exists() and not folder.journal_path.exists()


@pytest.mark.parametrize("kind", ["link", "open"])
def test_a_folder_that_somebody_else_may_have_made_is_not_used(tmp_path: Path, kind: str) -> None:
    base = tmp_path / "away"
    if kind == "link":
        (tmp_path / "theirs").mkdir()
        base.symlink_to(tmp_path / "theirs")
    else:
        base.mkdir()
        base.chmod(0o777)
    with pytest.raises(OperatorError, match="TMPDIR"):
        Outpost.take("run", base=base)


def test_a_run_is_called_the_same_at_every_start_and_each_folder_otherwise(tmp_path: Path) -> None:
    names = []
    for name in ("a", "b"):
        folder = RunFolder(tmp_path, name)
        folder.path.mkdir()
        names.append(id_away(folder))
        assert id_away(folder) == names[-1]
        assert not folder.has_run()  # a start that was refused leaves no run behind
    assert names[0] != names[1]
