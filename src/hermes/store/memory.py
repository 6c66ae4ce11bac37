"""The journal's twin in memory, for runs that leave nothing behind and for tests.

The same operations and refusals as on disk; a unit is applied while it is submitted, so its ticket is done at once.
Nothing survives the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import anyio.lowlevel
import msgspec
from msgspec.structs import replace

from hermes.core.codec import scrub_surrogates
from hermes.core.errors import StoreError
from hermes.store import keeping_memory as keeping
from hermes.store import reading_memory as reading
from hermes.store.commit import Committed
from hermes.store.ops import (
    AddEntry,
    AddEvent,
    AddOwner,
    AddSession,
    AddTask,
    AdoptTasks,
    CallEnded,
    CallRow,
    CallStarted,
    ConsumeDelivery,
    DeleteSession,
    DeliveryRow,
    EndTask,
    EventRow,
    Fence,
    HistoryRow,
    InboxRow,
    MarkInbox,
    OwnerRow,
    PutDelivery,
    PutInbox,
    PutSegment,
    ReopenTask,
    SegmentRow,
    SessionRow,
    SetCallProcess,
    SetTaskSpec,
    SetTaskState,
    ShowDelivery,
    StoreCounts,
    TaskRow,
    TouchSession,
    Unit,
)
from hermes.store.refusals import closed, consumed, fresh, lost, not_adopted
from hermes.store.tables import Tables

__all__ = ["MemoryStore"]

_log = logging.getLogger(__name__)

_Apply = Callable[["Tables", Any], None]


def _add_session(tables: Tables, op: AddSession) -> None:
    row = replace(op.row, title=scrub_surrogates(op.row.title), cwd=scrub_surrogates(op.row.cwd))
    tables.add(tables.sessions, row.session_id, row, op)


def _touch_session(tables: Tables, op: TouchSession) -> None:
    row = tables.sessions.get(op.session_id)
    if row is not None:
        row = replace(
            row,
            updated_at=max(row.updated_at, op.updated_at),
            title=row.title if op.title is None else scrub_surrogates(op.title),
            model=row.model if op.model is None else op.model,
        )
        tables.put(tables.sessions, op.session_id, row)


def _add_task(tables: Tables, op: AddTask) -> None:
    row = op.row
    tables.add(tables.tasks, row.task_id, replace(row, goal=scrub_surrogates(row.goal)), op)
    if row.parent_id is not None and row.call_key is not None:
        tables.add(tables.spawned, (row.parent_id, row.call_key, row.child_index), row.task_id, op)


def _set_state(tables: Tables, op: SetTaskState) -> None:
    row = tables.tasks.get(op.task_id)
    if row is not None and row.ended_at is None:
        row = replace(
            row,
            state=op.state,
            started_at=row.started_at if op.started_at is None else op.started_at,
            attempt=row.attempt if op.attempt is None else op.attempt,
        )
        tables.put(tables.tasks, op.task_id, row)


def _set_spec(tables: Tables, op: SetTaskSpec) -> None:
    row = tables.tasks.get(op.task_id)
    if row is not None:
        tables.put(tables.tasks, op.task_id, replace(row, spec=op.spec))


def _end_task(tables: Tables, op: EndTask) -> None:
    row = tables.tasks.get(op.task_id)
    if row is not None and row.ended_at is None:
        tables.put(tables.tasks, op.task_id, replace(row, state=op.state, ended_at=op.ended_at, end=op.end))


def _put_segment(tables: Tables, op: PutSegment) -> None:
    text = scrub_surrogates(op.row.system)
    row = replace(op.row, system=tables.prompts.setdefault(text, text))  # one copy for a thousand children
    tables.add(tables.segments.setdefault(row.task_id, {}), row.segment, row, op)


def _add_entry(tables: Tables, op: AddEntry) -> None:
    tables.add(tables.entries.setdefault(op.task_id, {}), op.position, op.body, op)


def _call_started(tables: Tables, op: CallStarted) -> None:
    calls = tables.calls.setdefault((op.task_id, op.position), {})
    row = calls.get(op.index)
    if row is None:
        row = CallRow(
            task_id=op.task_id, position=op.position, index=op.index, name=op.name, state="started", started_at=op.at
        )
    elif row.state == "started":
        row = replace(row, started_at=op.at, pgid=None, process_started=None)
    tables.put(calls, op.index, row)


def _call_process(tables: Tables, op: SetCallProcess) -> None:
    calls = tables.calls.get((op.task_id, op.position), {})
    row = calls.get(op.index)
    if row is not None:
        tables.put(calls, op.index, replace(row, pgid=op.pgid, process_started=op.process_started))


def _call_ended(tables: Tables, op: CallEnded) -> None:
    calls = tables.calls.setdefault((op.task_id, op.position), {})
    row = calls.get(op.index)
    if row is None:
        row = CallRow(
            task_id=op.task_id, position=op.position, index=op.index, name=op.name, state="started", started_at=op.at
        )
    if row.state == "started":
        tables.put(calls, op.index, replace(row, state="ended", ended_at=op.at, result=op.result))


def _put_inbox(tables: Tables, op: PutInbox) -> None:
    row = replace(op.row, text=scrub_surrogates(op.row.text))
    tables.add(tables.inbox, row.receipt, row, op)


def _mark_inbox(tables: Tables, op: MarkInbox) -> None:
    row = tables.inbox.get(op.receipt)
    if row is not None and row.state == "queued":
        tables.put(tables.inbox, op.receipt, replace(row, state=op.state, position=op.position))


def _put_delivery(tables: Tables, op: PutDelivery) -> None:
    if op.row.child_id not in tables.deliveries:
        tables.put(tables.deliveries, op.row.child_id, op.row)


def _consume(tables: Tables, op: ConsumeDelivery) -> None:
    row = tables.deliveries.get(op.child_id)
    if row is None or row.consumed_by not in (None, op.by):
        raise consumed(op)
    tables.put(tables.deliveries, op.child_id, replace(row, consumed_by=op.by))


def _add_event(tables: Tables, op: AddEvent) -> None:
    tables.add(tables.events.setdefault(op.row.session_id, {}), op.row.seq, op.row, op)


def _add_owner(tables: Tables, op: AddOwner) -> None:
    tables.add(tables.owners, op.row.owner_id, op.row, op)


def _adopt(tables: Tables, op: AdoptTasks) -> None:
    found = [row for row in tables.tasks.values() if row.session_id == op.session_id and row.owner == op.from_owner]
    if not found:
        raise not_adopted(op)
    for row in found:
        tables.put(tables.tasks, row.task_id, replace(row, owner=op.to_owner, epoch=row.epoch + 1))


def _reopen(tables: Tables, op: ReopenTask) -> None:
    row = tables.tasks.get(op.task_id)
    if row is None or row.ended_at is None:
        return
    tables.drop(tables.deliveries, op.task_id)
    tables.put(
        tables.tasks,
        op.task_id,
        replace(
            row,
            state="suspended",
            ended_at=None,
            end=None,
            attempt=row.attempt + 1,
            spec=row.spec if op.spec is None else op.spec,
        ),
    )


_APPLY: dict[type[msgspec.Struct], _Apply] = {
    AddSession: _add_session,
    TouchSession: _touch_session,
    AddTask: _add_task,
    SetTaskState: _set_state,
    SetTaskSpec: _set_spec,
    EndTask: _end_task,
    PutSegment: _put_segment,
    AddEntry: _add_entry,
    CallStarted: _call_started,
    SetCallProcess: _call_process,
    CallEnded: _call_ended,
    PutInbox: _put_inbox,
    MarkInbox: _mark_inbox,
    PutDelivery: _put_delivery,
    ConsumeDelivery: _consume,
    AddEvent: _add_event,
    AddOwner: _add_owner,
    AdoptTasks: _adopt,
    ShowDelivery: keeping.show,
    DeleteSession: keeping.delete,
    ReopenTask: _reopen,
}


class MemoryStore:
    """A `Store` without a disk. With `keep=False` it accepts everything and keeps nothing: reads find nothing."""

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self._tables = Tables()
        self._closed: StoreError | None = None

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        return self._keep

    def submit(self, unit: Unit) -> Committed:
        """Apply a unit now, all or nothing. Never raises: the ticket tells."""
        if self._closed is not None:
            return Committed(None, self._closed)
        if not self._keep:
            return Committed(None)
        tables = self._tables
        try:
            for op in unit.ops:
                _APPLY[type(op)](tables, op)
            for fence in unit.fences:
                if not self._holds(fence):
                    raise lost(fence)
        except StoreError as error:
            tables.roll_back()
            return Committed(None, error)
        tables.undo.clear()
        return Committed(None)

    def log(self, row: EventRow) -> None:
        """Keep an event; a refusal is logged."""
        if not self._keep or self._closed is not None:
            return
        tables = self._tables
        try:
            _add_event(tables, AddEvent(row=row))
        except StoreError as error:
            tables.roll_back()
            _log.warning("a record that nobody waits for was refused: %s", error)
        tables.undo.clear()

    def _holds(self, fence: Fence) -> bool:
        row = self._tables.tasks.get(fence.task_id)
        return row is not None and row.owner == fence.owner and row.epoch == fence.epoch

    async def flush(self) -> None:
        """Give others a turn; there is never anything to wait for."""
        await self._turn()

    async def _turn(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self._closed is not None:
            raise fresh(self._closed) from self._closed

    async def task(self, task_id: str) -> TaskRow | None:
        """One task."""
        await self._turn()
        return self._tables.tasks.get(task_id)

    async def tasks(self, session_id: str) -> list[TaskRow]:
        """All tasks of a session, in order of creation."""
        await self._turn()
        return [row for row in self._tables.tasks.values() if row.session_id == session_id]

    async def find_tasks(self, prefix: str, limit: int = 20) -> list[TaskRow]:
        """Tasks whose id begins with `prefix`, in order of their ids."""
        await self._turn()
        return reading.find_tasks(self._tables, prefix, limit)

    async def entries(self, task_id: str, start: int = 0) -> list[tuple[int, bytes]]:
        """(position, encoded entry) from `start` on."""
        await self._turn()
        return reading.entries(self._tables, task_id, start)

    async def segment(self, task_id: str) -> SegmentRow | None:
        """The last segment."""
        await self._turn()
        return reading.segment(self._tables, task_id)

    async def calls(self, task_id: str, position: int) -> list[CallRow]:
        """The calls of one assistant message, in the order of the calls."""
        await self._turn()
        return reading.calls(self._tables, task_id, position)

    async def histories(self, task_ids: Sequence[str]) -> list[HistoryRow | None]:
        """What tasks go on from."""
        await self._turn()
        return [reading.history(self._tables, one) for one in task_ids]

    async def inbox(self, task_id: str) -> list[InboxRow]:
        """The control messages of a task, in order of arrival."""
        await self._turn()
        return [row for row in self._tables.inbox.values() if row.task_id == task_id]

    async def queued(self, owner: str) -> list[InboxRow]:
        """Queued control messages of the tasks of an owner, in order of arrival."""
        await self._turn()
        tables = self._tables
        waiting = [row for row in tables.inbox.values() if row.state == "queued"]
        return [row for row in waiting if (task := tables.tasks.get(row.task_id)) is not None and task.owner == owner]

    async def deliveries(self, target_id: str) -> list[DeliveryRow]:
        """Pending deliveries for a task, oldest first."""
        await self._turn()
        found = self._tables.deliveries.values()
        return [row for row in found if row.target_id == target_id and row.consumed_by is None]

    async def session(self, session_id: str) -> SessionRow | None:
        """One session."""
        await self._turn()
        return self._tables.sessions.get(session_id)

    async def sessions(self, limit: int = 50, source: str | None = None) -> list[SessionRow]:
        """Newest use first."""
        await self._turn()
        found = [row for row in self._tables.sessions.values() if source is None or row.source == source]
        return sorted(reversed(found), key=lambda row: -row.updated_at)[:limit]

    async def events(self, session_id: str, after: int = 0, limit: int = 10_000) -> list[EventRow]:
        """Kept events of a session in order of `seq` greater than `after`."""
        await self._turn()
        found = self._tables.events.get(session_id, {})
        return [found[seq] for seq in sorted(seq for seq in found if seq > after)[:limit]]

    async def events_of_type(self, type_: str, since: float = 0.0, session_id: str | None = None) -> list[EventRow]:
        """Kept events of one type from `since` on, of one session or of all, oldest first."""
        await self._turn()
        sessions = self._tables.events
        found = [sessions.get(session_id, {})] if session_id is not None else sessions.values()
        rows = [row for events in found for row in events.values() if row.type == type_ and row.at >= since]
        return sorted(rows, key=lambda row: (row.at, row.session_id, row.seq))

    async def last_seq(self, session_id: str) -> int:
        """The greatest `seq` kept for a session, 0 if none."""
        await self._turn()
        return max(self._tables.events.get(session_id, {}), default=0)

    async def owner(self, owner_id: str) -> OwnerRow | None:
        """One start of a process that owned tasks."""
        await self._turn()
        return self._tables.owners.get(owner_id)

    async def stale_sessions(self, before: float, limit: int = 1_000) -> list[SessionRow]:
        """Sessions unused since `before` with nothing unfinished and no unseen end, oldest use first."""
        await self._turn()
        return keeping.stale_sessions(self._tables, before)[:limit]

    async def unseen(self, session_id: str | None = None, limit: int = 1_000) -> list[TaskRow]:
        """Ended tasks whose end nobody was told of, in order of creation."""
        await self._turn()
        return keeping.unseen(self._tables, session_id)[:limit]

    async def counts(self) -> StoreCounts:
        """How much there is."""
        await self._turn()
        return keeping.counts(self._tables)

    async def close(self) -> None:
        """Take nothing any more. May be called again."""
        self._closed = closed("in memory")
