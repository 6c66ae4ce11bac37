"""Coming back to a conversation: what became of it meanwhile, what going on will do, and the question whether to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hermes.chat.render import cost, one_line, quantity
from hermes.core.result import async_status
from hermes.runtime.recovery import CutOff, SessionReport

__all__ = ["Recover", "describe", "recover_mode", "unfinished"]

Recover = Literal["ask", "auto", "never"]
#: Most tasks of a kind that are listed.
MOST = 20


def recover_mode(setting: str, terminal: bool) -> Recover:
    """What the setting `delegation.recover` means here."""
    if setting == "never":
        return "never"
    return "ask" if setting in ("", "ask") and terminal else "auto"


def unfinished(report: SessionReport) -> list[CutOff]:
    """The tasks that were cut off, without the conversation itself."""
    main = report.main.task_id if report.main is not None else ""
    return [cut for cut in report.cut_off if cut.task_id != main]


def describe(report: SessionReport, *, mode: Recover, moved: bool = False) -> list[str]:
    """What a person reads before a session goes on, one line each. `moved`: another process let it go for this."""
    cut_off = unfinished(report)
    main = next((cut for cut in report.cut_off if cut not in cut_off), None)
    title = f" · {one_line(report.title, 60)}" if report.title else ""
    lines = [f"session {report.session_id}{title}"]
    ended = [f"  {label} ({task_id}): {async_status(state)}" for task_id, label, state in report.ended]
    lines += _listed("ended meanwhile:", [one_line(line, 160) for line in ended])
    lines += _listed("taken over:" if moved else "cut off:", [_cut(cut) for cut in cut_off])
    if main is not None and main.unknown:
        lines.append(f"the conversation itself was cut off in {', '.join(main.unknown)}: effect unknown")
    spent = report.usage
    if spent.total:
        lines.append("spent so far: " + " · ".join(p for p in (f"{quantity(spent.total)} tok", cost(spent)) if p))
    if cut_off:
        lines.append(_plan(cut_off, main, mode))
    return lines


def _listed(head: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  … and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return [head, *lines[:MOST], *more]


def _cut(cut: CutOff) -> str:
    where = f"after step {cut.steps}" if cut.steps else "before its first step"
    unknown = f" · in {', '.join(cut.unknown)}: effect unknown" if cut.unknown else ""
    return f"  {one_line(cut.label, 60)} ({cut.task_id}): {where}{unknown}"


def _plan(cut_off: Sequence[CutOff], main: CutOff | None, mode: Recover) -> str:
    count = len(cut_off)
    if mode == "never":
        return f"going on stops the {count} unfinished tasks with what they have (delegation.recover: never)"
    unknown = any(cut.unknown for cut in cut_off) or (main is not None and bool(main.unknown))
    told = "; calls of unknown effect are not repeated, the model is told to look" if unknown else ""
    return f"going on continues {count} tasks after their last finished step; no finished step is paid again{told}"
