"""Taking sessions out of the database, inside the transaction of their units. Touches no file but the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from hermes.core.codec import encode_json
from hermes.store.ops import DeleteSession
from hermes.store.refusals import unfinished

__all__ = ["DELETE", "KEPT", "delete_sessions"]

#: Whether a task `t` has to stay: it has not ended, or nobody was told of its end.
KEPT = (
    "(t.ended_at IS NULL OR EXISTS (SELECT 1 FROM deliveries AS d WHERE d.child_id = t.task_id "
    "AND d.consumed_by IS NULL AND d.shown_at IS NULL))"
)
#: The sessions are one list in JSON: a statement for all of them, however many, since SQLite works without the
#: interpreter lock and has to win it back after each.
_SESSIONS = "(SELECT value FROM json_each(?1))"
_TASKS = f"(SELECT task_id FROM tasks WHERE session_id IN {_SESSIONS})"


#: Of sessions, in order.
_DELETIONS = (
    *(f"DELETE FROM {table} WHERE task_id IN {_TASKS}" for table in ("segments", "entries", "calls", "inbox")),
    f"DELETE FROM deliveries WHERE child_id IN {_TASKS}",
    f"DELETE FROM events WHERE session_id IN {_SESSIONS}",
    f"DELETE FROM tasks WHERE session_id IN {_SESSIONS}",
)
DELETE = "DELETE FROM sessions WHERE session_id = ?1"


def delete_sessions(db: sqlite3.Connection, ops: Sequence[DeleteSession]) -> None:
    """Delete sessions with everything that belongs to them.

    Raises:
        StoreError: something of one is unfinished or unseen, and its `op` does not say that it goes too.
    """
    for op in ops:
        if not op.unfinished:
            found = db.execute(f"SELECT 1 FROM tasks AS t WHERE t.session_id = ?1 AND {KEPT} LIMIT 1", (op.session_id,))
            if found.fetchone():
                raise unfinished(op)
    # What was said is to be gone from the file, not only from its index.
    db.execute("PRAGMA secure_delete = ON")
    sessions = (encode_json([op.session_id for op in ops]).decode(),)
    prompts = db.execute(f"SELECT DISTINCT prompt FROM segments WHERE task_id IN {_TASKS}", sessions).fetchall()
    for statement in _DELETIONS:
        db.execute(statement, sessions)
    db.executemany(
        "DELETE FROM prompts WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM segments WHERE prompt = ?1)", prompts
    )
    db.execute(f"DELETE FROM sessions WHERE session_id IN {_SESSIONS}", sessions)
