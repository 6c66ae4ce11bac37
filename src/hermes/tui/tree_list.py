"""The tree of tasks as a list of lines in columns, as wide as there is room for. Draws; asks nothing of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from hermes.chat.render import duration, fitted, one_line, quantity
from hermes.chat.tree_text import MARKS, doing
from hermes.core.views import TaskView
from hermes.tui.line_list import Cell, LineList
from hermes.tui.tree_model import Row, Sums

__all__ = ["TreeList", "money", "only_ascii", "plain_marks"]

#: For terminals without these letters.
plain_marks = {
    "queued": ".",
    "running": ">",
    "suspended": "=",
    "completed": "+",
    "exhausted": "!",
    "cancelled": "-",
    "failed": "x",
    "timed_out": "x",
}
_INKS = {
    "running": "live",
    "queued": "waiting",
    "suspended": "waiting",
    "failed": "bad",
    "timed_out": "bad",
    "exhausted": "bad",
    "cancelled": "dim",
}


class _Column(NamedTuple):
    name: str
    width: int
    least: int  # columns of the screen below which it is left out


_NARROW = (
    _Column("state", 14, 34),
    _Column("time", 7, 44),
    _Column("own", 6, 66),
    _Column("all", 6, 56),
    _Column("cost", 8, 60),
    _Column("files", 5, 72),
)
_WIDE = (
    _Column("state", 26, 0),
    _Column("time", 8, 0),
    _Column("own tok", 8, 0),
    _Column("all tok", 8, 0),
    _Column("cost", 9, 0),
    _Column("files", 6, 0),
)
#: From here on a row has room for the id beside the goal.
WIDE = 110


def money(sums: Sums) -> str:
    """US dollars of a task with everything under it; nothing where no price is known."""
    return f"${sums.cost:.4f}" if sums.priced and sums.cost else ""


def only_ascii(encoding: str | None) -> bool:
    """Whether text in an encoding cannot hold the signs and branches of the tree."""
    try:
        "".join([*MARKS.values(), "├─└│▸"]).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def _columns(width: int) -> tuple[_Column, ...]:
    return _WIDE if width >= WIDE else tuple(column for column in _NARROW if width >= column.least)


class TreeList(LineList):
    """The rows of a `TreeModel`. `plain` uses ASCII alone."""

    def __init__(self, *, plain: bool = False, id: str | None = None) -> None:  # noqa: A002  the name Textual uses
        super().__init__(id=id)
        self.rows: list[Row] = []
        self.now = 0.0
        self.plain = plain
        self.nothing = "no tasks yet"

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def empty(self) -> str:
        """What is shown without tasks."""
        return self.nothing

    @property
    def chosen(self) -> TaskView | None:
        """The task under the cursor."""
        return self.rows[self.cursor].view if self.cursor < len(self.rows) else None

    def fill(self, rows: list[Row], now: float) -> None:
        """Show other rows; the cursor stays on its task, and the task at its place on the screen."""
        kept = self.chosen
        if kept is not None and not (self.cursor < len(rows) and rows[self.cursor].view.task_id == kept.task_id):
            for index, row in enumerate(rows):
                if row.view.task_id == kept.task_id:
                    self.top += index - self.cursor
                    self.cursor = index
                    break
        self.rows, self.now = rows, now
        self.refill()

    def headings(self, width: int) -> str:
        """The names of the columns, over the rows."""
        columns = _columns(width)
        left = width - sum(column.width + 1 for column in columns)
        return set_cell_size("  task", left) + "".join(" " + _fit(column.name, column) for column in columns)

    def cells(self, index: int, width: int) -> Sequence[Cell]:
        """One task: branch, sign, what it is for, then its figures."""
        row = self.rows[index]
        view = row.view
        columns = _columns(width)
        left = width - sum(column.width + 1 for column in columns)
        ink = _INKS.get(view.state, "") if row.found else "dim"
        lead = self._lead(row)
        marks = plain_marks if self.plain else MARKS
        head = f"{marks.get(view.state, '?')} "
        fold = (("+ " if self.plain else "▸ ") + f"{row.sums.going or ''} ").replace("  ", " ") if row.folded else ""
        name = f"{view.task_id}  " if width >= WIDE else ""
        room = left - cell_len(lead + head + fold + name)
        what = "conversation" if view.kind == "main" else view.goal or view.task_id
        text = _cut(one_line(what, 300), max(0, room))
        found = [(lead, "dim"), (head, ink), (fold, "mark"), (name, "dim"), (text, "" if row.found else "dim")]
        for column in columns:
            value = self._value(row, column.name)
            found.append((" " + _fit(value, column), ink if column.name == "state" else "dim" if view.ended else ""))
        return found

    def _lead(self, row: Row) -> str:
        if not row.lead:
            return ""
        on, off, more, last = ("| ", "  ", "|-", "`-") if self.plain else ("│ ", "  ", "├─", "└─")
        return "".join(on if goes_on else off for goes_on in row.lead[:-1]) + (more if row.lead[-1] else last)

    def _value(self, row: Row, name: str) -> str:
        view, sums = row.view, row.sums
        if name == "state":
            return doing(view).removeprefix("running ")  # the sign before the row says that it runs
        if name == "time":
            return duration(view.seconds(self.now)) if view.state != "queued" or view.ran else ""
        if name.startswith("own"):
            return quantity(sums.own) if sums.own else ""
        if name.startswith("all"):
            return quantity(sums.tokens) if sums.tokens else ""
        if name == "cost":
            return money(sums)
        return str(len(sums.files)) if sums.files else ""


def _cut(text: str, width: int) -> str:
    """A text in exactly so many columns; what is cut off is marked."""
    return set_cell_size(fitted(text, width), width)


def _fit(text: str, column: _Column) -> str:
    """A value within its column: words to the left, figures to the right."""
    if column.name == "state":
        return _cut(text, column.width)
    if column.name == "time" and len(text) > column.width:
        text = text.replace(" ", "")
    return text[: column.width].rjust(column.width)
