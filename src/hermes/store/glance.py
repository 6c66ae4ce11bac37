"""A quick look at a journal for what a shell may complete: names alone, newest first, read in milliseconds.

Opens for reading, waits for nobody, changes no layout.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

__all__ = ["Named", "models_used", "recent_sessions", "recent_tasks"]


class Named(msgspec.Struct, frozen=True):
    """Something with a name; `about` says what it is."""

    name: str
    about: str = ""


def _read(path: Path, statement: str, *values: object) -> list[tuple[str, ...]]:
    """Rows of a journal; none where there is no journal. Raises `sqlite3.Error`."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.2)) as db:
        return db.execute(statement, values).fetchall()


def _begins(prefix: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\%_" else letter for letter in prefix) + "%"


def recent_tasks(path: Path, prefix: str, limit: int = 50) -> list[Named]:
    """Tasks whose id begins so, those that have not ended first. Raises `sqlite3.Error`."""
    rows = _read(
        path,
        "SELECT task_id, state || ': ' || substr(goal, 1, 60) FROM tasks WHERE task_id LIKE ? ESCAPE '\\' "
        "ORDER BY ended_at IS NOT NULL, n DESC LIMIT ?",
        _begins(prefix),
        limit,
    )
    return [Named(name, about) for name, about in rows]


def recent_sessions(path: Path, prefix: str, limit: int = 50) -> list[Named]:
    """Sessions whose id begins so, newest use first. Raises `sqlite3.Error`."""
    rows = _read(
        path,
        "SELECT session_id, substr(title, 1, 60) FROM sessions WHERE session_id LIKE ? ESCAPE '\\' "
        "ORDER BY updated_at DESC LIMIT ?",
        _begins(prefix),
        limit,
    )
    return [Named(name, about) for name, about in rows]


def models_used(path: Path, limit: int = 50) -> list[Named]:
    """The models of earlier sessions, newest use first. Raises `sqlite3.Error`."""
    rows = _read(path, "SELECT model, '' FROM sessions GROUP BY model ORDER BY max(updated_at) DESC LIMIT ?", limit)
    return [Named(name) for name, _ in rows if name]
