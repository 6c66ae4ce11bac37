"""The rows of the journal as values. Times are seconds since the epoch; bytes are encoded by whoever made them."""

from __future__ import annotations

import msgspec

__all__ = [
    "CallRow",
    "DeliveryRow",
    "EventRow",
    "HistoryRow",
    "InboxRow",
    "OwnerRow",
    "SegmentRow",
    "SessionRow",
    "StoreCounts",
    "TaskRow",
]


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class SessionRow(Row, frozen=True, kw_only=True, gc=False):
    """One session. Times are seconds since the epoch."""

    session_id: str
    root_task: str
    created_at: float
    updated_at: float
    source: str = "cli"
    title: str = ""
    cwd: str = ""
    model: str = ""


class TaskRow(Row, frozen=True, kw_only=True, gc=False):
    """One task as stored. `spec` is its encoded specification, `end` its encoded end.

    `call_key` ("position:index") and `child_index` name the parent's call that made it; with `parent_id` they are
    unique, so a repeated spawn finds the rows it made before. `state`: queued, running, suspended, or one of five ends.
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


class SegmentRow(Row, frozen=True, kw_only=True, gc=False):
    """A segment of a history: from `start` on, under this system prompt. Prompts are stored once by hash."""

    task_id: str
    segment: int
    start: int
    system: str
    nonce: str
    tools: bytes
    created_at: float


class HistoryRow(Row, frozen=True, kw_only=True, gc=False):
    """What a task goes on from: its last segment, the (position, encoded entry) of it, the calls of the newest reply
    that made any."""

    segment: SegmentRow
    entries: list[tuple[int, bytes]]
    calls: list[CallRow]


class CallRow(Row, frozen=True, kw_only=True, gc=False):
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


class InboxRow(Row, frozen=True, kw_only=True, gc=False):
    """A control message. `verb`: steer, follow_up, cancel, interrupt. `state`: queued, delivered, missed, refused."""

    receipt: str
    task_id: str
    verb: str
    text: str
    sender: str
    state: str
    created_at: float
    position: int | None = None


class DeliveryRow(Row, frozen=True, kw_only=True, gc=False):
    """The one delivery of a child's end. `consumed_by` is a call key or `notice:<position>`; None while pending.

    `shown_at` is when a person was shown a pending end outside its conversation; the conversation is still to be told.
    """

    child_id: str
    target_id: str
    created_at: float
    consumed_by: str | None = None
    shown_at: float | None = None


class EventRow(Row, frozen=True, kw_only=True, gc=False):
    """One kept event: `body` is the encoded envelope."""

    session_id: str
    task_id: str
    seq: int
    type: str
    at: float
    body: bytes


class OwnerRow(Row, frozen=True, kw_only=True, gc=False):
    """One start of a process that owns tasks. The lock `run/<owner_id>.lock` says whether it lives, never this row."""

    owner_id: str
    host: str
    pid: int
    started_at: float


class StoreCounts(Row, frozen=True, kw_only=True, gc=False):
    """How much a journal holds. `unseen` are ends that nobody was told of; `oldest` and `newest` use of a session."""

    sessions: int
    tasks: int
    unfinished: int
    unseen: int
    entries: int
    calls: int
    events: int
    oldest: float | None = None
    newest: float | None = None
