"""How many rows run at once, and whether another may start: the number can be changed, and the door held shut, while
they run. What a row is, and when a run stops, is not its business."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

__all__ = ["Crew"]


class Crew:
    """Workers that take rows one by one. `wanted` is their number, `live` how many there are."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.live = 0
        self._held: set[str] = set()
        self._changed = anyio.Event()
        self._group: TaskGroup | None = None
        self._work: Callable[[], Awaitable[bool]] | None = None
        self._left: Callable[[], int] = lambda: 0

    def hold(self, why: str) -> None:
        """Let no row start until `why` is released."""
        self._held.add(why)

    def release(self, *whys: str) -> None:
        """Drop these reasons (none given: all) to let no row start."""
        self._held.difference_update(whys or tuple(self._held))
        if not self._held:
            changed, self._changed = self._changed, anyio.Event()
            changed.set()

    def held(self, why: str) -> bool:
        """Whether `why` keeps rows from starting."""
        return why in self._held

    @property
    def crowded(self) -> bool:
        """Whether there are more workers than are wanted: one of them has to leave."""
        return self.live > self.wanted

    async def open(self) -> None:
        """Wait until a row may start."""
        while self._held:
            await self._changed.wait()

    async def run(self, work: Callable[[], Awaitable[bool]], left: Callable[[], int]) -> None:
        """Let workers call `work` until it answers False to each of them. `left` is how many rows wait."""
        async with anyio.create_task_group() as group:
            self._group, self._work, self._left = group, work, left
            self._fill()
        self._group = None

    def resize(self, wanted: int) -> None:
        """Change the number of workers: new ones begin now, those over it leave after their row."""
        self.wanted = wanted
        self._fill()

    def _fill(self) -> None:
        if self._group is None:
            return
        missing = min(self.wanted - self.live, self._left())
        for _ in range(missing):
            self.live += 1
            self._group.start_soon(self._one)

    async def _one(self) -> None:
        assert self._work is not None
        try:
            while not self.crowded and await self._work():
                pass
        finally:
            self.live -= 1
