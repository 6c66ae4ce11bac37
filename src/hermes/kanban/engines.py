"""Where a board is, and connections to it: a SQLite file of ours, or a PostgreSQL server. `store` has transactions."""

from __future__ import annotations

import hashlib
import random
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import NoSuchModuleError

from hermes.core.errors import OperatorError, StoreError, UsageError
from hermes.store.database import Durability, make_private, refuse_foreign, store_error

__all__ = ["APPLICATION_ID", "Location", "connect_postgres", "connect_sqlite"]

#: The four bytes "HERK" at offset 68 of the file.
APPLICATION_ID = 0x4845524B
#: Seconds that a writer waits for another one.
_BUSY_SECONDS = 30.0
#: Seconds after which an idle connection to a server is tried before it is used.
_TRUSTED_SECONDS = 5.0


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Where a board's rows are: a file, or a schema in a PostgreSQL database. Either `path` or `url` is set."""

    slug: str
    path: Path | None = None
    url: str | None = None

    def __str__(self) -> str:
        if self.url is None:
            return str(self.path)
        return f"{_server(self.url).render_as_string(hide_password=True)} (schema {self.schema})"

    @property
    def schema(self) -> str:
        """The schema of the board; a name longer than PostgreSQL's 63 bytes is cut and marked with its hash."""
        name = f"kanban_{self.slug}"
        return name if len(name) <= 63 else f"{name[:50]}_{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _server(url: str) -> sa.URL:
    try:
        found = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise UsageError("kanban.database_url is no URL: write postgresql://USER:PASSWORD@HOST/DATABASE") from None
    if found.drivername.partition("+")[0] not in ("postgres", "postgresql"):
        raise UsageError(
            f"kanban.database_url names {found.drivername}: a board is a SQLite file (leave the setting out) or "
            "postgresql://USER:PASSWORD@HOST/DATABASE"
        )
    return found.set(drivername="postgresql+psycopg")


def connect_postgres(location: Location, url: str) -> sa.Engine:
    try:
        engine = sa.create_engine(
            _server(url),
            pool_size=4,
            max_overflow=8,
            connect_args={"connect_timeout": 10, "application_name": "hermes"},
        )
    except (ImportError, NoSuchModuleError) as error:
        raise OperatorError(
            f"a board on PostgreSQL needs its driver ({error}): pip install 'hermes-tasktree[postgres]'"
        ) from error

    @sa.event.listens_for(engine, "connect")
    def choose(connection: Any, _record: object) -> None:
        # Naming the schema in every statement instead would cost more than running it.
        connection.execute(f"SET search_path TO {engine.dialect.identifier_preparer.quote(location.schema)}")
        connection.commit()

    @sa.event.listens_for(engine, "checkin")
    def note(_connection: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def look(connection: Any, record: Any, _proxy: object) -> None:
        # Asking before every transaction would cost a fifth of a claim; a server that restarted was idle for us too.
        if time.monotonic() - record.info.get("idle_since", time.monotonic()) < _TRUSTED_SECONDS:
            return
        try:
            connection.execute("SELECT 1")
            connection.rollback()
        except engine.dialect.loaded_dbapi.Error as error:
            raise sa.exc.DisconnectionError(str(error)) from error

    return engine


def connect_sqlite(path: Path, migrations: int, durability: Durability, max_pages: int | None) -> sa.Engine:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_foreign(path, range(migrations), application=APPLICATION_ID)
        make_private(path)
    except OSError as error:
        raise OperatorError(
            f"cannot write in {path.parent} ({error.strerror or error}); make it writable for this user, or set "
            "HERMES_KANBAN_HOME to a folder that is"
        ) from error
    except sqlite3.Error as error:
        raise store_error(error, path, "board") from error
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)), connect_args={"timeout": _BUSY_SECONDS}, pool_size=2
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions are begun below, in the mode they need
        try:
            _prepare(connection, path, durability, max_pages)
        except sqlite3.Error as error:
            raise store_error(error, path, "board") from error

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        db = connection.connection.driver_connection
        assert isinstance(db, sqlite3.Connection)
        if connection.get_execution_options().get("hermes_read"):
            db.execute("BEGIN")
            return
        try:
            _begin_writing(db)
        except sqlite3.Error as error:
            raise store_error(error, path, "board") from error

    return engine


def _begin_writing(db: sqlite3.Connection) -> None:
    """Begin, asking every few milliseconds while another writes.

    SQLite's own waiting grows to a tenth of a second between two tries, so that of several busy writers one may wait
    for seconds.
    """
    until = time.monotonic() + _BUSY_SECONDS
    db.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
            time.sleep(random.uniform(0.0005, 0.003))
    finally:
        db.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")


def _prepare(db: sqlite3.Connection, path: Path, durability: Durability, max_pages: int | None) -> None:
    db.execute("PRAGMA foreign_keys = ON")
    db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
    if max_pages is not None:
        db.execute(f"PRAGMA max_page_count = {max_pages}")
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        db.execute("BEGIN IMMEDIATE")
        # Looked at again under the lock: another process may have made the file meanwhile.
        if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreError(f"{path} belongs to another program and was left untouched; move the file away")
    until = time.monotonic() + _BUSY_SECONDS
    while True:  # the change of mode does not wait by itself when another process opens the same new file
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(0.005)
    if mode != "wal":
        raise StoreError(f"the folder of {path} cannot hold a write-ahead log (mode {mode}); use a local disk")
