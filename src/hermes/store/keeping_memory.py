"""Keeping house in the journal in memory: the same deletions and reads as on disk, over its tables."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from hermes.store.ops import DeleteSession, ShowDelivery
from hermes.store.refusals import unfinished
from hermes.store.rows import SessionRow, StoreCounts, TaskRow
from hermes.store.tables import Tables

__all__ = ["counts", "delete", "show", "stale_sessions", "unseen"]


def _pending(tables: Tables, task_id: str) -> bool:
    row = tables.deliveries.get(task_id)
    return row is not None and row.consumed_by is None and row.shown_at is None


def _kept(tables: Tables, row: TaskRow) -> bool:
    return row.ended_at is None or _pending(tables, row.task_id)


def show(tables: Tables, op: ShowDelivery) -> None:
    """Note that a person was shown a pending end."""
    if _pending(tables, op.child_id):
        tables.put(tables.deliveries, op.child_id, replace(tables.deliveries[op.child_id], shown_at=op.at))


def delete(tables: Tables, op: DeleteSession) -> None:
    """Delete a session with everything it has. Raises StoreError as on disk."""
    found = [row for row in tables.tasks.values() if row.session_id == op.session_id]
    if not op.unfinished and any(_kept(tables, row) for row in found):
        raise unfinished(op)
    # Backwards, so that a roll-back puts the tasks back in the order of their creation.
    for row in reversed(found):
        task_id = row.task_id
        tables.drop(tables.tasks, task_id)
        if row.parent_id is not None and row.call_key is not None:
            tables.drop(tables.spawned, (row.parent_id, row.call_key, row.child_index))
        owned: tuple[dict[Any, Any], ...] = (tables.segments, tables.entries, tables.deliveries)
        for table in owned:
            tables.drop(table, task_id)
        for key in [key for key in tables.calls if key[0] == task_id]:
            tables.drop(tables.calls, key)
        for receipt in [receipt for receipt, item in tables.inbox.items() if item.task_id == task_id]:
            tables.drop(tables.inbox, receipt)
    tables.drop(tables.events, op.session_id)
    tables.drop(tables.sessions, op.session_id)
    used = {segment.system for segments in tables.segments.values() for segment in segments.values()}
    for text in [text for text in tables.prompts if text not in used]:
        tables.drop(tables.prompts, text)


def stale_sessions(tables: Tables, before: float) -> list[SessionRow]:
    """Sessions unused since `before` with nothing unfinished and no unseen end, oldest use first."""
    busy = {
        row.session_id
        for row in tables.tasks.values()
        if _kept(tables, row) or (row.ended_at is not None and row.ended_at >= before)
    }
    found = [row for row in tables.sessions.values() if row.updated_at < before and row.session_id not in busy]
    return sorted(found, key=lambda row: row.updated_at)


def unseen(tables: Tables, session_id: str | None) -> list[TaskRow]:
    """Ended tasks whose end nobody was told of, in order of creation."""
    return [
        row
        for row in tables.tasks.values()
        if row.ended_at is not None
        and _pending(tables, row.task_id)
        and (session_id is None or row.session_id == session_id)
    ]


def counts(tables: Tables) -> StoreCounts:
    """How much there is."""
    used = [row.updated_at for row in tables.sessions.values()]
    return StoreCounts(
        sessions=len(tables.sessions),
        tasks=len(tables.tasks),
        unfinished=sum(row.ended_at is None for row in tables.tasks.values()),
        unseen=len(unseen(tables, None)),
        entries=sum(len(found) for found in tables.entries.values()),
        calls=sum(len(found) for found in tables.calls.values()),
        events=sum(len(found) for found in tables.events.values()),
        oldest=min(used, default=None),
        newest=max(used, default=None),
    )
