"""Requests under way that can be dropped all at once, from outside the tasks that wait for them.

After the machine slept nothing tells a client that its connections are gone: it would wait for the silence to become
too long. Whoever notices the sleep drops them here, and each waiting task gets `Dropped` in place of its answer. It
closes no connection itself (that is for whoever opened it) and asks nothing again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hermes.providers.waits import Waits

__all__ = ["Dropped", "Flight", "Flights"]


class Dropped(Exception):
    """The request was dropped: nothing ran for `seconds`, and its connection may be dead."""

    def __init__(self, seconds: float) -> None:
        long = f"{seconds:.0f} s" if seconds < 300 else f"{seconds / 60:.0f} min"
        super().__init__(f"nothing ran here for {long} (the machine slept, or the process was stopped)")
        self.seconds = seconds


class Flights:
    """The requests of one event loop that wait for their server; `waits` end what takes too long."""

    def __init__(self) -> None:
        self.waits = Waits()
        self.under_way: set[Flight] = set()
        self.drops = 0
        self.seconds = 0.0

    def drop(self, seconds: float) -> None:
        """Drop every request that is under way, as nothing ran for `seconds`. Call it on the event loop."""
        self.drops += 1
        self.seconds = seconds
        for flight in self.under_way:
            if flight.waiting is not None:
                flight.waiting.cancel()


class Flight:
    """One request, from its first step to `end`. Used by one task at a time."""

    __slots__ = ("_drops", "_flights", "waiting")

    def __init__(self, flights: Flights) -> None:
        self.waiting: asyncio.Task[object] | None = None  # for its server, and may be cancelled
        self._flights = flights
        self._drops = -1

    async def step(self, advance: Callable[[], Awaitable[None]]) -> None:
        """Wait for one step of the request.

        Raises:
            Dropped: it was dropped, now or since the last step.
        """
        flights = self._flights
        if self._drops != flights.drops:
            if self._drops >= 0:
                raise Dropped(flights.seconds)
            self._drops = flights.drops
            flights.under_way.add(self)
        self.waiting = task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        try:
            await advance()
        except BaseException as error:
            if task is None or flights.drops == self._drops:
                raise
            left = task.uncancel() if task.cancelling() > before else before
            if isinstance(error, asyncio.CancelledError) and left > before:  # from outside as well: that counts
                raise
            raise Dropped(flights.seconds) from None
        finally:
            self.waiting = None

    def end(self) -> None:
        """The request is over. May be called twice."""
        self._flights.under_way.discard(self)
