"""The tree of tasks as lines of text: a pure function of the view, for whatever prints it. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hermes.chat.render import cost, duration, one_line, quantity, usage_text
from hermes.core.messages import Usage
from hermes.core.result import async_status
from hermes.core.views import TaskView, TreeView

__all__ = ["MARKS", "doing", "live_lines", "one_row", "task_details", "tree_lines"]

#: Most tasks that are listed; the rest is counted.
MOST = 200
#: A sign for each state.
MARKS = {
    "queued": "…",
    "running": "▶",
    "suspended": "⏸",
    "completed": "✓",
    "exhausted": "⚠",
    "cancelled": "⏹",
    "failed": "✗",
    "timed_out": "✗",
}


def tree_lines(tree: TreeView, now: float, *, session_id: str | None = None, width: int = 100) -> list[str]:
    """Every task, running and finished, under its parent.

    `now` is the wall clock in seconds. A line holds state and phase, elapsed time (fixed once ended), calls, tokens
    and money of the task with everything under it, the time since its last activity, and its goal.
    """
    roots = [view for view in tree.roots() if session_id is None or view.session_id == session_id]
    listed = [entry for root in roots for entry in _walk(tree, root, "", "")]
    states = [view.state for view, _, _ in listed if view.kind != "main"]
    if not listed:
        return ["no tasks yet"]
    running, queued = states.count("running"), states.count("queued")
    head = f"{running} running" + (f", {queued} queued" if queued else "")
    lines = [f"Tasks: {head}, {len(states) - running - queued} ended"]
    for view, lead, _ in listed[:MOST]:
        lines.append(one_row(tree, view, now, lead, width))
    if len(listed) > MOST:
        lines.append(f"… and {len(listed) - MOST} more")
    return lines


def live_lines(tree: TreeView, now: float, *, most: int, width: int) -> list[str]:
    """What runs right now in at most `most` lines of `width` columns: tasks without a parent, those that have children
    first, each with its children below it. `now` is the wall clock in seconds."""
    roots = [view for view in tree.roots() if not view.ended]
    roots.sort(key=lambda view: not tree.children.get(view.task_id))
    lines: list[str] = []
    for place, root in enumerate(roots):
        rows = [
            one_row(tree, view, now, lead, width, brief=True)
            for view, lead, _ in islice(_walk(tree, root, "", ""), most)
        ]
        left = len(roots) - place
        room = most - len(lines) - (left > 1)  # the last line counts what finds no room
        if len(rows) > room and lines:
            return [*lines, f"… and {left} more"]
        lines += rows[: max(room, 1)]
    return lines


def _walk(tree: TreeView, view: TaskView, lead: str, below: str) -> Iterator[tuple[TaskView, str, str]]:
    yield view, lead, below
    children = [tree.tasks[child] for child in tree.children.get(view.task_id, ()) if child in tree.tasks]
    for place, child in enumerate(children, 1):
        last = place == len(children)
        yield from _walk(tree, child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))


def one_row(
    tree: TreeView, view: TaskView, now: float, lead: str = "", width: int = 100, *, brief: bool = False
) -> str:
    """One task as a line of at most about `width` columns; `brief` leaves out what it has used so far."""
    usage, calls = Usage(), 0
    for each in tree.subtree(view.task_id):
        usage, calls = usage + each.usage, calls + each.api_calls
    parts = [f"{MARKS.get(view.state, '?')} {view.task_id}", doing(view)]
    if view.state != "queued":
        parts.append(duration(view.seconds(now)))
    if calls and not brief:
        parts += [f"{calls} call{'s' if calls > 1 else ''}", f"{quantity(usage.total)} tok", cost(usage)]
    if view.state == "running" and view.last_activity and not brief:
        parts.append(f"active {duration(max(0.0, now - view.last_activity))} ago")
    text = lead + " · ".join(part for part in parts if part)
    goal = one_line("conversation" if view.kind == "main" and not view.goal else view.goal, 300)
    return text + (f" · {one_line(goal, max(20, width - len(text) - 3))}" if goal else "")


def doing(view: TaskView) -> str:
    """State and phase of a task in a few words."""
    if view.state == "running":
        what = {"tool": f"in {view.last_tool}" if view.last_tool else "tool", "idle": "idle"}.get(
            view.phase, view.phase
        )
        detail = one_line(view.phase_detail, 50) if view.phase in ("quota", "approval") else ""
        return " ".join(part for part in ("running" if view.phase != "idle" else "", what, detail) if part)
    if view.ended:
        return async_status(view.state) + (" (incomplete)" if view.truncated else "")
    return view.state


def task_details(tree: TreeView, view: TaskView, now: float, lines: int = 10, width: int = 100) -> list[str]:
    """One task at length: its row, how it ended, what it wrote, the newest lines of its log."""
    found = [one_row(tree, view, now, "", width)]
    found.append(f"  session {view.session_id} · {view.kind}, {view.role} · model {view.model}")
    own, under = usage_text(view.usage), usage_text(tree.subtree_usage(view.task_id))
    found.append(f"  used {own}" + (f" · with everything under it {under}" if tree.children.get(view.task_id) else ""))
    if view.error:
        found.append(f"  error: {one_line(view.error, 200)}")
    if view.files_written:
        found.append("  files written: " + one_line(", ".join(view.files_written), 200))
    for receipt in view.receipts.values():
        found.append(f"  {receipt.get('verb')} {receipt.get('id')}: {receipt.get('state')}")
    found += [f"  │ {one_line(line, width - 4)}" for line in list(view.lines)[-lines:]]
    return found
