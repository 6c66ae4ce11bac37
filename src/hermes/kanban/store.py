"""The database of one board: opening it, bringing it up to date, and transactions. One code for SQLite and PostgreSQL.

SQLite is a file of ours (`application_id` HERK) in WAL mode; every writing transaction begins IMMEDIATE, so that nobody
meets a lock in its middle. On PostgreSQL a board is a schema; changes to the structure of the board take one lock of
the board, claims and signs of life none, and time is the server's. Calls block: on an event loop they belong on a
thread. Knows no cards.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from hermes.core.clock import Clock, SystemClock
from hermes.core.errors import StoreError, StoreFull
from hermes.kanban import tables
from hermes.kanban.engines import APPLICATION_ID, Location, connect_postgres, connect_sqlite
from hermes.kanban.errors import BoardError
from hermes.store.copying import copy_aside
from hermes.store.database import Durability, store_error

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

_V = TypeVar("_V", bound=msgspec.Struct)
#: A row whose columns are known to whoever asked for them.
AnyRow: TypeAlias = sa.Row[*tuple[Any, ...]]


def _first(tx: Tx) -> None:
    tables.metadata.create_all(tx.connection)


def _notifications(tx: Tx) -> None:
    tables.notifications.create(tx.connection, checkfirst=True)


Migrations: TypeAlias = tuple[tuple[str, "Callable[[Tx], None]"], ...]
#: Steps from an older board to a newer one, by name; never changed after a release.
MIGRATIONS: Migrations = (("first", _first), ("notifications", _notifications))


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

    def __init__(
        self, location: Location, engine: sa.Engine, clock: Clock | None, migrations: Migrations = MIGRATIONS
    ) -> None:
        self.location = location
        self._migrations = migrations
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
        """Make the board's tables or bring them up to date; a file is copied beside itself before its layout changes.

        Raises:
            StoreError: the board is of a newer version, or there is no room for the copy.
        """
        steps = self._migrations
        with self.read() as tx:
            if self._version(tx) == len(steps):
                return
        with self.write() as tx:
            if self.is_postgres:
                tx.run(sa.schema.CreateSchema(self.location.schema, if_not_exists=True))
            known = self._version(tx)
            if 0 < known < len(steps) and self.location.path is not None:
                self._copy(self.location.path, known)
            for version, (name, step) in enumerate(steps[known:], start=known + 1):
                step(tx)
                tx.run(tables.migrations.insert().values(version=version, name=name, applied_at=tx.now))
            if not known:
                tx.run(tables.meta.insert().values(key="slug", value=self.location.slug))
            if not self.is_postgres and known < len(steps):
                tx.connection.exec_driver_sql(f"PRAGMA user_version = {len(steps)}")

    def _copy(self, path: Path, layout: int) -> None:
        """Keep what is committed; nobody else writes meanwhile, for the transaction is open."""
        try:
            copy_aside(path, layout)
        except sqlite3.Error as error:
            raise store_error(error, path, "board") from error
        except OSError as error:
            raise StoreError(
                f"{path} cannot be copied before its layout changes ({error.strerror}); it is as it was"
            ) from error

    def _version(self, tx: Tx) -> int:
        schema = self.location.schema if self.is_postgres else None
        if not sa.inspect(tx.connection).has_table("migrations", schema=schema):
            return 0
        known = int(tx.value(sa.select(sa.func.coalesce(sa.func.max(tables.migrations.c.version), 0))))
        if known > len(self._migrations):
            raise StoreError(
                f"the board {self.location} has version {known} and this program knows up to {len(self._migrations)}; "
                "it was left untouched: install the newer hermes again"
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
    location: Location,
    *,
    clock: Clock | None = None,
    durability: Durability = "process",
    max_pages: int | None = None,
    migrations: Migrations = MIGRATIONS,
) -> Database:
    """Open a board, made if it is not there.

    `clock` replaces the board's own (SQLite: the machine's, PostgreSQL: the server's). `max_pages` bounds a file in
    pages of 4 KB, to see how a full disk is borne; `migrations` are the steps to its layout.

    Raises:
        StoreError: another program's file, a newer version, damaged, held too long, unreachable, no room.
        OperatorError: the folder cannot be written, or the driver for PostgreSQL is not installed.
    """
    if location.url is not None:
        tables.prepare_postgres()
        engine = connect_postgres(location, location.url)
    else:
        assert location.path is not None
        engine = connect_sqlite(location.path, len(migrations), durability, max_pages)
    database = Database(location, engine, clock, migrations)
    try:
        database.migrate()
    except BaseException:
        database.close()
        raise
    return database


def values_of(kind: type[_V], rows: Sequence[AnyRow]) -> list[_V]:
    """Make values of rows whose columns stand in the order of the value's fields."""
    names = kind.__struct_fields__
    return [kind(**dict(zip(names, row, strict=True))) for row in rows]


def postgres_boards(url: str) -> list[str]:
    """Names of the boards in a PostgreSQL database. Raises `StoreError` where it cannot be reached."""
    location = Location(slug="default", url=url)
    tables_of = sa.table("tables", sa.column("table_schema"), sa.column("table_name"), schema="information_schema")
    with Database(location, connect_postgres(location, url), None) as database, database.read() as tx:
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
    with Database(location, connect_postgres(location, location.url), None) as database, database.write() as tx:
        if name is None:
            tx.run(sa.schema.DropSchema(location.schema, cascade=True))
        else:
            quote = tx.connection.dialect.identifier_preparer.quote
            tx.connection.exec_driver_sql(f"ALTER SCHEMA {quote(location.schema)} RENAME TO {quote(name)}")
