"""Reads of the journal as functions of a connection; they run on the reader's thread and decode no bodies."""

from __future__ import annotations

import sqlite3
from typing import TypeVar

import msgspec

from hermes.core.codec import scrub_surrogates
from hermes.store.ops import (
    CallRow,
    DeliveryRow,
    EventRow,
    HistoryRow,
    InboxRow,
    OwnerRow,
    SegmentRow,
    SessionRow,
    TaskRow,
)
from hermes.store.statements import columns

__all__ = [
    "calls",
    "deliveries",
    "entries",
    "events",
    "events_of_type",
    "find_tasks",
    "history",
    "inbox",
    "last_seq",
    "owner",
    "queued",
    "rows",
    "segment",
    "session",
    "sessions",
    "task",
    "tasks",
]

R = TypeVar("R", bound=msgspec.Struct)


def rows(db: sqlite3.Connection, row: type[R], table: str, rest: str, *params: object) -> list[R]:
    """The rows of a table as values of `row`; `rest` is what follows the table's name."""
    names = row.__struct_fields__
    found = db.execute(f"SELECT {columns(row)} FROM {table} {rest}", params)
    return [row(**dict(zip(names, values, strict=True))) for values in found]


def _row(db: sqlite3.Connection, row: type[R], table: str, rest: str, *params: object) -> R | None:
    found = rows(db, row, table, rest, *params)
    return found[0] if found else None


def task(db: sqlite3.Connection, task_id: str) -> TaskRow | None:
    """One task."""
    return _row(db, TaskRow, "tasks", "WHERE task_id = ?", scrub_surrogates(task_id))


def tasks(db: sqlite3.Connection, session_id: str) -> list[TaskRow]:
    """All tasks of a session, in order of creation."""
    return rows(db, TaskRow, "tasks", "WHERE session_id = ? ORDER BY n", session_id)


def find_tasks(db: sqlite3.Connection, prefix: str, limit: int) -> list[TaskRow]:
    """Tasks whose id begins with `prefix`, in order of their ids."""
    prefix = scrub_surrogates(prefix)  # typed by a person
    rest = "WHERE task_id >= ? AND substr(task_id, 1, ?) = ? ORDER BY task_id LIMIT ?"
    return rows(db, TaskRow, "tasks", rest, prefix, len(prefix), prefix, limit)


def entries(db: sqlite3.Connection, task_id: str, start: int) -> list[tuple[int, bytes]]:
    """(position, encoded entry) from `start` on."""
    sql = "SELECT position, body FROM entries WHERE task_id = ? AND position >= ? ORDER BY position"
    return db.execute(sql, (task_id, start)).fetchall()


def segment(db: sqlite3.Connection, task_id: str, prompts: dict[bytes, str]) -> SegmentRow | None:
    """The last segment. `prompts` keeps the texts read before, so that a thousand children share one."""
    sql = (
        "SELECT segment, start, prompt, nonce, tools, created_at FROM segments WHERE task_id = ? "
        "ORDER BY segment DESC LIMIT 1"
    )
    found = db.execute(sql, (task_id,)).fetchone()
    if found is None:
        return None
    number, start, prompt, nonce, tools, created_at = found
    text = prompts.get(prompt)
    if text is None:
        text = db.execute("SELECT text FROM prompts WHERE hash = ?", (prompt,)).fetchone()[0]
        if len(prompts) >= 64:
            prompts.clear()
        prompts[prompt] = text
    return SegmentRow(
        task_id=task_id, segment=number, start=start, system=text, nonce=nonce, tools=tools, created_at=created_at
    )


def calls(db: sqlite3.Connection, task_id: str, position: int) -> list[CallRow]:
    """The calls of one assistant message, in the order of the calls."""
    return rows(db, CallRow, "calls", 'WHERE task_id = ? AND position = ? ORDER BY "index"', task_id, position)


def history(db: sqlite3.Connection, task_id: str, prompts: dict[bytes, str]) -> HistoryRow | None:
    """What a task goes on from, None without a segment."""
    last = segment(db, task_id, prompts)
    if last is None:
        return None
    newest = db.execute("SELECT max(position) FROM calls WHERE task_id = ?", (task_id,)).fetchone()[0]
    return HistoryRow(
        segment=last,
        entries=entries(db, task_id, last.start),
        calls=calls(db, task_id, newest) if newest is not None else [],
    )


def inbox(db: sqlite3.Connection, task_id: str) -> list[InboxRow]:
    """The control messages of a task, in order of arrival."""
    return rows(db, InboxRow, "inbox", "WHERE task_id = ? ORDER BY n", task_id)


def queued(db: sqlite3.Connection, owner: str) -> list[InboxRow]:
    """Queued control messages of the tasks of an owner, in order of arrival."""
    rest = (
        "AS i WHERE i.state = 'queued' AND EXISTS (SELECT 1 FROM tasks AS t WHERE t.task_id = i.task_id "
        "AND t.owner = ?) ORDER BY i.n"
    )
    return rows(db, InboxRow, "inbox", rest, owner)


def deliveries(db: sqlite3.Connection, target_id: str) -> list[DeliveryRow]:
    """Pending deliveries for a task, oldest first."""
    return rows(db, DeliveryRow, "deliveries", "WHERE target_id = ? AND consumed_by IS NULL ORDER BY n", target_id)


def session(db: sqlite3.Connection, session_id: str) -> SessionRow | None:
    """One session."""
    return _row(db, SessionRow, "sessions", "WHERE session_id = ?", scrub_surrogates(session_id))


def sessions(db: sqlite3.Connection, limit: int, source: str | None) -> list[SessionRow]:
    """Newest use first."""
    where, params = ("", ()) if source is None else ("WHERE source = ?", (source,))
    return rows(db, SessionRow, "sessions", f"{where} ORDER BY updated_at DESC, n DESC LIMIT ?", *params, limit)


def events(db: sqlite3.Connection, session_id: str, after: int, limit: int) -> list[EventRow]:
    """Kept events of a session in order of `seq`."""
    return rows(
        db, EventRow, "events", "WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?", session_id, after, limit
    )


def events_of_type(db: sqlite3.Connection, type_: str, since: float, session_id: str | None) -> list[EventRow]:
    """Kept events of one type from `since` on, of one session or of all, oldest first."""
    where, params = "WHERE type = ? AND at >= ?", (type_, since)
    if session_id is None:
        return rows(db, EventRow, "events", f"{where} ORDER BY at, session_id, seq", *params)
    return rows(db, EventRow, "events", f"{where} AND session_id = ? ORDER BY at, seq", *params, session_id)


def last_seq(db: sqlite3.Connection, session_id: str) -> int:
    """The greatest `seq` of a session, 0 if none."""
    sql = "SELECT coalesce(max(seq), 0) FROM events WHERE session_id = ?"
    return int(db.execute(sql, (session_id,)).fetchone()[0])


def owner(db: sqlite3.Connection, owner_id: str) -> OwnerRow | None:
    """One start of a process."""
    return _row(db, OwnerRow, "owners", "WHERE owner_id = ?", owner_id)
