"""Opening the journal's file: what may be opened, how, and the words for what went wrong.

A file that is not ours, or newer than this program, is recognised by its header, which is read as that of a file that
cannot change: not a byte of it does, and nothing is made beside it. A database that is there is opened by SQLite alone:
the system drops all locks that a process has on a file when any descriptor of it is closed, also those of its other
connections, and the next process that leaves would then take their write-ahead log away.

This module knows no rows and no event loop; it runs on whatever thread calls it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Literal

from hermes.core.errors import OperatorError, StoreBusy, StoreError, StoreFull
from hermes.store.copying import copy_aside
from hermes.store.migrations import APPLICATION_ID, MIGRATIONS, Migration, migrate

__all__ = ["Durability", "begin", "make_private", "open_reader", "open_writer", "refuse_foreign", "store_error"]

#: `process`: a commit survives `kill -9`. `power`: it survives a power cut too, at the price of a sync for each batch.
Durability = Literal["process", "power"]

_ADVICE = "what was committed is safe; unfinished tasks go on after a restart"

# Short waits inside SQLite, so that a thread told to stop is not caught in them for the whole limit.
_POLL = 0.1


def store_error(error: sqlite3.Error | OSError, path: Path, kind: str = "journal") -> StoreError:
    """Return `error` as a StoreError with the path and what to do; `kind` says what the file is."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if isinstance(code, int) else None
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"the {kind} {path} was held by another process for too long ({error}); find the program that keeps it "
            f"open and start again; {_ADVICE}"
        )
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and _no_room(path)):
        return StoreFull(f"the {kind} {path} cannot grow ({error}); free some space and start again; {_ADVICE}")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreError(
            f"the {kind} {path} is damaged ({error}); move it and its -wal file aside, or restore a copy, and start "
            "again"
        )
    return StoreError(f"the {kind} {path} cannot be used ({error}); check the disk and start again; {_ADVICE}")


def _no_room(path: Path) -> bool:
    """Whether the disk has no room for the files beside the journal, for which SQLite says no more than "I/O error"."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < 64 * 1024


def refuse_foreign(path: Path, migrations: Sized = MIGRATIONS, *, application: int = APPLICATION_ID) -> None:
    """Check that `path` is absent, empty or a file of ours that this version knows. Reads only.

    `application` is the id in the file's header, by default the journal's; `migrations` are those this version has.

    Raises:
        StoreError: it is something else; the file is untouched.
        sqlite3.Error: it is damaged. OSError: it cannot be read.
    """
    try:
        if not path.stat().st_size:
            return
    except FileNotFoundError:
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    known, layout = _header(path)
    if known != application:
        raise StoreError(
            f"{path} belongs to another program and was left untouched; choose another home (HERMES_HOME) or move the "
            "file away"
        )
    _refuse_newer(path, layout, migrations)
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        # The newest header may still be in the write-ahead log; a read-only connection never moves it into the file.
        probe = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
        try:
            _refuse_newer(path, probe.execute("PRAGMA user_version").fetchone()[0], migrations)
        finally:
            probe.close()


def _header(path: Path) -> tuple[int, int]:
    """Application id and layout in a file's header; (0, 0) where it is no database.

    The header may count pages that are not there: while another process writes them, and where one died in the middle
    of moving them out of the write-ahead log, which then still has them all. Whether they are missing is for whoever
    opens it to find out. Raises `sqlite3.Error`: it is damaged.
    """
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        db.execute("PRAGMA writable_schema = ON")  # or SQLite counts the pages first; nothing can be written here
        return db.execute("PRAGMA application_id").fetchone()[0], db.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_NOTADB:
            return 0, 0
        raise
    finally:
        db.close()


def make_private(path: Path) -> None:
    """Make a database's file, empty and for this user alone, where there is none: before SQLite sees it, so that no
    moment exists in which others may read it; -wal and -shm take its mode. Raises OSError: it cannot be written."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)) from None


def _refuse_newer(path: Path, version: int, migrations: Sized) -> None:
    if version > len(migrations):
        raise StoreError(
            f"{path} has version {version} and this program knows up to {len(migrations)}; it was left untouched: "
            "install the newer hermes again, or choose another home (HERMES_HOME)"
        )


def begin(db: sqlite3.Connection, limit: float, stopped: Callable[[], bool]) -> None:
    """Begin a writing transaction; while another process holds the file, try for `limit` seconds or until `stopped`.

    Raises:
        sqlite3.OperationalError: with SQLITE_BUSY after that.
    """
    until = time.monotonic() + limit
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or stopped() or time.monotonic() >= until:
                raise


def open_writer(
    path: Path,
    durability: Durability = "process",
    *,
    max_pages: int | None = None,
    migrations: tuple[Migration, ...] = MIGRATIONS,
) -> sqlite3.Connection:
    """Open (and make, with mode 0600, or bring up to date) the journal at `path` for the calling thread.

    `max_pages` bounds the size of the file in pages of 4 KB, to see how a full disk is borne.

    Raises:
        StoreError: the file is another program's, newer than this program, damaged, busy, or cannot grow.
        OperatorError: the folder cannot be made or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_foreign(path, migrations)
        make_private(path)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise OperatorError(
            f"cannot write in {path.parent} ({error.strerror or error}); make it writable for this user, or set "
            "HERMES_HOME to a folder that is"
        ) from error
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    db = sqlite3.connect(path, timeout=_POLL, isolation_level=None)
    try:
        _prepare(db, path, durability, migrations)
        if max_pages is not None:
            db.execute(f"PRAGMA max_page_count = {max_pages}")
    except (sqlite3.Error, OSError) as error:
        db.close()
        raise store_error(error, path) from error
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path, durability: Durability, migrations: tuple[Migration, ...]) -> None:
    db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
    db.execute("PRAGMA cache_size = -4096")
    begin(db, 10.0, lambda: False)
    try:
        # Looked at again under the lock: another process may have made or upgraded the file meanwhile.
        application = db.execute("PRAGMA application_id").fetchone()[0]
        if application == 0 and not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            # In the first transaction of all, before the write-ahead log, so that the header in the file is ours from
            # its first byte on.
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        elif application != APPLICATION_ID:
            raise StoreError(f"{path} belongs to another program; choose another home (HERMES_HOME)")
        layout = db.execute("PRAGMA user_version").fetchone()[0]
        _refuse_newer(path, layout, migrations)
        if 0 < layout < len(migrations):
            copy_aside(path, layout)
        migrate(db, migrations)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    until = time.monotonic() + 10.0
    while True:  # the change of mode does not wait by itself when another process opens the same new file
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(0.005)
            continue
        if mode != "wal":
            raise StoreError(
                f"the folder of {path} cannot hold a write-ahead log (mode {mode}); choose a home on a local disk"
            )
        return


def open_reader(path: Path) -> sqlite3.Connection:
    """Open the journal for reading only, for the calling thread."""
    db = sqlite3.connect(path, timeout=10.0, isolation_level=None)
    db.execute("PRAGMA query_only = ON")
    return db
