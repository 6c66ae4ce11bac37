"""What can be written to the journal, as values: a unit is a list of these, all or nothing.

Bytes come in encoded; the writer encodes nothing. Every operation on a task that exists carries a `Fence` in its unit:
owner and epoch must still be the task's, else the whole unit fails with `OwnershipLost`. `SqliteStore` and its twin
`MemoryStore` apply the same operations and pass the same tests.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

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
    "DeliveryRow",
    "EndTask",
    "EventRow",
    "Fence",
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
    "SetTaskState",
    "Store",
    "TaskRow",
    "Ticket",
    "TouchSession",
    "Unit",
]


class _Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class SessionRow(_Row, frozen=True, kw_only=True, gc=False):
    """One session. Times are seconds since the epoch."""

    session_id: str
    root_task: str
    created_at: float
    updated_at: float
    source: str = "cli"
    title: str = ""
    cwd: str = ""
    model: str = ""


class TaskRow(_Row, frozen=True, kw_only=True, gc=False):
    """One task as stored. `spec` is its encoded specification, `end` its encoded end.

    `call_key` ("position:index") and `child_index` name the parent's call that made it; with `parent_id` they are
    unique, so a repeated spawn finds the rows it made before. `state` is a core state of lifecycle.md.
    """

    task_id: str
    session_id: str
    root_id: str
    parent_id: str | None
    kind: str
    role: str
    depth: int
    goal: str
    state: str
    spec: bytes
    owner: str
    epoch: int
    call_key: str | None
    child_index: int
    group_id: str
    attempt: int
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    end: bytes | None = None


class SegmentRow(_Row, frozen=True, kw_only=True, gc=False):
    """A segment of a history: from `start` on, under this system prompt. Prompts are stored once by hash."""

    task_id: str
    segment: int
    start: int
    system: str
    nonce: str
    tools: bytes
    created_at: float


class CallRow(_Row, frozen=True, kw_only=True, gc=False):
    """One tool call. `state`: started or ended; `result` is the encoded ToolResult once ended."""

    task_id: str
    position: int
    index: int
    name: str
    state: str
    started_at: float
    ended_at: float | None = None
    result: bytes | None = None
    pgid: int | None = None
    process_started: str | None = None


class InboxRow(_Row, frozen=True, kw_only=True, gc=False):
    """A control message. `verb`: steer, follow_up, cancel, interrupt. `state`: queued, delivered, missed, refused."""

    receipt: str
    task_id: str
    verb: str
    text: str
    sender: str
    state: str
    created_at: float
    position: int | None = None


class DeliveryRow(_Row, frozen=True, kw_only=True, gc=False):
    """The one delivery of a child's end. `consumed_by` is a call key or `notice:<position>`; None while pending."""

    child_id: str
    target_id: str
    created_at: float
    consumed_by: str | None = None


class EventRow(_Row, frozen=True, kw_only=True, gc=False):
    """One kept event: `body` is the encoded envelope."""

    session_id: str
    task_id: str
    seq: int
    type: str
    at: float
    body: bytes


class OwnerRow(_Row, frozen=True, kw_only=True, gc=False):
    """One start of a process that owns tasks. The lock `run/<owner_id>.lock` says whether it lives, never this row."""

    owner_id: str
    host: str
    pid: int
    started_at: float


class AddSession(_Row, frozen=True, kw_only=True, gc=False):
    """Insert a session."""

    row: SessionRow


class TouchSession(_Row, frozen=True, kw_only=True, gc=False):
    """Note the newest use of a session; `title` and `model` are set when not None."""

    session_id: str
    updated_at: float
    title: str | None = None
    model: str | None = None


class AddTask(_Row, frozen=True, kw_only=True, gc=False):
    """Insert a task. A second row with the same (parent_id, call_key, child_index) fails the unit with StoreError."""

    row: TaskRow


class SetTaskState(_Row, frozen=True, kw_only=True, gc=False):
    """Set `state` (and `started_at`, `attempt` when not None) of a task that has not ended; an ended one is left."""

    task_id: str
    state: str
    started_at: float | None = None
    attempt: int | None = None


class EndTask(_Row, frozen=True, kw_only=True, gc=False):
    """End a task. The first end wins: on a task that has ended this changes nothing (and is no error)."""

    task_id: str
    state: str
    ended_at: float
    end: bytes


class ReopenTask(_Row, frozen=True, kw_only=True, gc=False):
    """Take back the end of a task that goes on: it is suspended again and its attempt counts one more. Its delivery is
    taken back too, so that its next end is told anew. A task that has not ended is left."""

    task_id: str


class PutSegment(_Row, frozen=True, kw_only=True, gc=False):
    """Insert a segment (its prompt goes to the prompt table)."""

    row: SegmentRow


class AddEntry(_Row, frozen=True, kw_only=True, gc=False):
    """Insert a history entry at a position that must be free."""

    task_id: str
    position: int
    kind: str
    at: float
    body: bytes


class CallStarted(_Row, frozen=True, kw_only=True, gc=False):
    """Note that a call begins, before it does."""

    task_id: str
    position: int
    index: int
    name: str
    at: float


class SetCallProcess(_Row, frozen=True, kw_only=True, gc=False):
    """Store the process group of a command and the start time of its leader."""

    task_id: str
    position: int
    index: int
    pgid: int
    process_started: str


class CallEnded(_Row, frozen=True, kw_only=True, gc=False):
    """Store the result of a call (its row need not have been started)."""

    task_id: str
    position: int
    index: int
    name: str
    at: float
    result: bytes


class PutInbox(_Row, frozen=True, kw_only=True, gc=False):
    """Insert a control message."""

    row: InboxRow


class MarkInbox(_Row, frozen=True, kw_only=True, gc=False):
    """Change a queued control message to `state`; one that is no longer queued is left."""

    receipt: str
    state: str
    position: int | None = None


class PutDelivery(_Row, frozen=True, kw_only=True, gc=False):
    """Insert the pending delivery of a child's end; a second one for the same child is ignored."""

    row: DeliveryRow


class ConsumeDelivery(_Row, frozen=True, kw_only=True, gc=False):
    """Compare-and-set pending → consumed. Already consumed by somebody else: the unit fails with StoreError."""

    child_id: str
    by: str


class AddEvent(_Row, frozen=True, kw_only=True, gc=False):
    """Keep an event."""

    row: EventRow


class AddOwner(_Row, frozen=True, kw_only=True, gc=False):
    """Insert the row of a process, before the first task that it owns."""

    row: OwnerRow


class AdoptTasks(_Row, frozen=True, kw_only=True, gc=False):
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
    | AddEvent
    | AddOwner
    | AdoptTasks
)


class Fence(_Row, frozen=True, kw_only=True, gc=False):
    """Owner and epoch under which a task may be written."""

    task_id: str
    owner: str
    epoch: int


class Unit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Operations that stand or fall together, in order, and the fences that must hold."""

    ops: tuple[Op, ...]
    fences: tuple[Fence, ...] = ()


class Ticket(Protocol):
    """A unit on its way to the disk."""

    @property
    def done(self) -> bool:
        """True once the outcome is known."""

    async def wait(self) -> None:
        """Wait, shielded, for the outcome. Cancelled meanwhile: the outcome is awaited first, then the cancellation
        raised. Raises the unit's own error: StoreError, OwnershipLost, StoreBusy, StoreFull."""


class Store(Protocol):
    """The journal. `submit` belongs to the event loop's thread and never waits; reads run on a thread of their own."""

    def submit(self, unit: Unit) -> Ticket:
        """Hand a unit to the writer. Units are committed in the order of submission."""

    async def settle(self) -> None:
        """Wait until the writer is below its high-water mark (backpressure)."""

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

    async def inbox(self, task_id: str) -> list[InboxRow]: ...

    async def deliveries(self, target_id: str) -> list[DeliveryRow]:
        """Pending deliveries for a task."""

    async def session(self, session_id: str) -> SessionRow | None: ...

    async def sessions(self, limit: int = 50, source: str | None = None) -> list[SessionRow]:
        """Newest first."""

    async def events(self, session_id: str, after: int = 0, limit: int = 10_000) -> list[EventRow]:
        """Kept events of a session in order of `seq` greater than `after`."""

    async def last_seq(self, session_id: str) -> int:
        """The greatest `seq` kept for a session, 0 if none: a process that resumes it counts on from there."""

    async def owner(self, owner_id: str) -> OwnerRow | None: ...

    async def close(self) -> None:
        """Drain, stop the writer and close, within 5 s, in every exit path."""
