"""A board and its cards as text for people: rows that fit the terminal, one card in full, moments and spans.

Knows no command and reads no board.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hermes.chat.render import fitted, one_line, printable, rows, size_text, when
from hermes.core.errors import UsageError
from hermes.kanban.card import Card, CardEvent
from hermes.kanban.moves import Status
from hermes.kanban.reading import CardView, Related

__all__ = [
    "MARKS",
    "age",
    "card_lines",
    "card_rows",
    "event_line",
    "read_moment",
    "read_span",
]

#: What stands before a card's state.
MARKS: dict[Status, str] = {
    "triage": "?", "todo": "·", "scheduled": "◷", "ready": "○", "running": "●", "blocked": "!", "review": "◎",
    "done": "✓", "archived": "-",
}  # fmt: skip
#: Columns that one thing takes in the line of an event.
_SAID = 300
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


def read_span(text: str) -> float:
    """Read `30s`, `5m`, `2h`, `1d` or a number of seconds. Raises `UsageError`."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"{text!r} is no span of time: write 30s, 5m, 2h, 1d or a number of seconds")
    return float(found[1]) * _UNITS[found[2] or "s"]


def read_moment(text: str, now: float) -> float:
    """Read a moment: `2026-03-01 09:00` (local unless it names its zone) or a span from now. Raises `UsageError`."""
    if _SPAN.fullmatch(text.strip().lower()):
        return now + read_span(text)
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        raise UsageError(f"{text!r} is no moment: write 2026-03-01 09:00, or how long from now (2h)") from None


def age(seconds: float) -> str:
    """A span for people: `12s`, `3m`, `5h`, `2d`."""
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS[unit]:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def card_rows(cards: Sequence[Card], width: int | None) -> list[str]:
    """Cards as aligned lines: mark, id, state, priority where any has one, assignee, title."""
    weighed = any(card.priority for card in cards)
    table = [
        (
            f"{MARKS[card.status]} {card.id}",
            card.status,
            *((str(card.priority) if card.priority else "",) if weighed else ()),
            card.assignee or "-",
            " ".join(printable(card.title).split()),
        )
        for card in cards
    ]
    lines = rows(table, indent="").splitlines()
    return lines if width is None else [fitted(line, width) for line in lines]


def _said(key: str, value: Any) -> str:
    """One thing that an event says; of a long text its beginning, the whole of it is in the card."""
    if isinstance(value, Mapping):
        value = "  ".join(_said(name, each) for name, each in value.items())
        return value if key == "fields" else f"{key}={value}"
    if isinstance(value, str):
        value = one_line(value, _SAID)
        return value if key in ("reason", "summary", "error", "title") else f"{key}={value}"
    return f"{key}={value}"


def event_line(event: CardEvent, width: int | None = None) -> str:
    """A change as one line: when, which card, what, who, and what was said."""
    said = "  ".join(_said(key, value) for key, value in event.payload.items() if value not in ("", None, [], {}))
    stamp = time.strftime("%m-%d %H:%M:%S", time.localtime(event.created_at))
    head = f"{stamp}  {event.card_id or '-':10}  {event.kind:18}  {event.author}"
    line = " ".join(printable(f"{head}  {said}".rstrip()).split("\n"))
    return line if width is None else fitted(line, width)


def _related(title: str, cards: Sequence[Related]) -> list[str]:
    lines = []
    for card in cards:
        kind = "" if card.kind == "needs" else " (only reads it)"
        lines.append(f"  {MARKS[card.status]} {card.id} {card.status}{kind}  {card.title}")
    return [title, *lines] if lines else []


def card_lines(view: CardView, now: float | None = None) -> list[str]:
    """One card in full; `now` is the wall clock (None: the machine's)."""
    card = view.task
    head = [f"{MARKS[card.status]} {card.id}", card.status, card.assignee or "nobody"]
    head += [f"priority {card.priority}"] if card.priority else []
    lines = ["  ".join(head), printable(card.title)]
    lines += ["", *printable(card.body).splitlines()] if card.body else []
    facts = [
        ("done when", card.acceptance), ("check", card.check_command), ("reviewer", card.reviewer),
        ("blocked", _why(card)),
        ("workspace", card.workspace_kind + (f":{card.workspace_path}" if card.workspace_path else "")),
        ("branch", card.branch_name), ("tenant", card.tenant), ("model", card.model_override),
        ("limits", _limits(card)), ("parked", f"until {when(card.scheduled_at)}" if card.scheduled_at else None),
        ("made", f"{when(card.created_at)} by {card.created_by}"),
        ("stopping", f"its worker is asked to stop, then it is {card.stop_requested}" if card.stop_requested else None),
        ("failed", f"{card.consecutive_failures} times in a row: {card.last_failure_error}"
         if card.consecutive_failures else None),
    ]  # fmt: skip
    lines += ["", rows([(name, str(value)) for name, value in facts if value], indent="")]
    hanging = _hanging(view, time.time() if now is None else now)
    for part in (_related("needs", view.parents), _related("needed by", view.children), hanging):
        lines += ["", *part] if part else []
    return lines


def _why(card: Card) -> str:
    return f"{card.block_reason}{f' ({card.block_kind})' if card.block_kind else ''}" if card.block_reason else ""


def _limits(card: Card) -> str:
    found = [f"${card.budget_usd:g}"] if card.budget_usd is not None else []
    found += [f"{card.budget_tokens:,} tokens"] if card.budget_tokens is not None else []
    found += [f"{age(card.max_runtime_seconds)} a run"] if card.max_runtime_seconds is not None else []
    found += [f"{card.max_retries} failures"] if card.max_retries is not None else []
    return ", ".join(found)


def _hanging(view: CardView, now: float) -> list[str]:
    lines: list[str] = []
    if view.task.result:
        lines += ["result", *(f"  {line}" for line in printable(view.task.result).splitlines())]
    for question in view.questions:
        answer = f"answer: {question.answer}" if question.answered_at else "waits: hermes kanban answer " + view.task.id
        lines += [printable(f"question {question.id}  {question.question}  ({answer})")]
    for run in view.runs:
        ended = run.outcome or "runs"
        place = f", branch {run.branch_name}" if run.branch_name else ""
        commit = f", commit {run.git_commit[:12]}" if run.git_commit else ""
        span = age((run.ended_at or now) - run.started_at)
        said = " ".join((run.error or run.summary or "").split())[:200]
        who = run.profile or "a person"
        lines += [
            printable(f"run {run.attempt}  {who}, {when(run.started_at)}, {span}: {ended}{place}{commit}  {said}")
        ]
    for comment in view.comments:
        lines += [printable(f"{comment.author}, {when(comment.created_at)}:")]
        lines += [f"  {printable(line)}" for line in comment.body.splitlines()]
    for file in view.attachments:
        lines += [printable(f"attachment {file.id}  {file.name}  {size_text(file.size)}  by {file.created_by}")]
    return lines
