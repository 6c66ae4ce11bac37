"""The one closed union of events. Every view is a fold over it; names never change after a release.

An event says what happened to one task. `Envelope` adds who and when; the supervisor stamps it. On the wire an
envelope is one flat JSON object a line (see `codec.encode_envelope`): `schema`, `seq`, `at`, `session_id`, `task_id`,
`parent_id`, `type`, then the fields of the type. Fields are only ever added within a schema number.

`EPHEMERAL` types exist for whoever watches and are not kept in the log.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hermes.core.messages import Entry, Usage

__all__ = ["EPHEMERAL", "EVENT_TYPES", "SCHEMA", "Envelope", "Event"]

#: Number of the wire schema.
SCHEMA = 1


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=False):
    pass


class TaskQueued(_Event, frozen=True, kw_only=True, tag="task.queued"):
    """A task exists and waits for its turn. `position` is its place in the queue, 1 is next."""

    kind: str
    goal: str
    depth: int
    role: str = "leaf"
    model: str = ""
    toolsets: tuple[str, ...] = ()
    position: int = 0
    group: str = ""
    index: int = 0
    count: int = 1
    label: str = ""


class TaskStarted(_Event, frozen=True, kw_only=True, tag="task.started"):
    """A task got its running slot; `attempt` counts from 1."""

    attempt: int = 1
    model: str = ""


class TaskPhase(_Event, frozen=True, kw_only=True, tag="task.phase"):
    """What a running task is doing where no other event says so: building, children, idle. That a turn, a call, a wait
    for the provider or for a person began says it as well. `slept` are seconds for which the whole process stood still
    just before (a closed laptop, SIGSTOP); they count for no limit. These are kept, and that a conversation rests."""

    phase: str
    detail: str = ""
    slept: float = 0.0


class TaskSuspended(_Event, frozen=True, kw_only=True, tag="task.suspended"):
    """The task's process went away or stopped on purpose; it can be resumed."""

    reason: str


class TaskAdopted(_Event, frozen=True, kw_only=True, tag="task.adopted"):
    """A task was taken up by another process."""

    epoch: int


class TaskEnded(_Event, frozen=True, kw_only=True, tag="task.ended"):
    """A task ended, once and for ever."""

    state: str
    status: str
    exit_reason: str
    summary: str = ""
    error: str = ""
    elapsed: float = 0.0
    usage: Usage = Usage()
    api_calls: int = 0
    truncated: bool = False
    report_path: str = ""


class TurnStarted(_Event, frozen=True, kw_only=True, tag="turn.started"):
    """A model call begins. `turn` counts from 1 within the task; `input_estimate` is tokens."""

    turn: int
    model: str
    input_estimate: int = 0
    purpose: str = "main"


class TurnEnded(_Event, frozen=True, kw_only=True, tag="turn.ended"):
    """A model call is over, its own usage and the seconds it took. `purpose`: main, summary, compaction. `error` says
    why it brought nothing. `unfinished_children` are ids of children that still worked when a conversation answered."""

    turn: int
    model: str
    usage: Usage
    duration: float
    calls: int = 0
    purpose: str = "main"
    error: str = ""
    unfinished_children: tuple[str, ...] = ()


class EntryAdded(_Event, frozen=True, kw_only=True, tag="entry.added"):
    """An entry joined the history at `position`."""

    position: int
    entry: Entry


class TextDeltaEvent(_Event, frozen=True, kw_only=True, tag="text.delta"):
    """More visible text (only for watched tasks)."""

    text: str


class ThinkingDeltaEvent(_Event, frozen=True, kw_only=True, tag="thinking.delta"):
    """More reasoning (only for watched tasks)."""

    text: str


class StreamRestarted(_Event, frozen=True, kw_only=True, tag="stream.restarted"):
    """The partial reply shown so far is void."""

    attempt: int
    reason: str


class ToolStarted(_Event, frozen=True, kw_only=True, tag="tool.started"):
    """A call begins. `preview` is one short line for people."""

    position: int
    index: int
    name: str
    preview: str = ""
    args_bytes: int = 0


class ToolProgress(_Event, frozen=True, kw_only=True, tag="tool.progress"):
    """A running call made progress; `text` is the newest output."""

    position: int
    index: int
    name: str
    text: str = ""


class ToolEnded(_Event, frozen=True, kw_only=True, tag="tool.ended"):
    """A call was answered. A non-zero exit code alone leaves `success` true."""

    position: int
    index: int
    name: str
    is_error: bool
    success: bool
    duration: float
    result_bytes: int = 0
    preview: str = ""
    files_read: tuple[str, ...] = ()
    files_written: tuple[str, ...] = ()


class ToolAbandoned(_Event, frozen=True, kw_only=True, tag="tool.abandoned"):
    """A blocking call was left behind; its thread may still run."""

    position: int
    index: int
    name: str
    still_running: int


class ControlReceived(_Event, frozen=True, kw_only=True, tag="control.received"):
    """A steer, follow-up, cancel or interrupt was stored."""

    receipt: str
    verb: str
    text: str = ""
    sender: str = ""


class ControlDelivered(_Event, frozen=True, kw_only=True, tag="control.delivered"):
    """The control message took effect, at `position` of the history where it is an entry."""

    receipt: str
    verb: str
    position: int | None = None


class ControlMissed(_Event, frozen=True, kw_only=True, tag="control.missed"):
    """The task ended first; the text stands in its result."""

    receipt: str
    verb: str
    text: str = ""


class ControlRefused(_Event, frozen=True, kw_only=True, tag="control.refused"):
    """The control message could not be accepted."""

    receipt: str
    verb: str
    reason: str


class NoticeDelivered(_Event, frozen=True, kw_only=True, tag="notice.delivered"):
    """Ends of children entered this task's history."""

    tasks: tuple[str, ...]
    position: int


class RetryWaiting(_Event, frozen=True, kw_only=True, tag="retry.waiting"):
    """A failed model call will be asked again after `seconds`. With `reason` suspended it did not fail: nothing ran for
    a while (sleep, SIGSTOP), its connection was dropped, and no attempt is used up."""

    attempt: int
    reason: str
    seconds: float
    message: str = ""


class QuotaWaiting(_Event, frozen=True, kw_only=True, tag="quota.waiting"):
    """A model call waits about `seconds` for the provider's limit; 0: the wait is over."""

    seconds: float
    provider: str = ""


class CredentialCooled(_Event, frozen=True, kw_only=True, tag="credential.cooled"):
    """A key is left alone for a while. `label` never holds the key."""

    provider: str
    label: str
    seconds: float
    reason: str


class FallbackUsed(_Event, frozen=True, kw_only=True, tag="fallback.used"):
    """Another model answers in place of the configured one."""

    model: str
    reason: str


class BudgetWarned(_Event, frozen=True, kw_only=True, tag="budget.warned"):
    """80 % of a limit are used."""

    kind: str
    used: float
    limit: float
    scope: str


class BudgetReached(_Event, frozen=True, kw_only=True, tag="budget.reached"):
    """A limit is used up."""

    kind: str
    limit: float
    scope: str


class ContextCompacted(_Event, frozen=True, kw_only=True, tag="context.compacted"):
    """A new segment of the history began."""

    segment: int
    before_tokens: int
    after_tokens: int


class ApprovalAsked(_Event, frozen=True, kw_only=True, tag="approval.asked"):
    """A person is asked whether a call may run; with `choices` (maybe none) it is what the model wants to know."""

    request: str
    tool: str
    what: str
    reason: str
    path: tuple[str, ...] = ()
    choices: tuple[str, ...] | None = None


class ApprovalAnswered(_Event, frozen=True, kw_only=True, tag="approval.answered"):
    """A person, a rule or a policy decided. `by`: user, rule, policy, yolo, timeout. A yes of a person has a `scope`:
    once, session, always; `grants` are the rules that then hold. What is open has an `answer`, empty if none came."""

    request: str
    tool: str
    allowed: bool
    by: str
    reason: str = ""
    scope: str = ""
    grants: tuple[dict[str, str], ...] = ()
    answer: str | None = None


class WorkspaceConflict(_Event, frozen=True, kw_only=True, tag="workspace.conflict"):
    """A task wrote a file that the task `other` had changed since this one saw it."""

    path: str
    other: str


class WorkspaceEscaped(_Event, frozen=True, kw_only=True, tag="workspace.escaped"):
    """While a command of an isolated task ran, files outside of its workspace changed. `paths` are the first of them,
    in the checkout that it was made from; `HEAD` is the commit or branch that stands there."""

    paths: tuple[str, ...]


class CardMoved(_Event, frozen=True, kw_only=True, tag="card.moved"):
    """The worker of a card ended its run: the card's state now, and the question or reason where it waits for a person.
    `asks`: a person has to answer before it goes on."""

    card: str
    status: str
    title: str
    reason: str = ""
    asks: bool = False


class RowEnded(_Event, frozen=True, kw_only=True, tag="row.ended"):
    """A batch rollout ended: kept, rejected, failed."""

    prompt_index: int
    rollout_index: int
    outcome: str
    reason: str = ""


class LoopStalled(_Event, frozen=True, kw_only=True, tag="loop.stalled"):
    """Something blocked the event loop for `seconds`; `where` names it."""

    seconds: float
    where: str


Event = (
    TaskQueued
    | TaskStarted
    | TaskPhase
    | TaskSuspended
    | TaskAdopted
    | TaskEnded
    | TurnStarted
    | TurnEnded
    | EntryAdded
    | TextDeltaEvent
    | ThinkingDeltaEvent
    | StreamRestarted
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | ToolAbandoned
    | ControlReceived
    | ControlDelivered
    | ControlMissed
    | ControlRefused
    | NoticeDelivered
    | RetryWaiting
    | QuotaWaiting
    | CredentialCooled
    | FallbackUsed
    | BudgetWarned
    | BudgetReached
    | ContextCompacted
    | ApprovalAsked
    | ApprovalAnswered
    | WorkspaceConflict
    | WorkspaceEscaped
    | CardMoved
    | RowEnded
    | LoopStalled
)

#: Every event class, in the order of the documentation.
EVENT_TYPES: tuple[type[Any], ...] = tuple(Event.__args__)

#: Types that are shown and not kept.
EPHEMERAL: frozenset[type[Any]] = frozenset(
    {TextDeltaEvent, ThinkingDeltaEvent, StreamRestarted, ToolProgress, TaskPhase}
)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its place: `seq` grows by one within a process, `at` is seconds since the epoch."""

    seq: int
    at: float
    session_id: str
    task_id: str
    parent_id: str | None
    event: Event
