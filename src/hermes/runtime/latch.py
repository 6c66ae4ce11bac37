"""Something that happens once, and that others may wait for.

An event of the loop holds a queue of waiters from its birth; a thousand tasks have several each, and hardly anybody
waits for one. It belongs to the loop's thread.
"""

from __future__ import annotations

import anyio
import anyio.lowlevel

__all__ = ["Latch"]


class Latch:
    """Not set at first; once set it stays so."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """It has happened: wake whoever waits. Repeated: nothing."""
        self._set = True
        event, self._event = self._event, None
        if event is not None:
            event.set()

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._set

    async def wait(self) -> None:
        """Wait until it has happened."""
        if self._set:
            await anyio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
