"""Reads of the journal on disk for whoever keeps house: what is old, what nobody saw, how much there is."""

from __future__ import annotations

import sqlite3

from hermes.store.deleting import KEPT
from hermes.store.reading import rows
from hermes.store.rows import SessionRow, StoreCounts, TaskRow

__all__ = ["counts", "stale_sessions", "unseen"]

_PENDING = "SELECT child_id FROM deliveries WHERE consumed_by IS NULL AND shown_at IS NULL"


def stale_sessions(db: sqlite3.Connection, before: float, limit: int) -> list[SessionRow]:
    """Sessions unused since `before` with nothing unfinished and no unseen end, oldest use first."""
    rest = (
        "AS s WHERE updated_at < ?1 AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.session_id = s.session_id "
        f"AND (t.ended_at >= ?1 OR {KEPT})) ORDER BY updated_at, n LIMIT ?2"
    )
    return rows(db, SessionRow, "sessions", rest, before, limit)


def unseen(db: sqlite3.Connection, session_id: str | None, limit: int) -> list[TaskRow]:
    """Ended tasks whose end nobody was told of, in order of creation."""
    rest = (
        f"WHERE task_id IN ({_PENDING}) AND ended_at IS NOT NULL AND (?1 IS NULL OR session_id = ?1) "
        "ORDER BY n LIMIT ?2"
    )
    return rows(db, TaskRow, "tasks", rest, session_id, limit)


def counts(db: sqlite3.Connection) -> StoreCounts:
    """How much the journal holds."""

    def one(sql: str) -> int:
        return int(db.execute(f"SELECT count(*) FROM {sql}").fetchone()[0])

    oldest, newest = db.execute("SELECT min(updated_at), max(updated_at) FROM sessions").fetchone()
    return StoreCounts(
        sessions=one("sessions"),
        tasks=one("tasks"),
        unfinished=one("tasks WHERE ended_at IS NULL"),
        unseen=one(f"tasks WHERE task_id IN ({_PENDING}) AND ended_at IS NOT NULL"),
        entries=one("entries"),
        calls=one("calls"),
        events=one("events"),
        oldest=oldest,
        newest=newest,
    )
