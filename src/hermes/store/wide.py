"""Statements that take many rows at once. They know no table.

SQLite works without the interpreter lock and has to win it back after each statement: beside a busy loop two thousand
rows one by one took 400 ms, of which 30 ms were work.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

__all__ = ["insert_wide", "widened"]

#: Rows that one statement takes.
_WIDTHS = (64, 8)

#: The row of an insertion.
_VALUES = re.compile(r"(?<=VALUES )(\([^)]*\))")


def widened(sql: str) -> tuple[tuple[int, str], ...]:
    """The same insertion of many rows, by their number; nothing for what is no insertion. A query `… AS (VALUES (?))`
    widens likewise."""
    if not _VALUES.search(sql):
        return ()
    head, row, tail = _VALUES.split(sql)
    return tuple((width, f"{head}{', '.join([row] * width)}{tail}") for width in _WIDTHS)


def insert_wide(
    db: sqlite3.Connection, statements: Sequence[tuple[int, str]], rows: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Insert rows by `statements` of so many rows each; returns those that are left."""
    at = 0
    for width, sql in statements:
        while len(rows) - at >= width:
            db.execute(sql, tuple(chain.from_iterable(rows[at : at + width])))
            at += width
    return rows[at:] if at else rows
