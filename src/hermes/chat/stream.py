"""What happens, told in lines while it happens: calls, children, waits, refusals. A fold over the events.

It says nothing of the answer itself; whoever shows that reads the deltas.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes.chat.render import duration, one_line
from hermes.core.events import (
    ApprovalAnswered,
    BudgetReached,
    BudgetWarned,
    ContextCompacted,
    ControlMissed,
    CredentialCooled,
    EntryAdded,
    Envelope,
    Event,
    FallbackUsed,
    LoopStalled,
    QuotaWaiting,
    RetryWaiting,
    TaskEnded,
    TaskQueued,
    TaskStarted,
    ToolAbandoned,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    WorkspaceConflict,
)
from hermes.core.messages import Assistant
from hermes.core.views import TaskView, TreeView

__all__ = ["Narrator"]

#: Above so many living tasks the calls of children are no longer told one by one.
CROWD = 8
#: Seconds within which requests that are asked again belong to the same suspension.
SAME_WAKING = 10.0
_SPAWNING = frozenset({"delegate_task", "spawn_agent", "spawn_parallel", "delegate_task_async"})
_EMOJI = {"terminal": "💻", "process": "💻", "read_file": "📖", "write_file": "✍️", "patch": "🔧"}
_EMOJI |= {"search_files": "🔎", "todo": "📋"}


class Narrator:
    """Tells the events of one session. `progress` is the setting `display.tool_progress`: off, new, all, verbose."""

    def __init__(
        self, tree: TreeView, say: Callable[[str], None], *, session_id: Callable[[], str], progress: str = "all"
    ) -> None:
        self._tree = tree
        self._say = say
        self._session_id = session_id
        self._progress = progress
        self._last_tool: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._woke = 0.0

    def tell(self, envelope: Envelope) -> None:
        """Say what an event means, if anything."""
        if envelope.session_id != self._session_id() and not isinstance(envelope.event, LoopStalled):
            return
        view = self._tree.tasks[envelope.task_id]
        event = envelope.event
        child = view.kind != "main"
        if isinstance(event, (ToolStarted, ToolEnded, ToolAbandoned, EntryAdded)):
            self._call(view, event, child)
        elif child and isinstance(event, (TaskQueued, TaskStarted, TaskEnded)):
            self.life(view, event)
        else:
            text = _weather(event)
            if isinstance(event, RetryWaiting) and event.reason == "suspended":
                if (envelope.at - self._woke) < SAME_WAKING:
                    return  # said for the first of the many whose requests were dropped
                self._woke, child = envelope.at, False
            if text:
                self._say(f"{_lead(view)}{text}" + (f" [{view.task_id}]" if child else ""))

    def living(self) -> int:
        """Tasks of the session that have not ended, without the conversation."""
        session = self._session_id()
        return sum(
            not view.ended and view.kind != "main" and view.session_id == session for view in self._tree.tasks.values()
        )

    def life(self, view: TaskView, event: TaskQueued | TaskStarted | TaskEnded) -> None:
        """Say how a task begins or ends."""
        if isinstance(event, TaskQueued):
            if event.count > 1:
                self._counts[view.task_id] = event.count
            if view.kind != "background":
                self._say(f"{_lead(view)}├─ 🔀 {self._place(view)}{one_line(view.goal, 55)}  ({view.task_id})")
        elif isinstance(event, TaskEnded) and view.kind != "background":
            mark = "✓" if event.state == "completed" else "⚠" if event.state == "exhausted" else "✗"
            label = one_line(view.label or view.goal, 40)
            why = f"  {one_line(event.error or event.exit_reason, 160)}" if mark != "✓" else ""
            left = self.living()
            rest = f" · {left} remaining" if left else ""
            self._say(f"{_lead(view)}{mark} {self._place(view)}{label}  ({duration(event.elapsed)}){why}{rest}")

    def _place(self, view: TaskView) -> str:
        count = self._counts.get(view.task_id)
        return f"[{view.index + 1}/{count}] " if count else ""

    def _call(self, view: TaskView, event: ToolStarted | ToolEnded | ToolAbandoned | EntryAdded, child: bool) -> None:
        if self._progress == "off" or (child and self._progress != "verbose" and self.living() > CROWD):
            return
        lead = _lead(view) + ("│  " if child and view.kind != "background" else "")
        who = f"  [{view.task_id}]" if child else ""  # calls of children that work side by side come mixed
        if isinstance(event, ToolStarted):
            if event.name in _SPAWNING:
                return  # its children are told one by one
            if self._progress == "new" and self._last_tool.get(view.task_id) == event.name:
                return
            self._last_tool[view.task_id] = event.name
            limit = 200 if self._progress == "verbose" else 60 if not child else 35
            preview = f' "{one_line(event.preview, limit)}"' if event.preview else ""
            self._say(f"{lead}├─ {_EMOJI.get(event.name, '⚙')} {event.name}{preview}{who}")
        elif isinstance(event, ToolEnded):
            if '"error":"Denied:' in event.preview:
                return  # told when it was denied
            if event.is_error or self._progress == "verbose":
                mark = "✗" if event.is_error else "✓"
                self._say(
                    f"{lead}│  {mark} {event.name}: {one_line(event.preview, 160)} ({duration(event.duration)}){who}"
                )
        elif isinstance(event, ToolAbandoned):
            self._say(f"{lead}│  ! {event.name} was left behind; {event.still_running} such calls may still run{who}")
        elif isinstance(event.entry, Assistant) and event.entry.thinking.strip() and self._progress == "verbose":
            self._say(f'{lead}├─ 💭 "{one_line(event.entry.thinking, 120)}"{who}')


def _lead(view: TaskView) -> str:
    return "│  " * max(0, view.depth - 1)


def _weather(event: Event) -> str:
    """Waits, limits, refusals: what is not a call and not a task's life; empty for anything else."""
    if isinstance(event, RetryWaiting):
        why = f": {one_line(event.message, 160)}" if event.message else ""
        if event.reason == "suspended":
            return f"⏳ what was asked is asked again{why}"
        if event.reason.endswith(" answers instead") and not event.seconds:
            return ""  # told as it is: another model was chosen
        return f"⏳ {event.reason}, attempt {event.attempt} in {event.seconds:.0f} s{why}"
    if isinstance(event, QuotaWaiting):
        provider = event.provider or "the provider"
        return f"⏳ waiting {event.seconds:.0f} s for the limit of {provider}" if event.seconds else ""
    if isinstance(event, CredentialCooled):
        return f"⏳ key {event.label} of {event.provider} rests {event.seconds:.0f} s ({event.reason})"
    if isinstance(event, FallbackUsed):
        return f"↪ {event.model} answers instead ({event.reason})"
    if isinstance(event, ApprovalAnswered):
        if event.answer is not None:
            return "" if event.answer else "⛔ nobody answered: it goes on alone"
        if not event.allowed:
            return f"⛔ denied {event.tool}: {one_line(event.reason, 120)} (by {event.by})"
        return f"⚠ run without asking: {event.tool}, {one_line(event.reason, 120)}" if event.by != "user" else ""
    if isinstance(event, (BudgetWarned, BudgetReached)):
        limit = f"${event.limit:g}" if event.kind == "cost" else f"{event.limit:g}"
        return f"! {event.kind} limit of {limit} {'reached' if isinstance(event, BudgetReached) else 'is near'}"
    if isinstance(event, ContextCompacted):
        return f"! the conversation was summarised: {event.before_tokens} tokens became {event.after_tokens}"
    if isinstance(event, ControlMissed):
        return f'! came too late, the task had ended: "{one_line(event.text, 80)}"'
    if isinstance(event, WorkspaceConflict):
        return f"! {event.path} was changed by {event.other} since it was read"
    if isinstance(event, TurnEnded) and event.unfinished_children:
        ids = event.unfinished_children
        which = f"{', '.join(ids[:3])}{', …' if len(ids) > 3 else ''}"
        return f"… answered while {len(ids)} of its tasks still run ({which}); their reports come by themselves"
    if isinstance(event, LoopStalled):
        return f"! everything stood still for {event.seconds:.1f} s in {event.where}"
    return ""
