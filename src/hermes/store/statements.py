"""Operations as SQL, and units applied to an open transaction.

`commit_units` first tries the fast path: the operations of all units grouped by statement, many rows at a time, and
each fence once. Grouping keeps the outcome of the given order (see `_grouped`). If anything is refused, everything is
rolled back and each unit is applied in order in a savepoint of its own, so that its error is its own. Encodes nothing
and knows neither threads nor the event loop.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import Any

import msgspec
from msgspec.structs import astuple

from hermes.core.codec import scrub_surrogates
from hermes.core.errors import StoreError
from hermes.store.deleting import DELETE, delete_sessions
from hermes.store.ops import (
    AddEntry,
    AddEvent,
    AddOwner,
    AddSession,
    AddTask,
    AdoptTasks,
    CallEnded,
    CallStarted,
    ConsumeDelivery,
    DeleteSession,
    EndTask,
    EventRow,
    Fence,
    InboxRow,
    MarkInbox,
    Op,
    OwnerRow,
    PutDelivery,
    PutInbox,
    PutSegment,
    ReopenTask,
    SessionRow,
    SetCallProcess,
    SetTaskSpec,
    SetTaskState,
    ShowDelivery,
    TaskRow,
    TouchSession,
    Unit,
)
from hermes.store.refusals import consumed, duplicate, lost, not_adopted, unfit
from hermes.store.wide import insert_wide, widened

__all__ = ["columns", "commit_units", "prompt_hash"]

_Params = tuple[Any, ...]


class _Step(msgspec.Struct, frozen=True):
    """How one kind of operation is written.

    `order` numbers the statements; of one table the inserts come first. `key` names the row that is touched, for tables
    with several statements; `first` is written before the operation itself; `must_change` says that a statement that
    changes no row is refused.
    """

    order: int
    sql: str
    params: Callable[[Any], _Params]
    table: int = -1
    key: Callable[[Any], Any] | None = None
    must_change: bool = False
    first: _Step | None = None


def columns(row: type[msgspec.Struct]) -> str:
    """The columns of a row struct, in the order of its fields."""
    return ", ".join(f'"{name}"' for name in row.__struct_fields__)


def _insert(table: str, row: type[msgspec.Struct]) -> str:
    marks = ", ".join("?" * len(row.__struct_fields__))
    return f"INSERT INTO {table} ({columns(row)}) VALUES ({marks})"


def prompt_hash(text: str) -> bytes:
    """The key of a system prompt (16 bytes)."""
    return hashlib.blake2b(scrub_surrogates(text).encode(), digest_size=16).digest()


def _row(op: Any) -> _Params:
    return astuple(op.row)


# A lone surrogate in what a person typed must not cost the unit: SQLite stores UTF-8 only.
def _session(op: AddSession) -> _Params:
    row = op.row
    return (*astuple(row)[:5], scrub_surrogates(row.title), scrub_surrogates(row.cwd), row.model)


def _touch(op: TouchSession) -> _Params:
    return (op.session_id, op.updated_at, None if op.title is None else scrub_surrogates(op.title), op.model)


def _task(op: AddTask) -> _Params:
    values = astuple(op.row)
    return (*values[:7], scrub_surrogates(op.row.goal), *values[8:])


def _inbox(op: PutInbox) -> _Params:
    values = astuple(op.row)
    return (*values[:3], scrub_surrogates(op.row.text), *values[4:])


def _prompt(op: PutSegment) -> _Params:
    return (prompt_hash(op.row.system), scrub_surrogates(op.row.system))


def _segment(op: PutSegment) -> _Params:
    row = op.row
    return (row.task_id, row.segment, row.start, prompt_hash(row.system), row.nonce, row.tools, row.created_at)


def _state(op: SetTaskState) -> _Params:
    return (op.task_id, op.state, op.started_at, op.attempt, None, None)


def _end(op: EndTask) -> _Params:
    return (op.task_id, op.state, None, None, op.ended_at, op.end)


def _call_ended(op: CallEnded) -> _Params:
    values = astuple(op)
    return (*values[:5], *values[4:])  # one that was never seen to start began when it ended


def _call_key(op: Any) -> Any:
    return (op.task_id, op.position, op.index)


# States and ends are one statement, so that their order among each other is kept whatever is grouped.
_UPDATE_TASK = (
    "UPDATE tasks SET state = ?2, started_at = coalesce(?3, started_at), attempt = coalesce(?4, attempt), "
    'ended_at = ?5, "end" = ?6 WHERE task_id = ?1 AND ended_at IS NULL'
)
_TOUCH = (
    "UPDATE sessions SET updated_at = max(updated_at, ?2), title = coalesce(?3, title), model = coalesce(?4, model) "
    "WHERE session_id = ?1"
)
_SEGMENT = (
    "INSERT INTO segments (task_id, segment, start, prompt, nonce, tools, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_CALL_STARTED = (
    "INSERT INTO calls (task_id, position, \"index\", name, state, started_at) VALUES (?, ?, ?, ?, 'started', ?) "
    "ON CONFLICT DO UPDATE SET started_at = excluded.started_at, pgid = NULL, process_started = NULL "
    "WHERE state = 'started'"
)
_CALL_PROCESS = 'UPDATE calls SET pgid = ?4, process_started = ?5 WHERE task_id = ?1 AND position = ?2 AND "index" = ?3'
_CALL_ENDED = (
    'INSERT INTO calls (task_id, position, "index", name, state, started_at, ended_at, result) '
    "VALUES (?, ?, ?, ?, 'ended', ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET state = 'ended', ended_at = excluded.ended_at, result = excluded.result "
    "WHERE state = 'started'"
)
_MARK = "UPDATE inbox SET state = ?2, position = ?3 WHERE receipt = ?1 AND state = 'queued'"
_DELIVERY = (
    "INSERT INTO deliveries (child_id, target_id, created_at, consumed_by, shown_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (child_id) DO NOTHING"
)
_CONSUME = "UPDATE deliveries SET consumed_by = ?2 WHERE child_id = ?1 AND (consumed_by IS NULL OR consumed_by = ?2)"
_SHOW = "UPDATE deliveries SET shown_at = ?2 WHERE child_id = ?1 AND consumed_by IS NULL AND shown_at IS NULL"
_ADOPT = "UPDATE tasks SET owner = ?3, epoch = epoch + 1 WHERE session_id = ?1 AND owner = ?2"
_REOPEN = (
    "UPDATE tasks SET state = 'suspended', ended_at = NULL, \"end\" = NULL, attempt = attempt + 1, "
    "spec = coalesce(?2, spec) "
    "WHERE task_id = ?1 AND ended_at IS NOT NULL"
)
_UNDELIVER = "DELETE FROM deliveries WHERE child_id = ?1"
_FENCE = "SELECT 1 FROM tasks WHERE task_id = ? AND owner = ? AND epoch = ?"

_SESSIONS, _TASKS, _CALLS, _INBOX, _DELIVERIES, _TABLES = range(6)

_STEPS: dict[type[Any], _Step] = {
    AddSession: _Step(0, _insert("sessions", SessionRow), _session, _SESSIONS, lambda op: op.row.session_id),
    TouchSession: _Step(1, _TOUCH, _touch, _SESSIONS, lambda op: op.session_id),
    AddTask: _Step(2, _insert("tasks", TaskRow), _task, _TASKS, lambda op: op.row.task_id),
    SetTaskState: _Step(3, _UPDATE_TASK, _state, _TASKS, lambda op: op.task_id),
    EndTask: _Step(3, _UPDATE_TASK, _end, _TASKS, lambda op: op.task_id),
    PutSegment: _Step(
        5, _SEGMENT, _segment, first=_Step(4, "INSERT OR IGNORE INTO prompts (hash, text) VALUES (?, ?)", _prompt)
    ),
    AddEntry: _Step(6, f"INSERT INTO entries ({columns(AddEntry)}) VALUES (?, ?, ?, ?, ?)", astuple),
    CallStarted: _Step(7, _CALL_STARTED, astuple, _CALLS, _call_key),
    SetCallProcess: _Step(8, _CALL_PROCESS, astuple, _CALLS, _call_key),
    CallEnded: _Step(9, _CALL_ENDED, _call_ended, _CALLS, _call_key),
    PutInbox: _Step(10, _insert("inbox", InboxRow), _inbox, _INBOX, lambda op: op.row.receipt),
    MarkInbox: _Step(11, _MARK, astuple, _INBOX, lambda op: op.receipt),
    PutDelivery: _Step(12, _DELIVERY, _row, _DELIVERIES, lambda op: op.row.child_id),
    ConsumeDelivery: _Step(13, _CONSUME, astuple, _DELIVERIES, lambda op: op.child_id, must_change=True),
    AddEvent: _Step(14, _insert("events", EventRow), _row),
    AddOwner: _Step(15, _insert("owners", OwnerRow), _row),
    AdoptTasks: _Step(16, _ADOPT, astuple, must_change=True),
    ReopenTask: _Step(18, _REOPEN, astuple, first=_Step(17, _UNDELIVER, lambda op: (op.task_id,))),
    ShowDelivery: _Step(19, _SHOW, astuple, _DELIVERIES, lambda op: op.child_id),
    DeleteSession: _Step(20, DELETE, lambda op: (op.session_id,)),
    SetTaskSpec: _Step(21, "UPDATE tasks SET spec = ?2 WHERE task_id = ?1", astuple),
}
_ADD_TASK = _STEPS[AddTask].order
_ALONE = frozenset(_STEPS[kind].order for kind in (AdoptTasks, ReopenTask, DeleteSession))
_ORDERED = sorted(
    {step.order: step for step in [*_STEPS.values(), *(s.first for s in _STEPS.values() if s.first)]}.items()
)

_WIDE = {order: widened(step.sql) for order, step in _ORDERED}
_FENCES = widened(
    "WITH fence (task_id, owner, epoch) AS (VALUES (?, ?, ?)) "
    "SELECT count(*) FROM fence JOIN tasks USING (task_id, owner, epoch)"
)

#: Errors that a value of the unit itself causes; every other error of SQLite means the file or the disk.
_OWN = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    OverflowError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
)


def _grouped(units: Sequence[Unit | EventRow]) -> list[list[_Params]] | None:
    """The parameters of all operations by statement, or None where grouping could change the outcome.

    Rows of different tables and different rows of one table do not see each other. So grouping is safe as long as no
    row is touched by a statement that runs earlier than one that touched it before, and no fence stands before the task
    that it names is made. Adoption, reopening and deletion touch rows they do not name, so they stand for themselves.
    """
    rows: list[list[_Params]] = [[] for _ in range(len(_ORDERED))]
    seen: list[dict[Any, int]] = [{} for _ in range(_TABLES)]
    fenced: set[str] = set()
    steps = _STEPS
    events = rows[_STEPS[AddEvent].order]
    for unit in units:
        if isinstance(unit, EventRow):
            events.append(astuple(unit))
            continue
        for op in unit.ops:
            step = steps[type(op)]
            order = step.order
            if step.key is not None:
                touched, key = seen[step.table], step.key(op)
                if touched.get(key, 0) > order or (order == _ADD_TASK and key in fenced):
                    return None
                touched[key] = order
            elif order in _ALONE:
                return None
            elif step.first is not None:
                rows[step.first.order].append(step.first.params(op))
            rows[order].append(step.params(op))
        for fence in unit.fences:
            fenced.add(fence.task_id)
    return rows


def _fences_hold(db: sqlite3.Connection, fences: Collection[Fence]) -> bool:
    left = [(fence.task_id, fence.owner, fence.epoch) for fence in fences]
    for width, sql in _FENCES:
        while len(left) >= width:
            some, left = left[:width], left[width:]
            if db.execute(sql, tuple(chain.from_iterable(some))).fetchone() != (width,):
                return False
    return all(db.execute(_FENCE, fence).fetchone() for fence in left)


def _apply_grouped(db: sqlite3.Connection, units: Sequence[Unit | EventRow]) -> bool:
    """Apply all units at once, between deletions that is; False if any of them is refused or the order matters."""
    try:
        for deletes, run in groupby(units, _is_deletion):
            if deletes:
                ops = [op for unit in run if isinstance(unit, Unit) for op in unit.ops if isinstance(op, DeleteSession)]
                delete_sessions(db, ops)
            elif not _apply_run(db, list(run)):
                return False
        return True
    except (*_OWN, StoreError):
        return False  # whose error it is comes out when each unit is applied by itself


def _is_deletion(unit: Unit | EventRow) -> bool:
    """Whether it deletes sessions and does nothing else. A batch run deletes as many as it begins."""
    return isinstance(unit, Unit) and not unit.fences and all(isinstance(op, DeleteSession) for op in unit.ops)


def _apply_run(db: sqlite3.Connection, units: Sequence[Unit | EventRow]) -> bool:
    groups = _grouped(units)
    if groups is None:
        return False
    for order, step in _ORDERED:
        rows = insert_wide(db, _WIDE[order], groups[order])
        if rows:
            changed = db.executemany(step.sql, rows).rowcount
            if step.must_change and changed < len(rows):
                return False
    return _fences_hold(db, {fence for unit in units if isinstance(unit, Unit) for fence in unit.fences})


def _apply_op(db: sqlite3.Connection, op: Op) -> None:
    try:
        step = _STEPS[type(op)]
        if isinstance(op, DeleteSession):
            delete_sessions(db, (op,))
            return
        if step.first is not None:
            db.execute(step.first.sql, step.first.params(op))
        changed = db.execute(step.sql, step.params(op)).rowcount
    except sqlite3.IntegrityError as error:
        unique = error.sqlite_errorcode in (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
        raise (duplicate(op) if unique else unfit(op, error)) from error
    except _OWN as error:
        raise unfit(op, error) from error
    if step.must_change and not changed:
        if isinstance(op, ConsumeDelivery):
            raise consumed(op)
        assert isinstance(op, AdoptTasks)
        raise not_adopted(op)


def _apply_unit(db: sqlite3.Connection, unit: Unit | EventRow) -> StoreError | None:
    """Apply one unit in a savepoint. Returns its own error, after which nothing of it is left."""
    if isinstance(unit, EventRow):
        unit = Unit(ops=(AddEvent(row=unit),))
    db.execute("SAVEPOINT unit")
    try:
        for op in unit.ops:
            _apply_op(db, op)
        # After the operations, as on the fast path: a unit may make the very task that its fence names.
        for fence in unit.fences:
            if not _fences_hold(db, (fence,)):
                raise lost(fence)
    except StoreError as error:
        db.execute("ROLLBACK TO unit")
        db.execute("RELEASE unit")
        return error
    db.execute("RELEASE unit")
    return None


def commit_units(
    db: sqlite3.Connection, units: Sequence[Unit | EventRow], begin: Callable[[sqlite3.Connection], None]
) -> dict[int, StoreError]:
    """Commit `units`, and events that stand by themselves, in one transaction that `begin` opens.

    Returns the error of each refused one by its number.

    Raises:
        sqlite3.Error: the file or the disk failed; nothing of the units is committed.
    """
    errors: dict[int, StoreError] = {}
    try:
        begin(db)
        if not _apply_grouped(db, units):
            db.execute("ROLLBACK")
            begin(db)
            for number, unit in enumerate(units):
                error = _apply_unit(db, unit)
                if error is not None:
                    errors[number] = error
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            # The first error is the one to tell; a roll-back that fails too changes nothing, an uncommitted
            # transaction is undone when the file is next opened.
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise
    return errors
