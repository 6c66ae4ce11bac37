"""The tables of the journal in memory: rows by key, with an undo for the unit under way. Refuses only what is there."""

from __future__ import annotations

from typing import Any

from hermes.store.ops import CallRow, DeliveryRow, EventRow, InboxRow, Op, OwnerRow, SegmentRow, SessionRow, TaskRow
from hermes.store.refusals import duplicate

__all__ = ["Tables"]

_MISSING: Any = object()


class Tables:
    """Rows by key, and what must be put back if the unit under way is refused."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionRow] = {}
        self.tasks: dict[str, TaskRow] = {}
        self.spawned: dict[tuple[str, str, int], str] = {}
        self.prompts: dict[str, str] = {}
        self.segments: dict[str, dict[int, SegmentRow]] = {}
        self.entries: dict[str, dict[int, bytes]] = {}
        self.calls: dict[tuple[str, int], dict[int, CallRow]] = {}
        self.inbox: dict[str, InboxRow] = {}
        self.deliveries: dict[str, DeliveryRow] = {}
        self.events: dict[str, dict[int, EventRow]] = {}
        self.owners: dict[str, OwnerRow] = {}
        self.undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[Any, Any], key: Any, row: Any) -> None:
        """Set a row; remembered for the roll-back."""
        self.undo.append((table, key, table.get(key, _MISSING)))
        table[key] = row

    def add(self, table: dict[Any, Any], key: Any, row: Any, op: Op) -> None:
        """Set a row whose key must be free. Raises StoreError."""
        if key in table:
            raise duplicate(op)
        self.put(table, key, row)

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """Take a row out, if there is one; remembered for the roll-back."""
        if key in table:
            self.undo.append((table, key, table.pop(key)))

    def roll_back(self) -> None:
        """Put everything back that was set since `undo` was empty."""
        while self.undo:
            table, key, row = self.undo.pop()
            if row is _MISSING:
                del table[key]
            else:
                table[key] = row
