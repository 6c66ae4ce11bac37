"""One thread that owns one connection: jobs go in by a queue, each result comes back to the event loop by one wake-up.

It knows no SQL. Simulated time stands from the moment a job is posted until its result is on the loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from hermes.core.clock import Hold

__all__ = ["Worker"]

T = TypeVar("T")
_Done = Callable[[Any, BaseException | None], None]
_Job = tuple[Callable[[sqlite3.Connection], Any], _Done]


class Worker:
    """The thread. Everything but the jobs themselves belongs to the thread of the loop that made it."""

    def __init__(self, name: str, hold: Hold) -> None:
        self._loop = asyncio.get_running_loop()
        self._hold = hold
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._connect: Callable[[], sqlite3.Connection] | None = None

    async def start(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """Start the thread and open its connection there. Raises what `connect` raises; the thread is gone then."""
        opened: asyncio.Future[None] = self._loop.create_future()
        self._connect = connect
        self.post(lambda db: None, lambda value, error: _settle(opened, value, error))
        self._thread.start()
        await opened

    def post(self, job: Callable[[sqlite3.Connection], T], done: _Done) -> None:
        """Queue `job`; `done(value, error)` is called on the loop's thread when it has run. Never waits."""
        self._hold.hold()
        self._jobs.put((job, done))

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run `job` and return its value. Cancelled meanwhile, the job still runs and its value is dropped."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.post(job, lambda value, error: _settle(future, value, error))
        return await future

    async def stop(self) -> None:
        """Let the thread finish its queue, close the connection and end; wait for it. Later calls wait too.
        A worker that was never started has nothing to stop."""
        if self._connect is None:
            return
        if not self._stopped.is_set():
            self._hold.hold()
            self._jobs.put(None)
            try:
                await self._stopped.wait()
            finally:
                self._hold.release()

    def _work(self) -> None:
        db: sqlite3.Connection | None = None
        failed: BaseException | None = None
        try:
            assert self._connect is not None
            db = self._connect()
        except BaseException as error:
            failed = error
        while (item := self._jobs.get()) is not None:
            job, done = item
            value, raised = None, failed
            if db is not None:
                try:
                    value = job(db)
                except BaseException as error:  # carried to whoever waits on the loop, whatever it is
                    raised = error
            if not self._back(self._deliver, done, value, raised) or db is None:
                break
            del item, job, done, value, raised  # an idle thread keeps nothing of the last job alive
        try:
            if db is not None:
                db.close()
        finally:
            self._back(self._stopped.set)

    def _back(self, call: Callable[..., None], *args: Any) -> bool:
        """Wake the loop; False when it is closed and nobody is left to tell."""
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            return False
        return True

    def _deliver(self, done: _Done, value: Any, error: BaseException | None) -> None:
        try:
            done(value, error)
        finally:
            self._hold.release()


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
