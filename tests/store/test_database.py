"""What may be opened, and what must stay untouched."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.core.errors import OperatorError, StoreError
from hermes.store.database import open_writer, refuse_foreign
from hermes.store.migrations import APPLICATION_ID, MIGRATIONS, Migration, migrate, migration
from hermes.store.sqlite import open_store

from .rows import entry, made, task

pytestmark = pytest.mark.anyio


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


async def test_a_new_home_is_made_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "home" / "runtime.db"
    store = await open_store(path)
    await store.submit(made()).wait()
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"runtime.db": 0o600, "runtime.db-wal": 0o600, "runtime.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await store.close()
    assert [file.name for file in path.parent.iterdir()] == ["runtime.db"]
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert int.from_bytes(header[60:64], "big") == len(MIGRATIONS)


async def test_an_open_file_is_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    await (await open_store(path)).close()
    path.chmod(0o644)
    await (await open_store(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


#: A program that looks into a database and leaves. Whoever leaves last takes the write-ahead log away.
LOOKS = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('SELECT * FROM sqlite_schema'); db.close()"


async def test_opened_twice_in_a_process_it_stays_open_for_others(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    store = await open_store(path)
    await store.submit(made(entry(0))).wait()
    await (await open_store(path)).close()
    subprocess.run([sys.executable, "-c", LOOKS, str(path)], timeout=120, check=True)
    assert path.with_name("runtime.db-wal").exists(), "the locks of the first one are gone"
    await store.close()


def test_pages_that_are_still_in_the_write_ahead_log_are_not_missed_in_the_file(tmp_path: Path) -> None:
    """Its header counts them from when they begin to be moved, one after the other; the process may die meanwhile."""
    path, crashed = tmp_path / "runtime.db", tmp_path / "crashed.db"
    db = open_writer(path)
    before = path.read_bytes()
    db.execute("CREATE TABLE filler (x)")
    db.execute("INSERT INTO filler VALUES (zeroblob(500000))")
    log = path.with_name("runtime.db-wal").read_bytes()
    db.execute("PRAGMA wal_checkpoint(FULL)")
    crashed.write_bytes(path.read_bytes()[:4096] + before[4096:])
    db.close()
    crashed.with_name("crashed.db-wal").write_bytes(log)
    refuse_foreign(crashed)
    db = open_writer(crashed)
    assert db.execute("SELECT length(x) FROM filler").fetchone() == (500_000,)
    db.close()


def test_pages_that_are_nowhere_are_told_as_damage_and_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    open_writer(path).close()
    cut = path.read_bytes()[:8192]
    path.write_bytes(cut)
    refuse_foreign(path)
    with pytest.raises(StoreError, match="damaged"):
        open_writer(path)
    assert path.read_bytes() == cut and [file.name for file in tmp_path.glob("runtime*")] == ["runtime.db"]


async def test_what_was_written_is_there_after_opening_again(tmp_path: Path) -> None:
    path = tmp_path / "odd # name?%20" / "runtime.db"
    store = await open_store(path, durability="power")
    await store.submit(made(entry(0))).wait()
    await store.close()
    store = await open_store(path)
    assert await store.task("t1") == task() and await store.entries("t1") == [(0, b"{}")]
    await store.close()


@pytest.mark.parametrize("other", ["sqlite", "text", "short"])
async def test_a_file_of_another_program_is_refused_and_untouched(tmp_path: Path, other: str) -> None:
    path = tmp_path / "runtime.db"
    if other == "sqlite":
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE sessions (id TEXT)")
        db.commit()
        db.close()
    else:
        path.write_bytes(b"not a database\n" * (20 if other == "text" else 1))
    before = digests(tmp_path)
    with pytest.raises(OperatorError, match=r"another program.*HERMES_HOME"):
        await open_store(path)
    assert digests(tmp_path) == before


async def test_a_newer_file_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    await (await open_store(path)).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = digests(tmp_path)
    with pytest.raises(OperatorError, match="version 99"):
        await open_store(path)
    assert digests(tmp_path) == before


def test_a_newer_version_that_stands_only_in_the_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    open_writer(path).close()
    # A newer program that was killed: its version is in the write-ahead log and not yet in the file.
    killed = "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('PRAGMA user_version = 99'); "
    subprocess.run([sys.executable, "-c", killed + "os._exit(0)", str(path)], check=True)
    log = path.with_name("runtime.db-wal")
    before = path.read_bytes(), log.read_bytes()
    assert before[0][60:64] != b"\0\0\0\x63", "the file itself must not know the version yet"
    with pytest.raises(StoreError, match="version 99"):
        open_writer(path)
    assert (path.read_bytes(), log.read_bytes()) == before


@pytest.mark.parametrize("home", ["file/home", "/proc/hermes"])
async def test_a_home_that_cannot_be_written_is_named(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match=r"(file|/proc/hermes).*HERMES_HOME"):
        await open_store(tmp_path / home / "runtime.db")


async def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "runtime.db").mkdir()
    with pytest.raises(OperatorError, match="HERMES_HOME"):
        await open_store(tmp_path / "runtime.db")


async def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    await (await open_store(path)).close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)
    with pytest.raises(StoreError, match="damaged"):
        await open_store(path)


def test_migrations_are_applied_once_and_by_name(tmp_path: Path) -> None:
    applied: list[str] = []

    def step(name: str) -> Migration:
        @migration(name)
        def made(db: sqlite3.Connection) -> None:
            applied.append(name)
            db.execute(f"CREATE TABLE {name} (x)")

        return made

    one, two = step("one"), step("two")
    path = tmp_path / "x.db"
    open_writer(path, migrations=(one,)).close()
    open_writer(path, migrations=(one, two)).close()
    db = open_writer(path, migrations=(one, two))
    assert applied == ["one", "two"]
    assert [name for (name,) in db.execute("SELECT name FROM migrations ORDER BY applied_at, name")] == ["one", "two"]
    assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert migrate(db, (one, two)) == []
    db.close()
    with pytest.raises(StoreError, match="version 2 and this program knows up to 1"):
        refuse_foreign(path, (one,))


def test_a_failing_migration_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    @migration("broken")
    def broken(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE half (x)")
        db.execute("CREATE TABLE half (x)")

    path = tmp_path / "x.db"
    open_writer(path).close()
    with pytest.raises(StoreError, match="half"):
        open_writer(path, migrations=(*MIGRATIONS, broken))
    db = open_writer(path)
    assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").fetchone() == (0,)
    db.close()


_OPEN = """
import sys
from pathlib import Path
from hermes.store.database import open_writer
print("ready", flush=True)
sys.stdin.readline()
open_writer(Path(sys.argv[1])).close()
"""


@pytest.mark.fault("B087")
def test_processes_that_make_the_same_home_at_once_all_get_it(tmp_path: Path) -> None:
    path = tmp_path / "home" / "runtime.db"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    opening = [
        subprocess.Popen(
            [sys.executable, "-c", _OPEN, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for _ in range(4)
    ]
    for process in opening:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in opening:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ends = [process.communicate() + (process.returncode,) for process in opening]
    assert [(code, error) for _, error, code in ends] == [(0, "")] * 4
    db = open_writer(path)
    assert db.execute("SELECT count(*) FROM migrations").fetchone() == (len(MIGRATIONS),)
    db.close()
