"""Blocking functions as tools: a bounded number of threads, and an honest count of what was left behind.

A thread cannot be stopped. When its call is cancelled or times out, the task goes on at once, the call counts as
abandoned (`tool.abandoned`) and keeps its place until its function really returns, so that calls that hang cannot grow
without bound. The threads are daemons: none keeps the program from ending. It runs no coroutine and stops no thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import anyio
from anyio import from_thread, lowlevel

from hermes.core.clock import NO_HOLD, Hold
from hermes.core.events import ToolAbandoned
from hermes.core.tools import CallContext

__all__ = ["BlockingPool"]

R = TypeVar("R")


class _Call:
    """One call on a thread. Its fields are read and written on the loop, once the thread has handed them over."""

    def __init__(self) -> None:
        self.finished = anyio.Event()
        self.abandoned = False
        self.value: Any = None
        self.error: Exception | None = None


class BlockingPool:
    """At most `threads` blocking calls at a time; further ones wait in order.

    `report(task_id, event)` is told of each abandoned call. `hold` keeps a simulated clock standing while a function
    runs. One pool belongs to one event loop.
    """

    def __init__(
        self,
        report: Callable[[str, ToolAbandoned], None],
        *,
        threads: int = 32,
        hold: Hold = NO_HOLD,
    ) -> None:
        self._report = report
        self._hold = hold
        self._places = anyio.Semaphore(threads)
        #: Calls left behind whose function still runs.
        self.abandoned = 0

    async def run(self, context: CallContext, name: str, function: Callable[..., R], *args: Any) -> R:
        """Run `function(*args)` on a thread for the call of `context` to the tool `name`; returns what it returns.

        Cancelled, it raises the cancellation at once and leaves the thread behind. Raises what the function raises;
        a function that ends its thread by `sys.exit` fails with RuntimeError.
        """
        await self._places.acquire()
        call = _Call()
        self._hold.hold()
        thread = threading.Thread(
            target=self._work,
            args=(call, lowlevel.current_token(), function, args),
            name=f"hermes-tool-{name}",
            daemon=True,
        )
        try:
            thread.start()
        except BaseException:
            self._hold.release()
            self._places.release()
            raise
        try:
            await call.finished.wait()
        finally:
            if call.finished.is_set():
                self._places.release()
            else:
                self._leave(call, context, name)
        if call.error is not None:
            raise call.error
        return cast(R, call.value)

    def _work(
        self, call: _Call, token: lowlevel.EventLoopToken, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        """On the thread: run the function and hand over what came of it."""
        try:
            try:
                call.value = function(*args)
            except SystemExit as error:
                call.error = RuntimeError(f"the tool tried to end the program with code {error.code}")
            except Exception as error:  # noqa: BLE001  carried to the loop and raised there
                call.error = error
            try:
                from_thread.run_sync(self._returned, call, token=token)
            except anyio.RunFinishedError:
                pass  # the runtime is closed and nobody waits any more
        finally:
            self._hold.release()

    def _leave(self, call: _Call, context: CallContext, name: str) -> None:
        call.abandoned = True
        self.abandoned += 1
        key = context.key
        self._report(
            context.scope.task_id,
            ToolAbandoned(position=key.position, index=key.index, name=name, still_running=self.abandoned),
        )

    def _returned(self, call: _Call) -> None:
        call.finished.set()
        if call.abandoned:
            self.abandoned -= 1
            self._places.release()
