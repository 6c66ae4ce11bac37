"""What can be written to the journal, as values: a unit is a list of these, all or nothing.

Bytes come in encoded; the writer encodes nothing. Every operation on a task that exists carries a `Fence` in its unit:
owner and epoch must still be the task's, else the whole unit fails with `OwnershipLost`. `SqliteStore` and its twin
`MemoryStore` apply the same operations and pass the same tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from hermes.store.rows import (
    CallRow,
    DeliveryRow,
    EventRow,
    HistoryRow,
    InboxRow,
    OwnerRow,
    Row,
    SegmentRow,
    SessionRow,
    StoreCounts,
    TaskRow,
)

__all__ = [
    "AddEntry",
    "AddEvent",
    "AddOwner",
    "AddSession",
    "AddTask",
    "AdoptTasks",
    "CallEnded",
    "CallRow",
    "CallStarted",
    "ConsumeDelivery",
    "DeleteSession",
    "DeliveryRow",
    "EndTask",
    "EventRow",
    "Fence",
    "HistoryRow",
    "InboxRow",
    "MarkInbox",
    "Op",
    "OwnerRow",
    "PutDelivery",
    "PutInbox",
    "PutSegment",
    "ReopenTask",
    "SegmentRow",
    "SessionRow",
    "SetCallProcess",
    "SetTaskSpec",
    "SetTaskState",
    "ShowDelivery",
    "Store",
    "StoreCounts",
    "TaskRow",
    "Ticket",
    "TouchSession",
    "Unit",
]


class AddSession(Row, frozen=True, kw_only=True, gc=False):
    """Insert a session."""

    row: SessionRow


class TouchSession(Row, frozen=True, kw_only=True, gc=False):
    """Note the newest use of a session; `title` and `model` are set when not None."""

    session_id: str
    updated_at: float
    title: str | None = None
    model: str | None = None


class AddTask(Row, frozen=True, kw_only=True, gc=False):
    """Insert a task. A second row with the same (parent_id, call_key, child_index) fails the unit with StoreError."""

    row: TaskRow


class SetTaskState(Row, frozen=True, kw_only=True, gc=False):
    """Set `state` (and `started_at`, `attempt` when not None) of a task that has not ended; an ended one is left."""

    task_id: str
    state: str
    started_at: float | None = None
    attempt: int | None = None


class SetTaskSpec(Row, frozen=True, kw_only=True, gc=False):
    """Put another specification in the place of a task's; what already ran is not changed by it."""

    task_id: str
    spec: bytes


class EndTask(Row, frozen=True, kw_only=True, gc=False):
    """End a task. The first end wins: on a task that has ended this changes nothing (and is no error)."""

    task_id: str
    state: str
    ended_at: float
    end: bytes


class ReopenTask(Row, frozen=True, kw_only=True, gc=False):
    """Take back the end of a task that goes on: it is suspended again and its attempt counts one more. Its delivery is
    taken back too, so that its next end is told anew. `spec` replaces its specification when not None. A task that has
    not ended is left."""

    task_id: str
    spec: bytes | None = None


class PutSegment(Row, frozen=True, kw_only=True, gc=False):
    """Insert a segment (its prompt goes to the prompt table)."""

    row: SegmentRow


class AddEntry(Row, frozen=True, kw_only=True, gc=False):
    """Insert a history entry at a position that must be free."""

    task_id: str
    position: int
    kind: str
    at: float
    body: bytes


class CallStarted(Row, frozen=True, kw_only=True, gc=False):
    """Note that a call begins, before it does."""

    task_id: str
    position: int
    index: int
    name: str
    at: float


class SetCallProcess(Row, frozen=True, kw_only=True, gc=False):
    """Store the process group of a command and the start time of its leader."""

    task_id: str
    position: int
    index: int
    pgid: int
    process_started: str


class CallEnded(Row, frozen=True, kw_only=True, gc=False):
    """Store the result of a call (its row need not have been started)."""

    task_id: str
    position: int
    index: int
    name: str
    at: float
    result: bytes


class PutInbox(Row, frozen=True, kw_only=True, gc=False):
    """Insert a control message."""

    row: InboxRow


class MarkInbox(Row, frozen=True, kw_only=True, gc=False):
    """Change a queued control message to `state`; one that is no longer queued is left."""

    receipt: str
    state: str
    position: int | None = None


class PutDelivery(Row, frozen=True, kw_only=True, gc=False):
    """Insert the pending delivery of a child's end; a second one for the same child is ignored."""

    row: DeliveryRow


class ConsumeDelivery(Row, frozen=True, kw_only=True, gc=False):
    """Compare-and-set pending → consumed. Already consumed by somebody else: the unit fails with StoreError."""

    child_id: str
    by: str


class ShowDelivery(Row, frozen=True, kw_only=True, gc=False):
    """Note that a person was shown a pending end. Shown before, or none pending: nothing changes."""

    child_id: str
    at: float


class DeleteSession(Row, frozen=True, kw_only=True, gc=False):
    """Delete a session with its tasks and all they have. No such session: nothing changes.

    With a task that has not ended, or an end that nobody was told of, the unit fails with StoreError, unless
    `unfinished` says that they go too.
    """

    session_id: str
    unfinished: bool = False


class AddEvent(Row, frozen=True, kw_only=True, gc=False):
    """Keep an event."""

    row: EventRow


class AddOwner(Row, frozen=True, kw_only=True, gc=False):
    """Insert the row of a process, before the first task that it owns."""

    row: OwnerRow


class AdoptTasks(Row, frozen=True, kw_only=True, gc=False):
    """Take all tasks of a session that `from_owner` (proven gone) owns, ended ones included, and raise their epoch.

    None is left to take: the unit fails with OwnershipLost, somebody else was first.
    """

    session_id: str
    from_owner: str
    to_owner: str


Op = (
    AddSession
    | TouchSession
    | AddTask
    | SetTaskState
    | SetTaskSpec
    | EndTask
    | ReopenTask
    | PutSegment
    | AddEntry
    | CallStarted
    | SetCallProcess
    | CallEnded
    | PutInbox
    | MarkInbox
    | PutDelivery
    | ConsumeDelivery
    | ShowDelivery
    | DeleteSession
    | AddEvent
    | AddOwner
    | AdoptTasks
)


class Fence(Row, frozen=True, kw_only=True, gc=False):
    """Owner and epoch under which a task may be written."""

    task_id: str
    owner: str
    epoch: int


class Unit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Operations that stand or fall together, in order, and the fences that must hold. `urgent`: a person waits for
    what comes of it, so whoever waits for its outcome goes on before others."""

    ops: tuple[Op, ...]
    fences: tuple[Fence, ...] = ()
    urgent: bool = False


class Ticket(Protocol):
    """A unit on its way to the disk."""

    @property
    def done(self) -> bool:
        """True once the outcome is known."""

    async def wait(self) -> None:
        """Wait, shielded, for the outcome. Cancelled meanwhile: the outcome is awaited first, then the cancellation
        raised. Raises the unit's own error: StoreError, OwnershipLost, StoreBusy, StoreFull."""


class Store(Protocol):
    """The journal. `submit` belongs to the event loop's thread and never waits; reads run on a thread of their own.

    Nobody waits for room either: units are committed in order and a task waits for the commit of each reply, so
    that what is on its way is bounded by one turn of every running task.
    """

    @property
    def keeps(self) -> bool:
        """Whether anything that is handed over can be read again: what is not kept need not be encoded."""

    def submit(self, unit: Unit) -> Ticket:
        """Hand a unit to the writer. Units are committed in the order of submission."""

    def log(self, row: EventRow) -> None:
        """Hand an event to the writer, in its place among the units. Nobody can wait for it: a refusal is logged."""

    async def flush(self) -> None:
        """Wait until everything submitted so far is committed."""

    async def task(self, task_id: str) -> TaskRow | None: ...

    async def tasks(self, session_id: str) -> list[TaskRow]:
        """All tasks of a session, in order of creation."""

    async def find_tasks(self, prefix: str, limit: int = 20) -> list[TaskRow]:
        """Tasks whose id begins with `prefix`."""

    async def entries(self, task_id: str, start: int = 0) -> list[tuple[int, bytes]]:
        """(position, encoded entry) from `start` on."""

    async def segment(self, task_id: str) -> SegmentRow | None:
        """The last segment."""

    async def calls(self, task_id: str, position: int) -> list[CallRow]: ...

    async def histories(self, task_ids: Sequence[str]) -> list[HistoryRow | None]:
        """What tasks go on from, None for one without a segment: one read, however many they are."""

    async def inbox(self, task_id: str) -> list[InboxRow]: ...

    async def queued(self, owner: str) -> list[InboxRow]:
        """Queued control messages of all tasks that `owner` has (empty: that were let go), in order of arrival."""

    async def deliveries(self, target_id: str) -> list[DeliveryRow]:
        """Pending deliveries for a task."""

    async def session(self, session_id: str) -> SessionRow | None: ...

    async def sessions(self, limit: int = 50, source: str | None = None) -> list[SessionRow]:
        """Newest first."""

    async def events(self, session_id: str, after: int = 0, limit: int = 10_000) -> list[EventRow]:
        """Kept events of a session in order of `seq` greater than `after`."""

    async def events_of_type(self, type_: str, since: float = 0.0, session_id: str | None = None) -> list[EventRow]:
        """Kept events of one type from `since` on, of one session or of all, oldest first."""

    async def last_seq(self, session_id: str) -> int:
        """The greatest `seq` kept for a session, 0 if none: a process that resumes it counts on from there."""

    async def owner(self, owner_id: str) -> OwnerRow | None: ...

    async def stale_sessions(self, before: float, limit: int = 1_000) -> list[SessionRow]:
        """Sessions unused since `before` (seconds since the epoch) with nothing unfinished and no unseen end."""

    async def unseen(self, session_id: str | None = None, limit: int = 1_000) -> list[TaskRow]:
        """Ended tasks whose end nobody was told of, of one session or of all, in order of creation."""

    async def counts(self) -> StoreCounts:
        """How much there is."""

    async def close(self) -> None:
        """Drain, stop the writer and close, within 5 s, in every exit path."""
