"""Taking a session out of the database, inside the transaction of its unit. Touches no file but the database."""

from __future__ import annotations

import sqlite3

from hermes.store.ops import DeleteSession
from hermes.store.refusals import unfinished

__all__ = ["KEPT", "empty_session"]

#: Whether a task `t` has to stay: it has not ended, or nobody was told of its end.
KEPT = (
    "(t.ended_at IS NULL OR EXISTS (SELECT 1 FROM deliveries AS d WHERE d.child_id = t.task_id "
    "AND d.consumed_by IS NULL AND d.shown_at IS NULL))"
)
_TASKS = "(SELECT task_id FROM tasks WHERE session_id = ?1)"


def empty_session(db: sqlite3.Connection, op: DeleteSession) -> None:
    """Delete everything that belongs to a session but its own row.

    Raises:
        StoreError: something of it is unfinished or unseen, and `op` does not say that it goes too.
    """
    key = (op.session_id,)
    if not op.unfinished:
        if db.execute(f"SELECT 1 FROM tasks AS t WHERE t.session_id = ?1 AND {KEPT} LIMIT 1", key).fetchone():
            raise unfinished(op)
    # What was said is to be gone from the file, not only from its index.
    db.execute("PRAGMA secure_delete = ON")
    prompts = db.execute(f"SELECT DISTINCT prompt FROM segments WHERE task_id IN {_TASKS}", key).fetchall()
    for table in ("segments", "entries", "calls", "inbox"):
        db.execute(f"DELETE FROM {table} WHERE task_id IN {_TASKS}", key)
    db.execute(f"DELETE FROM deliveries WHERE child_id IN {_TASKS}", key)
    db.execute("DELETE FROM events WHERE session_id = ?1", key)
    db.execute("DELETE FROM tasks WHERE session_id = ?1", key)
    db.executemany(
        "DELETE FROM prompts WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM segments WHERE prompt = ?1)", prompts
    )
