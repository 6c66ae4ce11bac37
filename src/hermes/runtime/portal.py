"""The portal for code without an event loop: the runtime on one background thread, called from any other.

Works in a script, inside a running loop (which it blocks, as any synchronous call does) and from several threads at
once. An interrupt from the keyboard ends the call that waits, never the work behind it. It knows nothing of tasks: what
is opened on the thread is the caller's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, TypeVarTuple, Unpack

import anyio
from anyio.from_thread import BlockingPortal

from hermes.core.errors import UsageError

__all__ = ["Portal"]

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class _Thread(Generic[T]):
    """The thread with its loop, and what is open on it. Holds no reference to the portal, so that a forgotten portal
    can still be closed when the interpreter ends."""

    def __init__(self, opened: AbstractAsyncContextManager[T], name: str, options: dict[str, Any]) -> None:
        self.pid = os.getpid()
        self._opened = opened
        self._options = options
        self._ready: Future[tuple[BlockingPortal, T]] = Future()
        self._failure: BaseException | None = None
        # A daemon: a portal that nobody closed must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        try:
            self.portal, self.value = self._ready.result()
        except BaseException:
            self._thread.join()
            raise

    def _run(self) -> None:
        try:
            anyio.run(self._live, backend_options=self._options)
        except BaseException as error:
            self._failure = error
            self._settle(error)

    async def _live(self) -> None:
        async with BlockingPortal() as portal:
            try:
                async with self._opened as value:
                    self._ready.set_result((portal, value))
                    await portal.sleep_until_stopped()
                await portal.stop(cancel_remaining=True)  # calls that still wait would wait for ever
            except Exception as error:  # noqa: BLE001  raised where `open` or `close` waits, not wrapped by a group
                self._failure = error
                self._settle(error)

    def _settle(self, error: BaseException) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)

    def close(self) -> None:
        """Stop and join; calls that still wait then are dropped. Raises what leaving raised."""
        if os.getpid() != self.pid:  # in a fork there is no such thread, and its files belong to the parent
            return
        if self._thread.is_alive():
            self.portal.call(self.portal.stop)
        self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


class _Call:
    """One call from outside: its scope once it runs, and whether its caller has gone."""

    def __init__(self) -> None:
        self.scope: anyio.CancelScope | None = None
        self.dropped = False

    async def drop(self) -> None:
        """On the loop: end the call."""
        if self.scope is not None:
            self.scope.cancel()


class Portal(Generic[T]):
    """Opens `opened()` on a thread of its own; `call` runs coroutines there.

    Args:
        opened: returns the asynchronous context manager that lives on the thread.
        name: name of the thread.
        options: options of the event loop, such as `{"loop_factory": ...}` for simulated time.
    """

    def __init__(
        self,
        opened: Callable[[], AbstractAsyncContextManager[T]],
        *,
        name: str = "hermes-runtime",
        options: dict[str, Any] | None = None,
    ) -> None:
        self._opened = opened
        self._name = name
        self._options = options or {}
        self._thread: _Thread[T] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def open(self) -> T:
        """Start the thread and return what is open on it. Raises what opening raises."""
        if self._thread is not None:
            raise UsageError("this runtime is open already; open another one, or use the one there is")
        self._thread = thread = _Thread(self._opened(), self._name, self._options)
        self._finalizer = weakref.finalize(self, thread.close)
        return thread.value

    @property
    def value(self) -> T:
        """What is open on the thread. Raises UsageError before `open`, after `close` and in a fork."""
        return self._living().value

    def call(self, function: Callable[[Unpack[Ts]], Awaitable[R]], *args: *Ts) -> R:
        """Run a coroutine function on the thread and wait for what it returns.

        Raises:
            UsageError: not open, closed, or called in a fork of the process that opened it.
        """
        portal = self._living().portal
        call = _Call()

        async def run() -> R:
            with anyio.CancelScope() as call.scope:
                if call.dropped:
                    call.scope.cancel()
                return await function(*args)
            raise CancelledError

        try:
            return portal.start_task_soon(run).result()
        except CancelledError:
            raise UsageError("the runtime was closed while this call waited") from None
        except Exception:
            raise
        except BaseException:  # an interrupt from the keyboard, wherever it hit: nobody waits any more
            call.dropped = True
            portal.start_task_soon(call.drop)
            raise

    def close(self) -> None:
        """Leave what is open and join the thread. Closing twice, or in a fork, changes nothing."""
        thread, self._thread = self._thread, None
        if self._finalizer is not None:
            self._finalizer.detach()
        if thread is not None:
            thread.close()

    def _living(self) -> _Thread[T]:
        if self._thread is None:
            raise UsageError("this runtime is not open; use it inside its `with` block")
        if os.getpid() != self._thread.pid:
            raise UsageError(
                f"this runtime was opened in process {self._thread.pid} and this is a fork of it, process "
                f"{os.getpid()}: threads and connections do not survive a fork. Open the runtime after forking."
            )
        return self._thread

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
