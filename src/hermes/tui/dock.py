"""The tasks that live under the conversation, above the composer: one line each, foldable. Draws, and stops nothing."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from hermes.chat.render import columns, cost, duration, fitted, one_line
from hermes.chat.tree_text import MARKS, doing
from hermes.core.messages import Usage
from hermes.core.views import TaskView, TreeView

__all__ = ["Dock", "dock_lines"]

#: Lines of tasks at most; the rest is counted.
MOST = 6
#: Columns that a name and what it does have at least, before times and money are left out from the right.
NARROW = 32


def dock_lines(
    tree: TreeView, session_id: str, now: float, *, width: int, folded: bool = False, most: int = MOST
) -> list[str]:
    """The living tasks of a session in at most `most` + 2 lines of `width` columns; none where nothing lives.

    A line holds state, name, what it does, elapsed time, time since its last activity, and money of it with everything
    under it. `now` is the wall clock in seconds.
    """
    living = [
        view for view in tree.tasks.values() if view.session_id == session_id and view.kind != "main" and not view.ended
    ]
    if not living:
        return []
    running = sum(view.state == "running" for view in living)
    waiting = len(living) - running
    asked = sum(view.phase == "approval" for view in living)
    total = Usage()
    for view in living:
        total = total + view.usage
    parts = [
        f"{running} running",
        f"{waiting} queued" if waiting else "",
        f"{asked} need{'s' * (asked == 1)} you" if asked else "",
    ]
    parts.append(cost(total))
    head = f"{'▸' if folded else '▾'} tasks: " + " · ".join(part for part in parts if part)
    lines = [head + "   F8 folds · Ctrl+T all" if width > columns(head) + 26 else fitted(head, width)]
    if folded:
        return lines
    living.sort(key=lambda view: (view.phase != "approval", view.state != "running"))  # else in their order: none jumps
    room = most if len(living) <= most else most - 1
    rows = [_row(tree, view, now, width) for view in living[:room]]
    return [*lines, *rows] + ([f"  … and {len(living) - room} more"] if len(living) > room else [])


def _row(tree: TreeView, view: TaskView, now: float, width: int) -> str:
    tail = [duration(view.seconds(now)) if view.state != "queued" else ""]
    if view.state == "running" and view.last_activity:
        tail.append(f"{duration(max(0.0, now - view.last_activity))} ago")
    tail.append(cost(tree.subtree_usage(view.task_id)))
    tail = [part for part in tail if part]
    while tail and width - columns("  ".join(tail)) < NARROW:
        tail.pop()
    right = "  ".join(tail)
    left = f"  {MARKS.get(view.state, '?')} {one_line(view.label or view.goal, 200) or view.task_id}"
    room = width - columns(right) - 5  # a long name leaves half of it to what the task does
    what = fitted(doing(view), max(room // 2, room - columns(left), 10))
    left = fitted(left, max(10, room - columns(what)))
    space = max(2, width - columns(left) - columns(what) - columns(right) - 3)
    return f"{left} · {what}{' ' * space}{right}".rstrip()


class Dock(Static):
    """The lines on the screen."""

    def __init__(self) -> None:
        super().__init__("", markup=False, id="dock")
        self.folded = False
        self._shown: list[str] = []

    def on_click(self) -> None:
        """Fold or unfold."""
        self.folded = not self.folded

    def draw(self, tree: TreeView, session_id: str, now: float, *, most: int = MOST) -> None:
        """Show what lives now."""
        width = self.screen.size.width - 2
        lines = dock_lines(tree, session_id, now, width=width, folded=self.folded, most=most) if most else []
        if lines != self._shown:
            same = len(lines) == len(self._shown)
            self._shown = lines
            self.display = bool(lines)
            self.update(Content("\n".join(lines)), layout=not same)
