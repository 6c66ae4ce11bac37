"""Copying the cards of another program's board (`kanban.db`) into ours. The other file is never opened in place.

It is copied first, with its write-ahead log, and the copy is read: opening even for reading could leave files beside
the original. What is understood is copied: cards, links, comments, ended attempts. A card that a worker of the other
program holds becomes ready, since its worker is not ours. What is not understood is reported and left out.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import sqlalchemy as sa

from hermes.core.codec import decode_json
from hermes.core.errors import UsageError
from hermes.kanban import tables as t
from hermes.kanban.board import Board
from hermes.kanban.card import BLOCK_KINDS, LinkKind, WorkspaceKind
from hermes.kanban.creating import name_of, pinned_home
from hermes.kanban.errors import BoardError
from hermes.kanban.linking import add_link, hold_back
from hermes.kanban.moves import OUTCOMES, STATUSES
from hermes.kanban.store import Tx

__all__ = ["Imported", "import_foreign"]

_NEEDS: LinkKind = "needs"
#: Columns of their cards that ours have under the same name and meaning, with what is taken where nothing stands.
_SAME: Mapping[str, Any] = {
    "title": "", "body": "", "priority": 0, "created_by": "import", "workspace_path": None, "branch_name": None,
    "tenant": None, "result": None, "max_runtime_seconds": None, "max_retries": None, "model_override": None,
    "provider_override": None, "reasoning_effort": None, "goal_max_turns": None, "session_id": None,
    "scheduled_at": None, "started_at": None, "completed_at": None, "last_failure_error": None,
    "idempotency_key": None,
}  # fmt: skip


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """How much was copied, and sentences about what was not. `known` counts cards that this board had already."""

    cards: int
    known: int
    links: int
    comments: int
    runs: int
    notes: tuple[str, ...]


def import_foreign(board: Board, path: Path, *, author: str) -> Imported:
    """Copy the cards of `path` that this board does not have; ids stay. All or nothing.

    Raises:
        UsageError: there is no such file, or it is no board.
    """
    if not path.is_file():
        raise UsageError(f"{path} is no file")
    with tempfile.TemporaryDirectory(prefix="hermes-import-") as name:
        copy = Path(name) / "kanban.db"
        shutil.copyfile(path, copy)
        wal = path.with_name(path.name + "-wal")
        if wal.is_file():
            shutil.copyfile(wal, copy.with_name("kanban.db-wal"))
        try:
            db = sqlite3.connect(copy)
            db.row_factory = sqlite3.Row
            try:
                return _copy(board, db, path, author)
            finally:
                db.close()
        except sqlite3.DatabaseError as error:
            raise UsageError(
                f"{path} cannot be read as a board ({error}); if its program is writing just now, try again"
            ) from error


def _table(db: sqlite3.Connection, name: str) -> list[dict[str, Any]]:
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)).fetchone():
        return []
    return [dict(row) for row in db.execute(f'SELECT * FROM "{name}" ORDER BY rowid')]


def _copy(board: Board, db: sqlite3.Connection, path: Path, author: str) -> Imported:
    cards = _table(db, "tasks")
    if not cards and not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'tasks'").fetchone():
        raise UsageError(f"{path} has no table of cards (tasks); it is no board that is known here")
    notes: list[str] = []
    with board.database.write() as tx:
        had = {str(row[0]) for row in tx.rows(sa.select(t.cards.c.id))}
        keys = {str(row[0]) for row in tx.rows(sa.select(t.cards.c.idempotency_key)) if row[0]}
        new: list[str] = []
        for row in cards:
            if str(row.get("id")) in had:
                continue
            values = _card(row, board, notes, keys)
            if values is not None:
                tx.run(t.cards.insert(), {**values, "created_at": values["created_at"] or tx.now, "updated_at": tx.now})
                tx.event("created", author, values["id"], None, title=values["title"], imported=str(path))
                new.append(values["id"])
        fresh = set(new)
        links = _links(tx, db, fresh, fresh | had, author, notes)
        comments = _comments(tx, db, fresh)
        runs = _runs(tx, db, fresh, notes)
        for card_id in new:
            hold_back(tx, author, card_id)
    others = [
        str(row[0])
        for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        if row[0] not in ("tasks", "task_links", "task_comments", "task_runs", "task_events")
    ]
    if others:
        notes.append(f"tables that were not copied: {', '.join(sorted(others))}")
    known = sum(1 for row in cards if str(row.get("id")) in had)
    return Imported(cards=len(new), known=known, links=links, comments=comments, runs=runs, notes=tuple(notes))


def _card(row: dict[str, Any], board: Board, notes: list[str], keys: set[str]) -> dict[str, Any] | None:
    card_id, status = str(row.get("id") or ""), str(row.get("status") or "")
    if not card_id or not str(row.get("title") or "").strip():
        notes.append(f"a card without {'title' if card_id else 'id'} was left out ({card_id or 'no id'})")
        return None
    if status not in STATUSES:
        notes.append(f"{card_id} is {status!r}, which is no state here: it is in triage now")
        status = "triage"
    if status == "running":
        notes.append(f"{card_id} was held by a worker of the other program: it is ready now")
        status = "ready"
    values = {name: row.get(name) if row.get(name) is not None else default for name, default in _SAME.items()}
    if values["idempotency_key"] in keys:
        values["idempotency_key"] = None
    elif values["idempotency_key"]:
        keys.add(values["idempotency_key"])
    kind = row.get("workspace_kind") or "scratch"
    if kind not in get_args(WorkspaceKind):
        notes.append(f"{card_id} has the workspace {kind!r}, which is unknown here: it has scratch now")
        kind = "scratch"
    assignee = name_of(row.get("assignee"))
    block = row.get("block_kind")
    return {
        **values,
        "id": card_id,
        "status": status,
        "assignee": assignee,
        "workspace_kind": kind,
        "created_at": row.get("created_at"),
        "skills": _json(row.get("skills"), []),
        "goal_mode": bool(row.get("goal_mode")),
        "acceptance": row.get("completion_contract"),
        "block_kind": block if block in BLOCK_KINDS else None,
        "block_recurrences": int(row.get("block_recurrences") or 0),
        "consecutive_failures": int(row.get("consecutive_failures") or 0),
        "attempts": 0,
        "check_failures": 0,
        "step": "review" if status == "review" else "work",
        "home_id": pinned_home(assignee, board.here),
    }


def _json(text: Any, default: Any) -> Any:
    try:
        found = decode_json(text) if isinstance(text, str | bytes) and text else default
    except msgspec.DecodeError:
        return default
    return found if isinstance(found, type(default)) else default


def _links(tx: Tx, db: sqlite3.Connection, fresh: set[str], known: set[str], author: str, notes: list[str]) -> int:
    made = 0
    for row in _table(db, "task_links"):
        parent, child = str(row.get("parent_id")), str(row.get("child_id"))
        if parent not in known or child not in known or not fresh & {parent, child}:
            continue
        try:
            add_link(tx, author, parent, child, _NEEDS)
            made += 1
        except BoardError as refused:
            notes.append(f"a link was left out: {refused}")
    return made


def _comments(tx: Tx, db: sqlite3.Connection, fresh: set[str]) -> int:
    rows = [
        {
            "card_id": str(row["task_id"]),
            "author": str(row.get("author") or "unknown"),
            "body": str(row.get("body") or ""),
            "created_at": float(row.get("created_at") or tx.now),
        }
        for row in _table(db, "task_comments")
        if str(row.get("task_id")) in fresh
    ]
    if rows:
        tx.run(t.comments.insert(), rows)
    return len(rows)


def _runs(tx: Tx, db: sqlite3.Connection, fresh: set[str], notes: list[str]) -> int:
    count: dict[str, int] = {}
    for row in _table(db, "task_runs"):
        card_id = str(row.get("task_id"))
        if card_id not in fresh:
            continue
        count[card_id] = attempt = count.get(card_id, 0) + 1
        outcome = row.get("outcome")
        if outcome not in OUTCOMES:
            if outcome:
                notes.append(
                    f"an attempt at {card_id} ended {outcome!r}, which is unknown here: it is given as reclaimed"
                )
            outcome = "reclaimed"
        began = float(row.get("started_at") or tx.now)
        ended = float(row.get("ended_at") or began)
        values = {
            "id": f"r_{card_id[2:]}_{attempt}", "card_id": card_id, "attempt": attempt, "profile": row.get("profile"),
            "step": "work", "manual": True, "token": "", "host_id": "", "home_id": "", "boot_id": "",
            "process_started": "", "started_at": began, "ended_at": ended, "exited_at": ended, "outcome": outcome,
            "summary": row.get("summary"), "metadata_": _json(row.get("metadata"), {}) or None,
            "error": row.get("error"), "counted": False,
        }  # fmt: skip
        tx.run(t.runs.insert(), values)
    for card_id, attempts in count.items():
        tx.run(t.cards.update().where(t.cards.c.id == card_id).values(attempts=attempts))
    return sum(count.values())
