"""Who waits for a permit, and in which order: trees take turns, and within a tree who came first is first.

It knows no time and gives nothing away.
"""

from __future__ import annotations

from collections import deque

import anyio

__all__ = ["Line", "Waiter"]


class Waiter:
    """One request that waits. `permit` is set before `event`; without it the request was sent away."""

    __slots__ = ("event", "permit", "tokens")

    def __init__(self, tokens: float = 0.0) -> None:
        self.event = anyio.Event()
        self.permit: float | None = None
        self.tokens = tokens


class Line:
    """Waiters by tree; `count` of them in all. The tree whose waiter was taken goes to the end of the row."""

    def __init__(self) -> None:
        self._trees: dict[str, deque[Waiter]] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    @property
    def trees(self) -> int:
        """How many trees wait."""
        return len(self._trees)

    def push(self, tree: str, waiter: Waiter, *, first: bool = False) -> None:
        """Stand in line; `first` before the others of the tree."""
        row = self._trees.setdefault(tree, deque())
        if first:
            row.appendleft(waiter)
        else:
            row.append(waiter)
        self.count += 1

    def peek(self) -> Waiter:
        """Whose turn it is. Raises LookupError if nobody waits."""
        for row in self._trees.values():
            return row[0]
        raise LookupError("nobody waits")

    def pop(self) -> Waiter | None:
        """Take whose turn it is out; None if nobody waits."""
        tree = next(iter(self._trees), None)
        if tree is None:
            return None
        row = self._trees.pop(tree)
        waiter = row.popleft()
        if row:
            self._trees[tree] = row
        self.count -= 1
        return waiter

    def remove(self, tree: str, waiter: Waiter) -> None:
        """Take one out who waits no more; nothing happens if it was sent away before."""
        row = self._trees.get(tree)
        if row is None or waiter not in row:
            return
        row.remove(waiter)
        self.count -= 1
        if not row:
            del self._trees[tree]
