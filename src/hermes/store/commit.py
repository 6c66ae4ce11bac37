"""Group commit: units handed in during one turn of the event loop share a transaction, and batches grow under load.

All state belongs to the loop's thread, so there is no lock; the writer thread only sees sealed batches. A batch is
sealed at the end of the turn that opened it if the writer is idle or a person waits for it, else when the writer comes
back, and always when it is full. The first batch that fails as a whole stops the journal for good: what came after it
may build on what is lost.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from hermes.core.errors import StoreError
from hermes.store.ops import EventRow, Unit
from hermes.store.refusals import fresh
from hermes.store.worker import Worker

__all__ = ["BATCH_ROWS", "WOKEN", "Committed", "GroupCommit", "Write"]

#: A batch is sealed at this many operations, so that nobody waits behind a commit of seconds.
BATCH_ROWS = 2_000
#: Tasks that go on in one turn of the loop after a batch has landed. A thousand at once keep the loop for half a second
#: from everything else, and a person waits for two or three commits in one exchange. Fewer than may go to their model
#: in a turn: most pass there without waiting a second time.
WOKEN = 4

_log = logging.getLogger(__name__)

#: What a batch is made of, in order: units, and events that stand by themselves.
Item = Unit | EventRow
Write = Callable[[sqlite3.Connection, Sequence[Item]], dict[int, StoreError]]


class _Batch:
    __slots__ = ("_urgent", "_waiters", "done", "hurried", "items", "rows", "tickets")

    def __init__(self) -> None:
        self.rows = 0
        self.done = False
        self.hurried = False  # it is sealed at the end of this turn, whatever the writer is at
        self._urgent: list[asyncio.Future[None]] = []
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.items: list[Item] = []
        self.tickets: dict[int, Committed] = {}  # by the number of their item; an event has none

    def outcome(self, *, urgent: bool = False) -> asyncio.Future[None]:
        """What to wait for while the outcome is not known. Cheaper than an event: each task waits here each turn."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._urgent if urgent else self._waiters).append(future)
        return future

    def told(self) -> deque[asyncio.Future[None]]:
        """The outcome is known: let the urgent ones go on now; returns the others who wait for it."""
        for future in self._urgent:
            if not future.done():
                future.set_result(None)
        self._urgent.clear()
        return self._waiters


class Committed:
    """The ticket of a unit. `error` is the unit's own, once `done`."""

    __slots__ = ("_awaited", "_batch", "_urgent", "error")

    def __init__(self, batch: _Batch | None, error: StoreError | None = None, *, urgent: bool = False) -> None:
        self.error = error
        self._urgent = urgent
        self._batch = batch
        self._awaited = False

    @property
    def done(self) -> bool:
        """True once the outcome is known."""
        return self._batch is None or self._batch.done

    @property
    def awaited(self) -> bool:
        """True once somebody began to wait: the error then has a reader."""
        return self._awaited

    async def wait(self) -> None:
        """Wait, shielded, for the outcome; then raise a cancellation that came meanwhile, else the unit's error."""
        self._awaited = True
        batch = self._batch
        if batch is not None and not batch.done:
            await _outlast(batch, self._urgent)  # a cancellation that came meanwhile is raised there
        else:
            await checkpoint_if_cancelled()
        if self.error is not None:
            raise fresh(self.error) from self.error


async def _outlast(batch: _Batch, urgent: bool) -> None:
    """Wait for a batch through every cancellation: of a scope, and of the bare task (Ctrl+C in `asyncio.run`)."""
    try:
        await batch.outcome(urgent=urgent)
    except asyncio.CancelledError as error:
        # Shielded only from here on: a scope around every wait was a large part of what a commit cost.
        cancelled = error
    else:
        return
    with anyio.CancelScope(shield=True):
        while not batch.done:
            try:
                await batch.outcome(urgent=urgent)
            except asyncio.CancelledError as error:
                cancelled = error
    raise cancelled


class GroupCommit:
    """Collects units into batches for a writer. `on_broken` is called once, on the loop's thread."""

    def __init__(self, worker: Worker, write: Write, on_broken: Callable[[StoreError], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        self._write = write
        self._on_broken = on_broken
        self._open: _Batch | None = None
        self._flying: deque[_Batch] = deque()
        self._waking: deque[asyncio.Future[None]] = deque()  # in the order of their commits
        self._broken: StoreError | None = None
        self._closed: StoreError | None = None

    @property
    def pending(self) -> int:
        """Operations handed in whose outcome is not known yet."""
        under_way = sum([batch.rows for batch in self._flying if not batch.done])
        return under_way if self._open is None else under_way + self._open.rows

    def submit(self, unit: Unit) -> Committed:
        """Put a unit into the open batch. Never waits, never raises."""
        refusal = self._broken or self._closed
        if refusal is not None:
            return Committed(None, refusal)
        batch = self._open or self._opened()
        ticket = Committed(batch, urgent=unit.urgent)
        batch.tickets[len(batch.items)] = ticket
        batch.items.append(unit)
        batch.rows += len(unit.ops) or 1
        if batch.rows >= BATCH_ROWS:
            self._seal()
        elif unit.urgent and self._flying and not batch.hurried:
            batch.hurried = True
            self._loop.call_soon(self._hurry, batch)
        return ticket

    def log(self, row: EventRow) -> None:
        """Put an event into the open batch; it has no ticket, which is most of what a unit costs."""
        if self._broken is not None or self._closed is not None:
            return
        batch = self._open or self._opened()
        batch.items.append(row)
        batch.rows += 1
        if batch.rows >= BATCH_ROWS:
            self._seal()

    def _opened(self) -> _Batch:
        batch = self._open = _Batch()
        if not self._flying:
            self._loop.call_soon(self._seal_if_idle)
        return batch

    async def flush(self) -> None:
        """Wait until the outcome of everything handed in so far is known. Raises the failure that broke the
        journal."""
        batch = self._open or (self._flying[-1] if self._flying else None)
        if batch is not None and not batch.done:
            await batch.outcome()
        self.check()

    def check(self) -> None:
        """Raise why nothing can be written or read any more, as a new error, if that is so."""
        refusal = self._broken or self._closed
        if refusal is not None:
            raise fresh(refusal) from refusal

    def close(self, reason: StoreError) -> None:
        """Take nothing from now on; what was handed in still goes to the writer."""
        self._seal()
        self._closed = reason

    def abandon(self, reason: StoreError) -> None:
        """Stop waiting for the writer: units still on their way end with `reason`, their outcome is unknown."""
        if self.pending:
            self._break(reason)
            for batch in self._flying:
                self._fail(batch, reason)

    def _seal_if_idle(self) -> None:
        if not self._flying:
            self._seal()

    def _hurry(self, batch: _Batch) -> None:
        """A person waits: the writer goes on with this batch without asking the loop, which may be busy, for it."""
        if self._open is batch:
            self._seal()

    def _seal(self) -> None:
        batch, self._open = self._open, None
        if batch is None:
            return
        self._flying.append(batch)
        items, batch.items = batch.items, []
        self._worker.post(lambda db: self._write(db, items), self._landed)

    def _landed(self, errors: dict[int, StoreError] | None, failure: BaseException | None) -> None:
        batch = self._flying.popleft()  # the writer answers in the order of the queue
        if failure is not None:
            self._fail(batch, self._break(failure))
        elif not batch.done:
            for number, error in (errors or {}).items():
                ticket = batch.tickets.get(number)
                if ticket is not None:
                    ticket.error = error
                if ticket is None or not ticket.awaited:
                    _log.warning("a record that nobody waits for was refused: %s", error)
            self._finish(batch)
        if not self._flying:
            self._seal()

    def _break(self, failure: BaseException) -> StoreError:
        """Note the first failure, fail what is still collected, tell whoever runs the program. Returns the cause."""
        if self._broken is not None:
            return self._broken
        if isinstance(failure, StoreError):
            self._broken = failure
        else:
            self._broken = StoreError(f"the writer of the journal failed ({failure!r}); restart to go on")
            self._broken.__cause__ = failure
        batch, self._open = self._open, None
        if batch is not None:
            self._fail(batch, self._broken)
        self._on_broken(self._broken)
        return self._broken

    def _fail(self, batch: _Batch, cause: StoreError) -> None:
        for ticket in batch.tickets.values():
            ticket.error = cause
        self._finish(batch)

    def _finish(self, batch: _Batch) -> None:
        if batch.done:
            return
        batch.done = True
        batch.tickets = {}  # batch and tickets refer to each other; the collector must not be needed for them
        walking = bool(self._waking)
        self._waking.extend(batch.told())
        if not walking:
            self._wake()

    def _wake(self) -> None:
        """Let a few go on whose outcome is known, and more of them in the next turn of the loop."""
        waking, woken = self._waking, 0
        while waking and woken < WOKEN:
            future = waking.popleft()
            if not future.done():
                future.set_result(None)
                woken += 1
        if waking:
            self._loop.call_soon(self._wake)
