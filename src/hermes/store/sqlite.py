"""The journal on disk: one writer thread with group commit, one reader thread, both on one SQLite file.

`submit` never waits. Reads wait until everything submitted before them has its outcome and then read what is committed,
so a program always sees its own writes. It deliberately encodes nothing, decodes no bodies and adopts nothing.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import anyio

from hermes.core.clock import NO_HOLD, Hold
from hermes.core.errors import StoreError
from hermes.store import keeping, reading
from hermes.store.commit import Committed, GroupCommit, Item
from hermes.store.database import Durability, begin, open_reader, open_writer, store_error
from hermes.store.ops import (
    CallRow,
    DeliveryRow,
    EventRow,
    HistoryRow,
    InboxRow,
    OwnerRow,
    SegmentRow,
    SessionRow,
    StoreCounts,
    TaskRow,
    Unit,
)
from hermes.store.refusals import closed
from hermes.store.statements import commit_units
from hermes.store.worker import Worker

__all__ = ["SqliteStore", "open_store"]

_log = logging.getLogger(__name__)
T = TypeVar("T")


class _Writing:
    """What runs on the writer's thread. After its first failure it refuses every further batch with that cause."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._cause: StoreError | None = None
        self.hurry = False

    def __call__(self, db: sqlite3.Connection, items: Sequence[Item]) -> dict[int, StoreError]:
        if self._cause is not None:
            raise self._cause.with_traceback(None)
        try:
            return commit_units(db, items, self._begin)
        except sqlite3.Error as error:
            self._cause = store_error(error, self._path)
            self._cause.__cause__ = error
            raise self._cause from error

    def _begin(self, db: sqlite3.Connection) -> None:
        begin(db, self._busy_seconds, lambda: self.hurry)


def log_broken(error: StoreError) -> None:
    """Write the failure of a journal to the log."""
    _log.error("%s", error)


class SqliteStore:
    """A `Store` on disk. Made by `open_store`; belongs to the thread of its event loop."""

    def __init__(
        self,
        path: Path,
        *,
        hold: Hold,
        on_broken: Callable[[StoreError], None],
        busy_seconds: float,
        close_seconds: float,
    ) -> None:
        self.path = path
        self._close_seconds = close_seconds
        self._writing = _Writing(path, busy_seconds)
        self._writer = Worker("hermes-journal-writer", hold)
        self._reader = Worker("hermes-journal-reader", hold)
        self._commits = GroupCommit(self._writer, self._writing, on_broken)
        self._prompts: dict[bytes, str] = {}

    async def start(self, durability: Durability, max_pages: int | None) -> None:
        """Open the file. Raises as `open_store`."""
        await self._writer.start(lambda: open_writer(self.path, durability, max_pages=max_pages))
        await self._reader.start(lambda: open_reader(self.path))

    @property
    def keeps(self) -> bool:
        """A file keeps everything."""
        return True

    @property
    def pending(self) -> int:
        """Operations submitted whose outcome is not known yet."""
        return self._commits.pending

    def submit(self, unit: Unit) -> Committed:
        """Hand a unit to the writer. Never waits and never raises: the ticket tells."""
        return self._commits.submit(unit)

    def log(self, row: EventRow) -> None:
        """Hand an event to the writer. Never waits and never raises; a refusal is logged."""
        self._commits.log(row)

    async def flush(self) -> None:
        """Wait until everything submitted so far has its outcome. Raises the StoreError that broke the journal."""
        await self._commits.flush()

    async def _read(self, job: Callable[[sqlite3.Connection], T]) -> T:
        await self._commits.flush()
        try:
            return await self._reader.run(job)
        except sqlite3.Error as error:
            raise store_error(error, self.path) from error

    async def task(self, task_id: str) -> TaskRow | None:
        """One task."""
        return await self._read(lambda db: reading.task(db, task_id))

    async def tasks(self, session_id: str) -> list[TaskRow]:
        """All tasks of a session, in order of creation."""
        return await self._read(lambda db: reading.tasks(db, session_id))

    async def find_tasks(self, prefix: str, limit: int = 20) -> list[TaskRow]:
        """Tasks whose id begins with `prefix`, in order of their ids."""
        return await self._read(lambda db: reading.find_tasks(db, prefix, limit))

    async def entries(self, task_id: str, start: int = 0) -> list[tuple[int, bytes]]:
        """(position, encoded entry) from `start` on."""
        return await self._read(lambda db: reading.entries(db, task_id, start))

    async def segment(self, task_id: str) -> SegmentRow | None:
        """The last segment."""
        return await self._read(lambda db: reading.segment(db, task_id, self._prompts))

    async def calls(self, task_id: str, position: int) -> list[CallRow]:
        """The calls of one assistant message, in the order of the calls."""
        return await self._read(lambda db: reading.calls(db, task_id, position))

    async def histories(self, task_ids: Sequence[str]) -> list[HistoryRow | None]:
        """What tasks go on from, in one read."""
        return await self._read(lambda db: [reading.history(db, one, self._prompts) for one in task_ids])

    async def inbox(self, task_id: str) -> list[InboxRow]:
        """The control messages of a task, in order of arrival."""
        return await self._read(lambda db: reading.inbox(db, task_id))

    async def queued(self, owner: str) -> list[InboxRow]:
        """Queued control messages of the tasks of an owner, in order of arrival."""
        return await self._read(lambda db: reading.queued(db, owner))

    async def deliveries(self, target_id: str) -> list[DeliveryRow]:
        """Pending deliveries for a task, oldest first."""
        return await self._read(lambda db: reading.deliveries(db, target_id))

    async def session(self, session_id: str) -> SessionRow | None:
        """One session."""
        return await self._read(lambda db: reading.session(db, session_id))

    async def sessions(self, limit: int = 50, source: str | None = None) -> list[SessionRow]:
        """Newest use first."""
        return await self._read(lambda db: reading.sessions(db, limit, source))

    async def events(self, session_id: str, after: int = 0, limit: int = 10_000) -> list[EventRow]:
        """Kept events of a session in order of `seq` greater than `after`."""
        return await self._read(lambda db: reading.events(db, session_id, after, limit))

    async def events_of_type(self, type_: str, since: float = 0.0, session_id: str | None = None) -> list[EventRow]:
        """Kept events of one type from `since` on, of one session or of all, oldest first."""
        return await self._read(lambda db: reading.events_of_type(db, type_, since, session_id))

    async def last_seq(self, session_id: str) -> int:
        """The greatest `seq` kept for a session, 0 if none."""
        return await self._read(lambda db: reading.last_seq(db, session_id))

    async def owner(self, owner_id: str) -> OwnerRow | None:
        """One start of a process that owned tasks."""
        return await self._read(lambda db: reading.owner(db, owner_id))

    async def stale_sessions(self, before: float, limit: int = 1_000) -> list[SessionRow]:
        """Sessions unused since `before` with nothing unfinished and no unseen end, oldest use first."""
        return await self._read(lambda db: keeping.stale_sessions(db, before, limit))

    async def unseen(self, session_id: str | None = None, limit: int = 1_000) -> list[TaskRow]:
        """Ended tasks whose end nobody was told of, in order of creation."""
        return await self._read(lambda db: keeping.unseen(db, session_id, limit))

    async def counts(self) -> StoreCounts:
        """How much there is."""
        return await self._read(keeping.counts)

    async def close(self) -> None:
        """Drain, stop both threads and close, within `close_seconds` whatever happens; what then has no outcome ends
        with a StoreError and is logged. Shielded; may be called again."""
        self._commits.close(closed(str(self.path)))
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(self._close_seconds):
                await self._reader.stop()
                await self._writer.stop()
                return
            self._writing.hurry = True
            self._commits.abandon(
                StoreError(
                    f"the journal {self.path} was not written to its end within {self._close_seconds:g} s; look for a "
                    "program that holds it or a failing disk; what was committed is safe"
                )
            )


async def open_store(
    path: Path,
    *,
    durability: Durability = "process",
    hold: Hold = NO_HOLD,
    on_broken: Callable[[StoreError], None] = log_broken,
    busy_seconds: float = 10.0,
    close_seconds: float = 5.0,
    max_pages: int | None = None,
) -> SqliteStore:
    """Open the journal at `path` (usually `<home>/runtime.db`), making the folder and the file where missing.

    `durability`: "process" survives `kill -9`, "power" a power cut too. `hold` keeps a simulated clock standing while a
    thread works. `on_broken` is called once, on the loop's thread, with the failure that stopped the journal: a file
    held by another process for `busy_seconds`, a full disk, an I/O error. `close_seconds` bounds `close`, `max_pages`
    (of 4 KB) the file, for tests.

    Raises:
        StoreError: the file is another program's, newer than this one, damaged or busy; it is untouched.
        OperatorError: the folder cannot be made or written.
    """
    store = SqliteStore(path, hold=hold, on_broken=on_broken, busy_seconds=busy_seconds, close_seconds=close_seconds)
    try:
        await store.start(durability, max_pages)
    except BaseException:
        await store.close()
        raise
    return store
