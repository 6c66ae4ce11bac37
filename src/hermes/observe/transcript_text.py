"""Events as lines that people read in a file. Pure functions; nothing is written or redacted here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from hermes.core.codec import scrub_surrogates
from hermes.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    BudgetReached,
    BudgetWarned,
    ContextCompacted,
    ControlMissed,
    EntryAdded,
    Envelope,
    FallbackUsed,
    LoopStalled,
    QuotaWaiting,
    RetryWaiting,
    StreamRestarted,
    TaskAdopted,
    TaskEnded,
    TaskQueued,
    TaskStarted,
    TaskSuspended,
    ToolAbandoned,
    ToolStarted,
    TurnEnded,
    WorkspaceConflict,
)
from hermes.core.messages import Assistant, Interrupted, Notice, Steer, Summary, ToolResult, User, plain_text

__all__ = ["TOLD", "lines_of"]

#: Characters of one message that a transcript shows; the journal has the rest.
MOST = 8_000
_TOOL_MOST = 2_000

#: What would act on a terminal that shows the file: escape sequences, controls, marks of direction, invisible fillers.
_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b.?")
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


def _cut(text: str, most: int = MOST) -> str:
    text = scrub_surrogates(text)
    if len(text) > most:
        text = f"{text[:most]} … ({len(text) - most} characters more)"
    return _HARMFUL.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))).strip()


def _queued(event: TaskQueued) -> str:
    place = f", {event.position}. in the queue" if event.position > 1 else ""
    return f"queued{place} ({event.kind}, {event.role}): {_cut(event.goal)}"


def _started(event: TaskStarted) -> str:
    again = f", attempt {event.attempt}" if event.attempt > 1 else ""
    return f"started{again} · {event.model}".rstrip(" ·")


def _ended(event: TaskEnded) -> str:
    usage = f"{event.usage.input} in, {event.usage.output} out"
    cost = f", ${event.usage.cost_usd:.4f}" if event.usage.cost_usd is not None else ""
    why = f" ({event.exit_reason})" if event.exit_reason != event.status else ""
    error = f": {_cut(event.error)}" if event.error else ""
    return f"ended: {event.status}{why} after {event.elapsed:.1f}s · {event.api_calls} requests, {usage}{cost}{error}"


def _turn(event: TurnEnded) -> str:
    if event.error:
        return f"request {event.turn} failed after {event.duration:.1f}s: {_cut(event.error)}"
    return f"unfinished children: {' '.join(event.unfinished_children)}" if event.unfinished_children else ""


def _entry(event: EntryAdded) -> str:
    entry = event.entry
    if isinstance(entry, Assistant):
        parts = [f"thinking: {_cut(entry.thinking)}" if entry.thinking.strip() else ""]
        parts.append(f"model: {_cut(entry.text)}" if entry.text.strip() else "")
        parts.extend(f"→ {call.name} {_cut(call.raw, _TOOL_MOST)}".rstrip() for call in entry.calls)
        return "\n".join(part for part in parts if part)
    if isinstance(entry, ToolResult):
        return f"← {entry.name}{' (error)' if entry.is_error else ''}: {_cut(plain_text(entry.content), _TOOL_MOST)}"
    if isinstance(entry, User):
        return f"{entry.source}: {_cut(plain_text(entry.content))}"
    if isinstance(entry, Steer):
        return f"steer from {entry.sender}: {_cut(plain_text(entry.content))}"
    if isinstance(entry, Interrupted):
        return f"interrupted: {_cut(entry.reason)}"
    assert isinstance(entry, (Notice, Summary))
    if not entry.text:
        return "goes on with other tools or another model"
    return f"{'notice' if isinstance(entry, Notice) else 'summary'}: {_cut(entry.text)}"


def _budget(event: BudgetWarned) -> str:
    return f"budget: {event.used:g} of {event.limit:g} {event.kind} used ({event.scope})"


def _retry(event: RetryWaiting) -> str:
    if event.reason == "suspended":
        return f"asks again: {_cut(event.message)}"
    return f"waits {event.seconds:.1f}s and asks again ({event.reason}): {_cut(event.message)}".rstrip(" :")


def _asked(event: ApprovalAsked) -> str:
    if event.choices is not None:
        return f"asks: {_cut(event.what)}"
    return f"asks whether {event.tool} may run: {_cut(event.what)} ({_cut(event.reason)})"


def _answered(event: ApprovalAnswered) -> str:
    if event.answer is not None:
        return f"answered by {event.by}: {_cut(event.answer or event.reason)}"
    return f"{'allowed' if event.allowed else 'denied'} by {event.by}: {event.tool} {_cut(event.reason)}".rstrip()


_LINES: Mapping[type[Any], Callable[[Any], str]] = {
    TaskQueued: _queued,
    TaskStarted: _started,
    TaskSuspended: lambda event: f"suspended: {_cut(event.reason)}",
    TaskAdopted: lambda event: f"taken up by another process (epoch {event.epoch})",
    TaskEnded: _ended,
    TurnEnded: _turn,
    EntryAdded: _entry,
    ToolStarted: lambda event: f"{event.name} runs {_cut(event.preview, 200)}".rstrip(),
    ToolAbandoned: lambda event: f"{event.name} was left behind; {event.still_running} such calls still run",
    StreamRestarted: lambda event: f"the reply begins again (attempt {event.attempt}): {_cut(event.reason)}",
    ControlMissed: lambda event: f"{event.verb} came too late: {_cut(event.text)}",
    RetryWaiting: _retry,
    QuotaWaiting: lambda event: (
        f"waits {event.seconds:.1f}s for the limit of {event.provider or 'the provider'}"
        if event.seconds
        else "the wait is over"
    ),
    FallbackUsed: lambda event: f"{event.model} answers instead: {_cut(event.reason)}",
    BudgetWarned: _budget,
    BudgetReached: lambda event: f"budget: the limit of {event.limit:g} {event.kind} is reached ({event.scope})",
    ContextCompacted: lambda event: f"context shortened: {event.before_tokens} → {event.after_tokens} tokens",
    ApprovalAsked: _asked,
    ApprovalAnswered: _answered,
    WorkspaceConflict: lambda event: f"{event.path} was changed by {event.other} since it was read",
    LoopStalled: lambda event: f"everything stood still for {event.seconds:.1f}s: {_cut(event.where)}",
}

#: The types of event that stand in a transcript.
TOLD: frozenset[type[Any]] = frozenset(_LINES)


def lines_of(envelope: Envelope) -> str:
    """The lines of an event, each ending in a line feed; empty where there is nothing to tell."""
    text = _LINES[type(envelope.event)](envelope.event)
    if not text:
        return ""
    at = datetime.fromtimestamp(envelope.at).strftime("%Y-%m-%d %H:%M:%S")
    first, *rest = text.splitlines()
    return "".join([f"[{at}] {first}\n", *(f"    {line}\n" for line in rest)])
