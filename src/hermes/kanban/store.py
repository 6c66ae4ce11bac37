"""The database of one board: opening it, bringing it up to date, and transactions. One code for SQLite and PostgreSQL.

SQLite is a file of ours (`application_id` HERK) in WAL mode; every writing transaction begins IMMEDIATE, so that nobody
meets a lock in its middle. On PostgreSQL a board is a schema; changes to the structure of the board take one lock of
the board, claims and signs of life none, and time is the server's. Calls block: on an event loop they belong on a
thread. Knows no cards.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, NoSuchModuleError

from hermes.core.clock import Clock, SystemClock
from hermes.core.errors import OperatorError, StoreError, StoreFull, UsageError
from hermes.kanban import tables
from hermes.kanban.errors import BoardError
from hermes.store.database import Durability, refuse_foreign, store_error

__all__ = [
    "APPLICATION_ID",
    "AnyRow",
    "Database",
    "Location",
    "Tx",
    "open_database",
    "postgres_boards",
    "rename_schema",
    "values_of",
]

#: The four bytes "HERK" at offset 68 of the file.
APPLICATION_ID = 0x4845524B
#: Seconds that a writer waits for another one.
_BUSY_SECONDS = 30.0
#: Seconds after which an idle connection to a server is tried before it is used.
_TRUSTED_SECONDS = 5.0
_V = TypeVar("_V", bound=msgspec.Struct)
#: A row whose columns are known to whoever asked for them.
AnyRow: TypeAlias = sa.Row[*tuple[Any, ...]]


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


def _first(tx: Tx) -> None:
    tables.metadata.create_all(tx.connection)


#: Steps from an older board to a newer one, by name; never changed after a release.
MIGRATIONS: tuple[tuple[str, Callable[[Tx], None]], ...] = (("first", _first),)


#: The clock of the server, now and not when the transaction began.
SERVER_NOW = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
_EVENT = tables.events.insert()
_Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Tx:
    """One open transaction. `known_now` is its moment once it is known; a statement may bring it (`SERVER_NOW`)."""

    def __init__(self, connection: sa.Connection, now: float | None = None) -> None:
        self.connection = connection
        self.known_now = now

    @property
    def now(self) -> float:
        """The board's clock, seconds since the epoch: one moment for the whole transaction."""
        if self.known_now is None:
            self.known_now = float(self.connection.execute(sa.select(SERVER_NOW)).scalar_one())
        return self.known_now

    def rows(self, statement: sa.Executable, parameters: _Parameters | None = None) -> Sequence[AnyRow]:
        """All rows."""
        return self.connection.execute(statement, parameters).all()

    def row(self, statement: sa.Executable, parameters: _Parameters | None = None) -> AnyRow | None:
        """The first row, or None."""
        return self.connection.execute(statement, parameters).first()

    def value(self, statement: sa.Executable, parameters: _Parameters | None = None) -> Any:
        """The first column of the first row, or None."""
        return self.connection.execute(statement, parameters).scalar()

    def run(self, statement: sa.Executable, parameters: _Parameters | None = None) -> int:
        """Execute, for each mapping of a sequence, and return the rows changed."""
        return int(self.connection.execute(statement, parameters).rowcount)

    def event(self, kind: str, author: str, card_id: str | None, run_id: str | None = None, /, **payload: Any) -> None:
        """Write down a change."""
        self.events(kind, author, [(card_id, run_id, payload)])

    def events(self, kind: str, author: str, each: Sequence[tuple[str | None, str | None, Mapping[str, Any]]]) -> None:
        """Write down the same kind of change of several cards: (card, run, payload)."""
        rows = [
            {
                "card_id": card_id,
                "run_id": run_id,
                "kind": kind,
                "author": author,
                "payload": {key: value for key, value in payload.items() if value is not None},
                "created_at": self.now,
            }
            for card_id, run_id, payload in each
        ]
        if rows:
            self.connection.execute(_EVENT, rows if len(rows) > 1 else rows[0])


class Database:
    """An open board database. `close` it, or use it as a context; may be used from several threads.

    Every error of the database leaves as a `StoreError` with the board's place.
    """

    def __init__(self, location: Location, engine: sa.Engine, clock: Clock | None) -> None:
        self.location = location
        self._engine = engine
        self._clock = clock if clock is not None or location.url is not None else SystemClock()
        self._lock = int.from_bytes(hashlib.sha256(location.schema.encode()).digest()[:8], "big", signed=True)

    @property
    def is_postgres(self) -> bool:
        """Whether several hosts may share it."""
        return self.location.url is not None

    def _tx(self, connection: sa.Connection, now: float | None = None) -> Tx:
        return Tx(connection, self._clock.now() if self._clock is not None else now)

    @contextmanager
    def read(self) -> Iterator[Tx]:
        """A transaction that only reads: one state of the board throughout its statements on SQLite."""
        with self._faults(), self._engine.connect() as connection:
            yield self._tx(connection.execution_options(hermes_read=True))

    @contextmanager
    def write(self, *, alone: bool = True) -> Iterator[Tx]:
        """A writing transaction; `alone` in the board but for claims and signs of life (SQLite: alone in any case).

        An error rolls it back, except a `BoardError` that says `keep`.
        """
        with self._faults(), self._engine.connect() as connection:
            kept: BoardError | None = None
            with connection.begin():
                now: float | None = None
                if alone and self.is_postgres:
                    lock = sa.select(sa.func.pg_advisory_xact_lock(self._lock).label("taken")).subquery()
                    now = float(connection.execute(sa.select(SERVER_NOW, lock.c.taken)).scalar_one())
                try:
                    yield self._tx(connection, now)
                except BoardError as refusal:
                    if not refusal.keep:
                        raise
                    kept = refusal
            if kept is not None:
                raise kept

    def migrate(self) -> None:
        """Make the board's tables or bring them up to date.

        Raises:
            StoreError: the board is of a newer version.
        """
        with self.read() as tx:
            if self._version(tx) == len(MIGRATIONS):
                return
        with self.write() as tx:
            if self.is_postgres:
                tx.run(sa.schema.CreateSchema(self.location.schema, if_not_exists=True))
            known = self._version(tx)
            for version, (name, step) in enumerate(MIGRATIONS[known:], start=known + 1):
                step(tx)
                tx.run(tables.migrations.insert().values(version=version, name=name, applied_at=tx.now))
            if not known:
                tx.run(tables.meta.insert().values(key="slug", value=self.location.slug))
            if not self.is_postgres and known < len(MIGRATIONS):
                tx.connection.exec_driver_sql(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _version(self, tx: Tx) -> int:
        schema = self.location.schema if self.is_postgres else None
        if not sa.inspect(tx.connection).has_table("migrations", schema=schema):
            return 0
        known = int(tx.value(sa.select(sa.func.coalesce(sa.func.max(tables.migrations.c.version), 0))))
        if known > len(MIGRATIONS):
            raise StoreError(
                f"the board {self.location} has version {known} and this program knows up to {len(MIGRATIONS)}; it was "
                "left untouched: install the newer hermes again"
            )
        return known

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._fault(error) from error

    def _fault(self, error: DBAPIError) -> Exception:
        original = error.orig
        if isinstance(original, sqlite3.Error) and self.location.path is not None:
            return store_error(original, self.location.path, "board")
        state = getattr(original, "sqlstate", None)
        if state == "53100":
            return StoreFull(f"the disk of the board {self.location} is full ({original}); free some space")
        if state is None or state[:2] in ("08", "28", "3D", "53", "57"):
            reason = " ".join(str(original).split())
            return StoreError(
                f"the board {self.location} cannot be reached ({reason}); check the server and kanban.database_url"
            )
        return StoreError(f"the board {self.location} cannot be used ({' '.join(str(original).split())})")

    def close(self) -> None:
        """Close every connection. May be called again."""
        self._engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_database(
    location: Location, *, clock: Clock | None = None, durability: Durability = "process", max_pages: int | None = None
) -> Database:
    """Open a board, made if it is not there.

    `clock` replaces the board's own (SQLite: the machine's, PostgreSQL: the server's). `max_pages` bounds a file in
    pages of 4 KB, to see how a full disk is borne.

    Raises:
        StoreError: another program's file, a newer version, damaged, held too long, unreachable, no room.
        OperatorError: the folder cannot be written, or the driver for PostgreSQL is not installed.
    """
    if location.url is not None:
        engine = _postgres(location, location.url)
    else:
        assert location.path is not None
        engine = _sqlite(location.path, durability, max_pages)
    database = Database(location, engine, clock)
    try:
        database.migrate()
    except BaseException:
        database.close()
        raise
    return database


def _postgres(location: Location, url: str) -> sa.Engine:
    try:
        engine = sa.create_engine(
            _server(url),
            pool_size=4,
            max_overflow=8,
            connect_args={"connect_timeout": 10, "application_name": "hermes"},
            execution_options={"schema_translate_map": {None: location.schema}},
        )
    except (ImportError, NoSuchModuleError) as error:
        raise OperatorError(
            f"a board on PostgreSQL needs its driver ({error}): pip install 'hermes-tasktree[postgres]'"
        ) from error

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


def _sqlite(path: Path, durability: Durability, max_pages: int | None) -> sa.Engine:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_foreign(path, MIGRATIONS, application=APPLICATION_ID)
        # Before SQLite sees it, so that no moment exists in which others may read it; -wal and -shm take its mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
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
        reading = connection.get_execution_options().get("hermes_read")
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


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


def values_of(kind: type[_V], rows: Sequence[AnyRow]) -> list[_V]:
    """Make values of rows whose columns stand in the order of the value's fields."""
    names = kind.__struct_fields__
    return [kind(**dict(zip(names, row, strict=True))) for row in rows]


def postgres_boards(url: str) -> list[str]:
    """Names of the boards in a PostgreSQL database. Raises `StoreError` where it cannot be reached."""
    location = Location(slug="default", url=url)
    tables_of = sa.table("tables", sa.column("table_schema"), sa.column("table_name"), schema="information_schema")
    with Database(location, _postgres(location, url), None) as database, database.read() as tx:
        named = sa.select(tables_of.c.table_schema).where(tables_of.c.table_name == "meta")
        names = tx.rows(named.where(tables_of.c.table_schema.startswith("kanban_", autoescape=True)))
        found = []
        for (schema,) in names:
            meta = tables.meta.to_metadata(sa.MetaData(), schema=schema)
            slug = tx.value(sa.select(meta.c.value).where(meta.c.key == "slug"))
            if slug is not None and Location(slug=slug, url=url).schema == schema:
                found.append(str(slug))
        return sorted(found)


def rename_schema(location: Location, name: str | None) -> None:
    """Put the rows of a board in PostgreSQL away under another name, or drop them (None)."""
    assert location.url is not None
    with Database(location, _postgres(location, location.url), None) as database, database.write() as tx:
        if name is None:
            tx.run(sa.schema.DropSchema(location.schema, cascade=True))
        else:
            quote = tx.connection.dialect.identifier_preparer.quote
            tx.connection.exec_driver_sql(f"ALTER SCHEMA {quote(location.schema)} RENAME TO {quote(name)}")
