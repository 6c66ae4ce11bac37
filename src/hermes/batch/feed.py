"""The rollouts that wait, brought from the dataset a few at a time: what a row holds is in memory only from shortly
before it starts. The order is the dataset's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import anyio

from hermes.batch.plan import Item
from hermes.batch.threads import Threads

__all__ = ["Feed"]

#: Rollouts read at once, and bytes of their prompts after which fewer are.
AT_ONCE = 64
ENOUGH_BYTES = 4_000_000


def _nothing(_items: Sequence[Item]) -> None:
    """Nothing is made ready."""


class Feed:
    """Gives `items` one by one. Reading them may block, so it happens in a thread; `ahead` is called there with what
    was read, for what can be made ready for many at once."""

    def __init__(
        self, items: Sequence[Item], threads: Threads, ahead: Callable[[Sequence[Item]], None] = _nothing
    ) -> None:
        self._items = items
        self._threads = threads
        self._ahead = ahead
        self._at = 0
        self._ready: deque[Item] = deque()
        self._lock = anyio.Lock()

    def __len__(self) -> int:
        """How many are left."""
        return len(self._items) - self._at + len(self._ready)

    async def next(self) -> Item | None:
        """The next one, None after the last.

        Raises:
            OperatorError: the dataset is not what it was.
        """
        if not self._ready and self._at < len(self._items):
            async with self._lock:
                if not self._ready and self._at < len(self._items):
                    self._ready.extend(await self._threads.run(self._read, self._at))
                    self._at += len(self._ready)
        return self._ready.popleft() if self._ready else None

    def _read(self, start: int) -> list[Item]:
        found: list[Item] = []
        size = 0
        while start + len(found) < len(self._items) and len(found) < AT_ONCE and size < ENOUGH_BYTES:
            item = self._items[start + len(found)]
            found.append(item)
            size += len(item.row.prompt)
        self._ahead(found)
        return found
