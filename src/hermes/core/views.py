"""Views: pure folds of the event stream. Whatever shows a task reads one of these and nothing else.

`TaskView` is one task, `TreeView` all tasks of a session or a process. They keep bounded detail: the newest 200 lines
of output of a task, each cut to 500 characters, and the newest 40 paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hermes.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    ControlDelivered,
    ControlMissed,
    ControlReceived,
    ControlRefused,
    EntryAdded,
    Envelope,
    QuotaWaiting,
    RetryWaiting,
    TaskAdopted,
    TaskEnded,
    TaskPhase,
    TaskQueued,
    TaskStarted,
    TaskSuspended,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    WorkspaceConflict,
    WorkspaceEscaped,
)
from hermes.core.messages import NOTHING, Assistant, Usage
from hermes.core.result import ENDED, ToolTrace, tokens

__all__ = ["TaskView", "TreeView"]

MAX_LINES, MAX_LINE, MAX_FILES, MAX_TRACE = 200, 500, 40, 400


class TaskView:
    """What is known of one task from its events."""

    __slots__ = (
        "_open", "api_calls", "attempt", "conflicts", "depth", "elapsed", "error", "escaped", "exit_reason",
        "files_read", "files_written", "goal", "group", "index", "kind", "label", "last_activity", "last_tool",
        "lines", "model", "parent_id", "phase", "phase_detail", "queued_at", "ran", "receipts", "role",
        "session_id", "started_at", "state", "status", "steps", "summary", "task_id", "tool_count", "toolsets",
        "trace", "truncated", "usage",
    )  # fmt: skip

    def __init__(self, task_id: str, session_id: str, parent_id: str | None) -> None:
        self.task_id = task_id
        self.session_id = session_id
        self.parent_id = parent_id
        self.kind = ""
        self.goal = ""
        self.label = ""
        self.role = "leaf"
        self.group = ""
        self.index = 0
        self.depth = 0
        self.model = ""
        self.toolsets: tuple[str, ...] = ()
        self.state = "queued"
        self.status = ""
        self.exit_reason = ""
        self.phase = ""
        self.phase_detail = ""
        self.attempt = 1
        self.queued_at = 0.0
        self.ran = 0.0  # seconds, in processes that are gone
        self.started_at: float | None = None  # as if it had run in this process from the beginning
        self.last_activity = 0.0
        self.elapsed = 0.0
        self.api_calls = 0
        self.tool_count = 0
        self.steps = 0
        self.last_tool = ""
        self.usage = NOTHING
        self.summary = ""
        self.error = ""
        self.truncated = False
        self.lines: list[str] = []
        self.files_read: Mapping[str, None] = _NONE
        self.files_written: Mapping[str, None] = _NONE
        self.conflicts: Mapping[str, None] = _NONE  # sentences about files that another task wrote too
        self.escaped: Mapping[str, None] = _NONE  # files outside its workspace that changed while its commands ran
        self.trace: list[ToolTrace] = []
        self.receipts: Mapping[str, dict[str, object]] = _NONE
        self._open: dict[tuple[int, int], int] | None = None  # bytes of the arguments of calls that run

    @property
    def ended(self) -> bool:
        """Whether the task has ended for good."""
        return self.state in ENDED

    def seconds(self, now: float) -> float:
        """Elapsed seconds: running until `now`, fixed once ended."""
        if self.ended:
            return self.elapsed
        if self.started_at is None and self.ran:
            return self.ran
        return max(0.0, now - (self.started_at or self.queued_at))

    @property
    def lived(self) -> float:
        """Seconds it has run as far as its events tell: up to the last one, where a process was lost without a word."""
        return self.ran if self.started_at is None else max(0.0, self.last_activity - self.started_at)

    def line(self, text: str) -> None:
        """Keep lines of output."""
        for line in text.splitlines():
            if line.strip():
                self.lines.append(line[:MAX_LINE])
        if len(self.lines) > MAX_LINES:
            del self.lines[:-MAX_LINES]

    def apply(self, envelope: Envelope) -> None:
        """Fold one event in."""
        fold = _FOLDS.get(type(envelope.event))
        if fold is not None:
            fold(self, envelope.event, envelope.at)

    # -- life -------------------------------------------------------------------------------------------------------

    def _queued(self, event: TaskQueued, at: float) -> None:
        self.kind, self.goal, self.role, self.depth = event.kind, event.goal, event.role, event.depth
        self.model, self.toolsets, self.group = event.model, event.toolsets, event.group
        self.index, self.label = event.index, event.label
        self.queued_at = self.last_activity = at
        if self.ended:  # it goes on
            self.state, self.status, self.exit_reason, self.error, self.summary = "queued", "", "", "", ""
            self.truncated, self.started_at, self.ran = False, None, 0.0

    def _started(self, event: TaskStarted, at: float) -> None:
        self.state, self.phase, self.attempt = "running", "building", event.attempt
        self.started_at = at - self.ran
        self.last_activity = at
        self.model = event.model or self.model

    def _suspended(self, event: TaskSuspended, at: float) -> None:
        if self.started_at is not None:
            self.ran, self.started_at = max(0.0, at - self.started_at), None
        self.state = "suspended"

    def _adopted(self, event: TaskAdopted, at: float) -> None:
        self.ran, self.started_at = 0.0 if self.ended else self.lived, None
        self.state = "queued"  # until it has a place again

    def _ended(self, event: TaskEnded, at: float) -> None:
        self.state, self.status, self.exit_reason = event.state, event.status, event.exit_reason
        self.summary, self.error, self.truncated = event.summary, event.error, event.truncated
        self.elapsed, self.phase, self.phase_detail = event.elapsed, "", ""
        self.last_activity = at

    # -- phases -----------------------------------------------------------------------------------------------------

    def _phase(self, event: TaskPhase, at: float) -> None:
        self.phase, self.phase_detail = event.phase, event.detail
        if event.slept and self.started_at is not None:
            self.started_at += event.slept
            self.last_activity += event.slept

    def _quota(self, event: QuotaWaiting, at: float) -> None:
        if event.seconds <= 0:  # the wait is over
            self.phase, self.phase_detail = "model", ""
        else:
            self.phase, self.phase_detail = "quota", f"{event.seconds:.0f} s {event.provider}".rstrip()

    def _retry(self, event: RetryWaiting, at: float) -> None:
        if event.seconds <= 0:  # it is asked at once
            self.phase, self.phase_detail = "model", ""
        else:
            self.phase, self.phase_detail = "quota", f"retry {event.attempt} in {event.seconds:.0f} s: {event.reason}"

    def _asked(self, event: ApprovalAsked, at: float) -> None:
        self.phase, self.phase_detail = "approval", event.what

    def _answered(self, event: ApprovalAnswered, at: float) -> None:
        self.phase, self.phase_detail = "tool", ""

    # -- work -------------------------------------------------------------------------------------------------------

    def _turn_started(self, event: TurnStarted, at: float) -> None:
        self.last_activity = at
        self.phase, self.phase_detail, self.model = "model", "", event.model or self.model

    def _turn_ended(self, event: TurnEnded, at: float) -> None:
        self.last_activity = at
        self.api_calls += 1
        self.steps += 1
        self.usage = self.usage + event.usage

    def _tool_started(self, event: ToolStarted, at: float) -> None:
        self.last_activity = at
        self.phase, self.phase_detail, self.last_tool = "tool", event.name, event.name
        if self._open is None:
            self._open = {}
        self._open[(event.position, event.index)] = event.args_bytes
        self.line(f"→ {event.name} {event.preview}")

    def _tool_progress(self, event: ToolProgress, at: float) -> None:
        self.last_activity = at
        self.steps += 1
        self.line(event.text)

    def _tool_ended(self, event: ToolEnded, at: float) -> None:
        self.last_activity = at
        self.tool_count += 1
        self.steps += 1
        self.line(event.preview[:MAX_LINE])
        self.files_read = _newest(self.files_read, event.files_read)
        self.files_written = _newest(self.files_written, event.files_written)
        args_bytes = 0
        if self._open is not None:
            args_bytes = self._open.pop((event.position, event.index), 0)
            self._open = self._open or None
        self.trace.append(
            ToolTrace(
                tool=event.name,
                args_bytes=args_bytes,
                result_bytes=event.result_bytes,
                status="ok" if event.success else "error",
            )
        )
        if len(self.trace) > MAX_TRACE:
            del self.trace[:-MAX_TRACE]

    def _conflict(self, event: WorkspaceConflict, at: float) -> None:
        sentence = f"{event.path} was written by task {event.other} first and then by this one"
        self.conflicts = _newest(self.conflicts, (sentence,))

    def _escaped(self, event: WorkspaceEscaped, at: float) -> None:
        self.escaped = _newest(self.escaped, event.paths)

    def _entry(self, event: EntryAdded, at: float) -> None:
        self.last_activity = at
        if isinstance(event.entry, Assistant):
            self.model = event.entry.model or self.model  # the one that really answered
            self.line(event.entry.text)

    # -- control messages -------------------------------------------------------------------------------------------

    def _received(self, event: ControlReceived, at: float) -> None:
        self._receipt(event.receipt, event.verb).update(verb=event.verb, state="queued")

    def _delivered(self, event: ControlDelivered, at: float) -> None:
        receipt = self._receipt(event.receipt, event.verb)
        receipt["state"] = "delivered"
        receipt["position"] = event.position

    def _missed(self, event: ControlMissed, at: float) -> None:
        self._receipt(event.receipt, event.verb)["state"] = "missed"

    def _refused(self, event: ControlRefused, at: float) -> None:
        self._receipt(event.receipt, event.verb)["state"] = "refused"

    def _receipt(self, receipt: str, verb: str) -> dict[str, object]:
        if receipt not in self.receipts:
            self.receipts = {**self.receipts, receipt: {"id": receipt, "verb": verb}}
        return self.receipts[receipt]


#: Stands for what most tasks never have: thousands with half a dozen empty dictionaries each would be megabytes.
_NONE: Mapping[str, Any] = MappingProxyType({})


def _newest(known: Mapping[str, None], paths: Sequence[str]) -> Mapping[str, None]:
    """`known` with `paths` in order of last use; of more than `MAX_FILES` the oldest go."""
    if not paths:
        return known
    kept = dict(known)
    for path in paths[-MAX_FILES:]:
        kept.pop(path, None)
        kept[path] = None
    for path in list(kept)[:-MAX_FILES]:
        del kept[path]
    return kept


# By type and not by a chain of checks: every event of a thousand children passes here.
_FOLDS: Mapping[type[Any], Callable[[TaskView, Any, float], None]] = {
    TaskQueued: TaskView._queued,
    TaskStarted: TaskView._started,
    TaskSuspended: TaskView._suspended,
    TaskAdopted: TaskView._adopted,
    TaskEnded: TaskView._ended,
    TaskPhase: TaskView._phase,
    QuotaWaiting: TaskView._quota,
    RetryWaiting: TaskView._retry,
    ApprovalAsked: TaskView._asked,
    ApprovalAnswered: TaskView._answered,
    TurnStarted: TaskView._turn_started,
    TurnEnded: TaskView._turn_ended,
    ToolStarted: TaskView._tool_started,
    ToolProgress: TaskView._tool_progress,
    ToolEnded: TaskView._tool_ended,
    EntryAdded: TaskView._entry,
    ControlReceived: TaskView._received,
    ControlDelivered: TaskView._delivered,
    ControlMissed: TaskView._missed,
    ControlRefused: TaskView._refused,
    WorkspaceConflict: TaskView._conflict,
    WorkspaceEscaped: TaskView._escaped,
}


class TreeView:
    """All tasks seen, by id, with their children in order of arrival."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskView] = {}
        self.children: dict[str | None, list[str]] = {}

    def apply(self, envelope: Envelope) -> None:
        """Fold one event in; a task nobody announced yet is made from its envelope."""
        event = envelope.event
        view = self.tasks.get(envelope.task_id)
        if view is None:
            view = TaskView(envelope.task_id, envelope.session_id, envelope.parent_id)
            self.tasks[envelope.task_id] = view
            self.children.setdefault(envelope.parent_id, []).append(envelope.task_id)
        fold = _FOLDS.get(type(event))
        if fold is None:
            return
        fold(view, event, envelope.at)
        if type(event) is WorkspaceConflict and event.other in self.tasks:
            other = self.tasks[event.other]
            sentence = f"{event.path} was written by this task first and then by {view.task_id}"
            other.conflicts = _newest(other.conflicts, (sentence,))

    def forget(self, task_id: str) -> None:
        """Drop an ended task and everything under it (a batch run keeps no finished rows here)."""
        for child in self.children.pop(task_id, ()):
            self.forget(child)
        view = self.tasks.pop(task_id, None)
        if view is not None:
            siblings = self.children.get(view.parent_id)
            if siblings is not None and task_id in siblings:
                siblings.remove(task_id)

    def subtree(self, task_id: str) -> Iterator[TaskView]:
        """A task and everything under it, parents first."""
        view = self.tasks.get(task_id)
        if view is not None:
            yield view
            for child in self.children.get(task_id, ()):
                yield from self.subtree(child)

    def subtree_usage(self, task_id: str) -> Usage:
        """Own usage of a task and of everything under it, each counted once."""
        total = Usage()
        for view in self.subtree(task_id):
            total = total + view.usage
        return total

    def use(self, task_id: str) -> dict[str, Any]:
        """What a task used by itself and, as `subtree`, with everything under it, as answers show it."""
        own, under, calls = self.tasks[task_id], Usage(), 0
        for view in self.subtree(task_id):
            under, calls = under + view.usage, calls + view.api_calls
        return {
            "tokens": tokens(own.usage),
            "cost_usd": own.usage.cost_usd,
            "api_calls": own.api_calls,
            "subtree": {"tokens": tokens(under), "cost_usd": under.cost_usd, "api_calls": calls},
        }

    def roots(self) -> list[TaskView]:
        """Tasks without a known parent, in order of arrival."""
        return [view for view in self.tasks.values() if view.parent_id not in self.tasks]
