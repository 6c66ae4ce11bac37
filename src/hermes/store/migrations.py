"""The layout of the journal's database and how an older file becomes a newer one.

Each migration is a function with a name, listed in `MIGRATIONS`, never changed after a release; the names applied stand
in the table `migrations`, their number in `user_version`. `application_id` is `HERT` as four bytes: it tells our file
from every other SQLite file. Nothing goes backwards: a file of a newer version is refused before this is reached.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import msgspec

__all__ = ["APPLICATION_ID", "MIGRATIONS", "Migration", "migrate", "migration"]

#: The four bytes "HERT" at offset 68 of the file.
APPLICATION_ID = 0x48455254


class Migration(msgspec.Struct, frozen=True):
    """One step. `apply` runs inside a transaction and must not commit."""

    name: str
    apply: Callable[[sqlite3.Connection], None]


def migration(name: str) -> Callable[[Callable[[sqlite3.Connection], None]], Migration]:
    """Make a migration of a function."""

    def made(apply: Callable[[sqlite3.Connection], None]) -> Migration:
        return Migration(name, apply)

    return made


_JOURNAL = (
    """CREATE TABLE sessions (
        n INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE, root_task TEXT NOT NULL, created_at REAL NOT NULL,
        updated_at REAL NOT NULL, source TEXT NOT NULL, title TEXT NOT NULL, cwd TEXT NOT NULL, model TEXT NOT NULL
    )""",
    "CREATE INDEX sessions_newest ON sessions (updated_at)",
    """CREATE TABLE tasks (
        n INTEGER PRIMARY KEY, task_id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL, root_id TEXT NOT NULL,
        parent_id TEXT, kind TEXT NOT NULL, role TEXT NOT NULL, depth INTEGER NOT NULL, goal TEXT NOT NULL,
        state TEXT NOT NULL, spec BLOB NOT NULL, owner TEXT NOT NULL, epoch INTEGER NOT NULL, call_key TEXT,
        child_index INTEGER NOT NULL, group_id TEXT NOT NULL, attempt INTEGER NOT NULL, created_at REAL NOT NULL,
        started_at REAL, ended_at REAL, "end" BLOB, UNIQUE (parent_id, call_key, child_index)
    )""",
    "CREATE INDEX tasks_session ON tasks (session_id)",
    # The text of a system prompt is shared by all segments that have it: a thousand children, one row.
    "CREATE TABLE prompts (hash BLOB PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE segments (
        task_id TEXT NOT NULL, segment INTEGER NOT NULL, start INTEGER NOT NULL, prompt BLOB NOT NULL,
        nonce TEXT NOT NULL, tools BLOB NOT NULL, created_at REAL NOT NULL, PRIMARY KEY (task_id, segment)
    )""",
    """CREATE TABLE entries (
        task_id TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (task_id, position)
    )""",
    # Found by their keys only, so one tree each instead of a table and an index: a quarter less work for the writer.
    """CREATE TABLE calls (
        task_id TEXT NOT NULL, position INTEGER NOT NULL, "index" INTEGER NOT NULL, name TEXT NOT NULL,
        state TEXT NOT NULL, started_at REAL NOT NULL, ended_at REAL, result BLOB, pgid INTEGER, process_started TEXT,
        PRIMARY KEY (task_id, position, "index")
    ) WITHOUT ROWID""",
    """CREATE TABLE inbox (
        n INTEGER PRIMARY KEY, receipt TEXT NOT NULL UNIQUE, task_id TEXT NOT NULL, verb TEXT NOT NULL,
        text TEXT NOT NULL, sender TEXT NOT NULL, state TEXT NOT NULL, created_at REAL NOT NULL, position INTEGER
    )""",
    "CREATE INDEX inbox_task ON inbox (task_id)",
    """CREATE TABLE deliveries (
        n INTEGER PRIMARY KEY, child_id TEXT NOT NULL UNIQUE, target_id TEXT NOT NULL, created_at REAL NOT NULL,
        consumed_by TEXT
    )""",
    "CREATE INDEX deliveries_pending ON deliveries (target_id) WHERE consumed_by IS NULL",
    """CREATE TABLE events (
        session_id TEXT NOT NULL, seq INTEGER NOT NULL, task_id TEXT NOT NULL, type TEXT NOT NULL, at REAL NOT NULL,
        body BLOB NOT NULL, PRIMARY KEY (session_id, seq)
    ) WITHOUT ROWID""",
    """CREATE TABLE owners (
        owner_id TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, started_at REAL NOT NULL
    )""",
)


@migration("0001_journal")
def journal(db: sqlite3.Connection) -> None:
    """Sessions, tasks, histories, calls, inbox, deliveries, events, owners."""
    for statement in _JOURNAL:
        db.execute(statement)


@migration("0002_shown")
def shown(db: sqlite3.Connection) -> None:
    """When a person was shown an end that its conversation has not been told of."""
    db.execute("ALTER TABLE deliveries ADD COLUMN shown_at REAL")


@migration("0003_queued")
def queued(db: sqlite3.Connection) -> None:
    """Control messages that nobody took yet are found at once: every process looks for them twice a second."""
    db.execute("CREATE INDEX inbox_queued ON inbox (task_id) WHERE state = 'queued'")


MIGRATIONS: tuple[Migration, ...] = (journal, shown, queued)


def migrate(db: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> list[str]:
    """Apply what is missing, all of it in the transaction that the caller has open. Returns the names applied."""
    db.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied_at TEXT NOT NULL)")
    known = {name for (name,) in db.execute("SELECT name FROM migrations")}
    missing = [step for step in migrations if step.name not in known]
    for step in missing:
        step.apply(db)
        db.execute("INSERT INTO migrations VALUES (?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))", (step.name,))
    if missing:
        db.execute(f"PRAGMA user_version = {len(migrations)}")
    return [step.name for step in missing]
