"""One thread that starts commands which have to end with this process.

The kernel ends such a command when the *thread* that started it ends, and idle worker threads end after seconds. So
one thread starts them all and lives as long as the runtime. It is no pool: a queue and one wake-up of the loop cost a
third of what a change to a pool's thread does, and every command needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import anyio

__all__ = ["Spawner"]

T = TypeVar("T")
_Done = Callable[[Any, BaseException | None], None]
_Work = tuple[Callable[[], Any], asyncio.AbstractEventLoop, _Done]
_Queue = SimpleQueue[_Work | None]


class Spawner:
    """`close` it when no command of it is wanted any more: it ends what still runs."""

    def __init__(self) -> None:
        self._queue: _Queue | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread. Once handed over it is waited for, so that nothing started is lost.

        Raises RuntimeError where this machine gives no thread.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def done(value: T, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        with self._lock:
            if self._queue is None:
                queue: _Queue = SimpleQueue()
                thread = threading.Thread(target=_serve, args=(queue,), name="hermes-spawner", daemon=True)
                thread.start()
                self._queue, self._thread = queue, thread
            self._queue.put((work, loop, done))
        with anyio.CancelScope(shield=True):
            found = await future
        return found

    def close(self) -> None:
        """End the thread (blocking, a moment), after what was handed over. Safe to call twice."""
        with self._lock:
            queue, self._queue = self._queue, None
            thread, self._thread = self._thread, None
        if queue is not None and thread is not None:
            queue.put(None)
            thread.join()


def _serve(queue: _Queue) -> None:
    while (item := queue.get()) is not None:
        work, loop, done = item
        value, failure = None, None
        try:
            value = work()
        except BaseException as error:  # carried to whoever waits on the loop, whatever it is
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has been closed, and nobody is left to tell
            loop.call_soon_threadsafe(done, value, failure)
        del item, work, loop, done, value, failure  # an idle thread keeps nothing of the last work alive
