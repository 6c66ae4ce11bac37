"""Reads of the tables in memory as functions of them: the twins of those of the same name in `reading.py`."""

from __future__ import annotations

from hermes.store.rows import CallRow, HistoryRow, SegmentRow, TaskRow
from hermes.store.tables import Tables

__all__ = ["calls", "entries", "find_tasks", "history", "segment"]


def find_tasks(tables: Tables, prefix: str, limit: int) -> list[TaskRow]:
    """Tasks whose id begins with `prefix`, in order of their ids."""
    found = sorted(task_id for task_id in tables.tasks if task_id.startswith(prefix))
    return [tables.tasks[task_id] for task_id in found[:limit]]


def entries(tables: Tables, task_id: str, start: int) -> list[tuple[int, bytes]]:
    """(position, encoded entry) from `start` on."""
    found = tables.entries.get(task_id, {})
    return sorted((position, body) for position, body in found.items() if position >= start)


def segment(tables: Tables, task_id: str) -> SegmentRow | None:
    """The last segment."""
    found = tables.segments.get(task_id)
    return found[max(found)] if found else None


def calls(tables: Tables, task_id: str, position: int) -> list[CallRow]:
    """The calls of one assistant message, in the order of the calls."""
    found = tables.calls.get((task_id, position), {})
    return [found[index] for index in sorted(found)]


def history(tables: Tables, task_id: str) -> HistoryRow | None:
    """What a task goes on from, None without a segment."""
    last = segment(tables, task_id)
    if last is None:
        return None
    positions = sorted(tables.entries.get(task_id, {}), reverse=True)
    newest = next((position for position in positions if (task_id, position) in tables.calls), -1)
    return HistoryRow(segment=last, entries=entries(tables, task_id, last.start), calls=calls(tables, task_id, newest))
