"""One thread that starts commands which have to end with this process.

The kernel ends such a command when the *thread* that started it ends, and idle worker threads end after seconds. So
one thread starts them all and lives as long as the runtime.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio

__all__ = ["Spawner"]

T = TypeVar("T")


class Spawner:
    """`close` it when no command of it is wanted any more: it ends what still runs."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread. Once begun it is waited for, so that nothing started is lost."""
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix="hermes-spawner")
            future = self._executor.submit(work)
        with anyio.CancelScope(shield=True):
            found = await asyncio.wrap_future(future)
        return found

    def close(self) -> None:
        """End the thread (blocking, a moment). Safe to call twice."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)
