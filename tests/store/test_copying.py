"""Copies of a journal before its layout changes, and the processes of a home."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from hermes.core.errors import StoreError
from hermes.store.copying import KEPT, copies, copy_aside, layout_of, put_back
from hermes.store.database import open_writer
from hermes.store.hosting import HostInfo, HostLock
from hermes.store.living import Living, holds, is_ours, living_processes
from hermes.store.migrations import MIGRATIONS, migration
from hermes.store.owner import living_owners, owner_pid, take_ownership


@migration("later")
def later(db: sqlite3.Connection) -> None:
    """A table that older versions do not know."""
    db.execute("CREATE TABLE later (x)")


NEWER = (*MIGRATIONS, later)
NOW = len(MIGRATIONS)


def sessions(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    try:
        return [name for (name,) in db.execute("SELECT session_id FROM sessions ORDER BY n")]
    finally:
        db.close()


def add(db: sqlite3.Connection, name: str) -> None:
    db.execute(
        "INSERT INTO sessions (session_id, root_task, created_at, updated_at, source, title, cwd, model) "
        "VALUES (?, '', 1, 1, 'cli', '', '/', 'm')",
        (name,),
    )


def test_a_journal_is_copied_before_its_layout_changes_and_the_copy_brings_the_older_program_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runtime.db"
    old = open_writer(path)
    add(old, "before")  # it stands in the write-ahead log alone
    assert copies(path) == []  # a new file has no older layout
    new = open_writer(path, migrations=NEWER)  # while the other one is still open
    (kept,) = copies(path)
    assert kept.layout == NOW and kept.path.stat().st_mode & 0o777 == 0o600
    add(new, "after")
    old.close()
    new.close()
    open_writer(path, migrations=NEWER).close()
    assert len(copies(path)) == 1  # only a change is copied
    with pytest.raises(
        StoreError, match=f"version {NOW + 1} and this program knows up to {NOW}; it was left untouched"
    ):
        open_writer(path)

    aside = put_back(path, kept)
    assert (sessions(path), sessions(aside)) == (["before"], ["before", "after"])
    assert (layout_of(path), layout_of(aside)) == (NOW, NOW + 1)
    open_writer(path).close()
    assert [one.layout for one in copies(path)] == [NOW + 1]


def test_only_the_newest_copies_stay(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    open_writer(path).close()
    made = [copy_aside(path, NOW) for _ in range(KEPT + 2)]
    assert sorted(one.path for one in copies(path)) == sorted(made[2:])


def test_a_copy_that_cannot_be_made_leaves_the_journal_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    open_writer(path).close()
    with path.open("r+b") as file:  # a page in the middle that cannot be read fails the copy
        file.truncate(path.stat().st_size // 2)
    before = path.read_bytes()
    with pytest.raises(StoreError):
        open_writer(path, migrations=NEWER)
    assert path.read_bytes() == before


def test_the_processes_of_a_home_and_what_they_have(tmp_path: Path) -> None:
    journal = tmp_path / "runtime.db"
    assert living_processes(tmp_path, journal) == []
    db = open_writer(journal)
    with take_ownership(tmp_path) as owner, take_ownership(tmp_path) as other, HostLock(tmp_path) as lock:
        assert lock.take()
        lock.say(HostInfo(pid=os.getpid(), owner=other.owner_id, started_at=1.0))
        add(db, "s1")
        for task, ended in (("a", None), ("b", None), ("c", 1.0)):
            db.execute(
                "INSERT INTO tasks (task_id, session_id, root_id, kind, role, depth, goal, state, spec, owner, epoch, "
                "child_index, group_id, attempt, created_at, ended_at) "
                "VALUES (?, 's1', 'a', 'main', '', 0, '', '', x'', ?, 0, ?, '', 0, 1, ?)",
                (task, owner.owner_id, ord(task), ended),
            )
        (tmp_path / "run" / f"{'0' * 16}.lock").write_text("77\n")  # of a process that was killed
        assert living_owners(tmp_path) == sorted([owner.owner_id, other.owner_id])  # the host's lock is no owner
        first, host = living_processes(tmp_path, journal)
        assert first == Living(owner=owner.owner_id, pid=os.getpid(), sessions=("s1",), unfinished=2)
        assert host == Living(owner=other.owner_id, pid=os.getpid(), host=True)
        assert holds(tmp_path, first) is True and not is_ours(os.getpid())
        assert holds(tmp_path, Living(owner="f" * 16, pid=1)) is False
        assert holds(tmp_path, Living(owner=owner.owner_id, pid=2**22 + 1)) is False
        assert owner_pid(tmp_path, "f" * 16) == 0
    db.close()
    assert living_processes(tmp_path, journal) == []
