"""The rows of a tree of tasks: which are shown, in which order, with the sums of everything under each.

A fold of the view that every other place reads too, made anew from it each time, so that it cannot drift from it. Knows
no screen and stops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

import msgspec

from hermes.core.views import TaskView, TreeView

__all__ = ["FILTERS", "SORTS", "Counts", "Filter", "Row", "Sort", "Sums", "TreeModel"]

Filter = Literal["all", "live", "ended", "failed"]
Sort = Literal["start", "tokens", "cost", "time", "activity"]
FILTERS: tuple[Filter, ...] = ("all", "live", "ended", "failed")
SORTS: tuple[Sort, ...] = ("start", "tokens", "cost", "time", "activity")
_BAD = frozenset({"failed", "timed_out", "cancelled", "exhausted"})


class Sums:
    """What a task and everything under it used: tokens in and out together, US dollars, paths written."""

    __slots__ = ("_more", "_own", "cost", "going", "own", "priced", "tokens")

    def __init__(self, view: TaskView) -> None:
        usage = view.usage
        self.own = self.tokens = usage.input + usage.output
        self.priced = usage.cost_usd is not None
        self.cost = usage.cost_usd or 0.0
        self.going = 0  # tasks under it that have not ended
        self._own = view.files_written
        self._more: set[str] | None = None

    @property
    def files(self) -> Collection[str]:
        """Paths written, each once."""
        return self._own if self._more is None else self._more

    def add(self, under: Sums, child: TaskView) -> None:
        """Add a child with everything under it."""
        self.tokens += under.tokens
        self.cost += under.cost
        self.priced = self.priced or under.priced
        self.going += under.going + (not child.ended)
        if under.files:
            if self._more is None:
                self._more = set(self._own)
            self._more.update(under.files)


class Row(msgspec.Struct, frozen=True, gc=False):
    """A line of the tree. `lead` holds for each level above it, its own last, whether that branch goes on below;
    `parent` whether there is something under it, `folded` whether that is hidden, `found` whether the filter means it
    or only something under it."""

    view: TaskView
    sums: Sums
    lead: tuple[bool, ...]
    parent: bool
    folded: bool
    found: bool


class Counts(msgspec.Struct, frozen=True):
    """How many tasks of the session are in which state, the conversation itself left out."""

    running: int = 0
    queued: int = 0
    suspended: int = 0
    ended: int = 0
    failed: int = 0


class TreeModel:
    """What of a view is shown. `session_id` empty: nothing has begun yet."""

    def __init__(self, tree: TreeView, session_id: str) -> None:
        self.tree = tree
        self.session_id = session_id
        self.filter: Filter = "all"
        self.sort: Sort = "start"
        self.search = ""
        self.part = 0  # 0 all, else the number of one tree of `parts`
        self.folded: set[str] = set()
        self.counts = Counts()
        self.total: Sums | None = None  # of the whole session
        self.sums: dict[str, Sums] = {}
        self._roots: list[TaskView] = []

    def rows(self, now: float) -> list[Row]:
        """The rows as the view stands; `now` is the wall clock in seconds. `counts`, `total`, `sums` follow."""
        order = self._gathered()
        shown = self._found(order)
        tops = self._tops(order)
        key = self._key(now)
        children = self.tree.children
        tasks = self.tree.tasks
        sums = self.sums
        held = tasks if shown is None else shown
        rows: list[Row] = []
        stack = [(view, ()) for view in reversed(self._sorted(tops, key))]  # type: list[tuple[TaskView, tuple[bool, ...]]]
        while stack:
            view, lead = stack.pop()
            name = view.task_id
            if shown is not None and name not in shown:
                continue
            below = children.get(name)
            under = () if below is None else [tasks[each] for each in below if each in held]
            folded = bool(under) and name in self.folded
            rows.append(Row(view, sums[name], lead, bool(under), folded, shown is None or shown[name]))
            if under and not folded:
                ordered = self._sorted(under, key)
                more, end = (*lead, True), (*lead, False)
                stack.append((ordered[-1], end))
                stack += [(child, more) for child in ordered[-2::-1]]
        return rows

    def parts(self) -> list[list[TaskView]]:
        """The trees that the session grew, oldest first: what one call started together, or a run in the background."""
        found: dict[str, list[TaskView]] = {}
        for view in self.tree.tasks.values():
            if view.session_id != self.session_id or view.kind == "main":
                continue
            above = self.tree.tasks.get(view.parent_id or "")
            if above is None or above.kind == "main":
                found.setdefault(view.group or view.task_id, []).append(view)
        return list(found.values())

    def step(self, by: int) -> None:
        """Show the next tree of `parts` (1), or the one before (-1); before the first are all."""
        self.part = (self.part + by) % (len(self.parts()) + 1)

    # -- one pass over the view -----------------------------------------------------------------------------------

    def _gathered(self) -> list[TaskView]:
        """Every task of the session, parents first; counts and sums are made on the way."""
        tree = self.tree
        tasks, children = tree.tasks, tree.children
        order: list[TaskView] = []
        self._roots = [view for view in tree.roots() if view.session_id == self.session_id] if self.session_id else []
        stack = [*self._roots]
        while stack:
            view = stack.pop()
            order.append(view)
            below = children.get(view.task_id)
            if below is not None:
                stack += [tasks[child] for child in below if child in tasks]
        sums = {view.task_id: Sums(view) for view in order}
        states: dict[str, int] = {}
        for view in reversed(order):
            if view.kind != "main":
                states[view.state] = states.get(view.state, 0) + 1
            above = sums.get(view.parent_id or "")
            if above is not None:
                above.add(sums[view.task_id], view)
        self.sums = sums
        self._count(states, [sums[view.task_id] for view in order if view.parent_id not in sums])
        return order

    def _count(self, states: dict[str, int], tops: Sequence[Sums]) -> None:
        going = {name: states.pop(name, 0) for name in ("running", "queued", "suspended")}
        failed = states.get("failed", 0) + states.get("timed_out", 0)
        self.counts = Counts(**going, ended=sum(states.values()), failed=failed)
        self.total = None
        for each in tops:
            if self.total is None:
                self.total = Sums(TaskView("", self.session_id, None))
            self.total.tokens += each.tokens
            self.total.cost += each.cost
            self.total.priced = self.total.priced or each.priced

    def _found(self, order: Sequence[TaskView]) -> dict[str, bool] | None:
        """The tasks that are shown: True where the filter means them, False where something under them is meant. None:
        all of them."""
        if self.filter == "all" and not self.search:
            return None
        words = self.search.casefold().split()
        shown: dict[str, bool] = {}
        for view in reversed(order):
            if self._passes(view, words):
                shown[view.task_id] = True
            if view.task_id in shown and view.parent_id is not None:
                shown.setdefault(view.parent_id, False)
        return shown

    def _passes(self, view: TaskView, words: Sequence[str]) -> bool:
        if self.filter == "live" and view.ended:
            return False
        if self.filter == "ended" and not view.ended:
            return False
        if self.filter == "failed" and view.state not in _BAD:
            return False
        if not words:
            return True
        text = f"{view.task_id} {view.goal} {view.label} {view.model} {view.state} {view.last_tool}".casefold()
        return all(word in text for word in words)

    def _tops(self, order: Sequence[TaskView]) -> list[TaskView]:
        parts = self.parts() if self.part else []
        if 0 < self.part <= len(parts):
            return parts[self.part - 1]
        self.part = 0
        return self._roots

    def _key(self, now: float) -> Callable[[TaskView], float] | None:
        """What siblings are ordered by, the largest first; None: as they came."""
        sums = self.sums
        keys: dict[str, Callable[[TaskView], float]] = {
            "tokens": lambda view: -sums[view.task_id].tokens,
            "cost": lambda view: -sums[view.task_id].cost,
            "time": lambda view: -view.seconds(now),
            "activity": lambda view: -view.last_activity,
        }
        return keys.get(self.sort)

    @staticmethod
    def _sorted(views: Sequence[TaskView], key: Callable[[TaskView], float] | None) -> Sequence[TaskView]:
        return views if key is None else sorted(views, key=key)

    # -- folding --------------------------------------------------------------------------------------------------

    def fold(self, task_id: str, folded: bool | None = None) -> None:
        """Hide what is under a task, or show it again; None: whichever it is not."""
        hide = task_id not in self.folded if folded is None else folded
        (self.folded.add if hide else self.folded.discard)(task_id)

    def going(self, task_id: str) -> Iterator[TaskView]:
        """The tasks under one (not itself) that have not ended."""
        return (view for view in self.tree.subtree(task_id) if view.task_id != task_id and not view.ended)
