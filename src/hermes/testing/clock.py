"""A clock for tests that jumps: an hour of waiting takes no time, and a hang fails at once.

`VirtualClock` is the wall clock and the hold of the parts under test, and makes the event loop they run on:

    clock = VirtualClock()
    anyio.run(main, backend_options={"loop_factory": clock.loop})

Time jumps to the next timer when nothing is ready. It stands while a part holds it, that is while a thread or a process
that the loop cannot see is at work; so pass the clock as `hold` to whatever starts one. When there is neither a timer,
nor a ready socket, nor a hold, nothing can ever happen, and `Deadlock` ends the run and names the waiting tasks.

It deliberately is a real loop with real sockets, so that loopback servers work, and it patches nothing: code that reads
`time.monotonic()` instead of `anyio.current_time()` does not see the jumps.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from hermes.core.clock import held

__all__ = ["Deadlock", "VirtualClock", "VirtualLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Seconds of real time for which the loop sleeps between two looks at a held clock.
HELD_POLL = 0.02
#: Seconds of real time that the kernel is given to move bytes between two sockets of the process before time jumps.
SOCKET_GRACE = 0.001
#: Seconds of real time that a thread nobody held the clock for is given before the run counts as dead.
DEADLOCK_GRACE = 3.0


class Deadlock(BaseException):
    """Nothing can ever happen any more: no timer, no ready socket, nothing that holds the clock.

    No `Exception`: like an interrupt from the keyboard it ends the run from outside.
    """


class VirtualClock:
    """A wall clock and a hold for the parts under test, and the factory of their event loop.

    `start` is the first wall time, in seconds since the epoch. One clock serves one loop at a time; a second loop goes
    on from where the first one stopped, as a process that starts again does.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._elapsed = 0.0
        self._holds = 0
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the wall time in seconds since the epoch."""
        return self._start + self._elapsed

    @property
    def elapsed(self) -> float:
        """Seconds of simulated time since the clock was made."""
        return self._elapsed

    @property
    def holds(self) -> int:
        """How many pieces of work hold the clock right now."""
        return self._holds

    def hold(self) -> None:
        """Keep the clock standing until `release`. From any thread."""
        with self._lock:
            self._holds += 1

    def release(self) -> None:
        """Take back one `hold`, after the result was handed to the loop. From any thread.

        Raises:
            RuntimeError: when nothing holds the clock, since one release too many lets a later hold go by.
        """
        with self._lock:
            if self._holds == 0:
                raise RuntimeError(
                    "the virtual clock was released more often than held: pair each release() with a hold()"
                )
            self._holds -= 1

    def jump(self, seconds: float) -> None:
        """Let `seconds` pass at once; timers due meanwhile all fire late, as when a suspended machine wakes."""
        self._elapsed += seconds

    def loop(self) -> VirtualLoop:
        """Return a new event loop on this clock."""
        return VirtualLoop(self)


class _VirtualSelector(selectors.DefaultSelector):
    """Waits in simulated time: polls for what is ready, else moves the clock."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, or nothing after time has moved to the end of `timeout` seconds.

        Raises:
            Deadlock: when `timeout` is None and nothing can become ready.
        """
        # Read before the poll: who releases has handed over its result first, so that the poll must see it.
        held = self._clock.holds > 0 or _thread_at_work()
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if held:
            return super().select(HELD_POLL)
        # One key is the loop's own wake-up pipe.
        grace = DEADLOCK_GRACE if timeout is None else SOCKET_GRACE if len(self.get_map()) > 1 else 0.0
        if grace:
            ready = super().select(grace)
            if ready or self._clock.holds > 0 or _thread_at_work():
                return ready
        if timeout is None:
            raise Deadlock(_describe())
        self._clock.jump(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose `time()` is simulated. Made by `VirtualClock.loop`."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        super().__init__(_VirtualSelector(clock))

    def time(self) -> float:
        """Return simulated seconds since the clock was made."""
        return self.clock.elapsed

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run `func` in a thread; the clock stands until its result is here. Name lookups come this way."""
        future = super().run_in_executor(executor, func, *args)
        self.clock.hold()
        future.add_done_callback(lambda _: self.clock.release())
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        """Join the threads of the default executor, in real time."""
        with held(self.clock):
            await super().shutdown_default_executor(*args)


def _thread_at_work() -> bool:
    """Whether a call handed to a thread by `anyio.to_thread` has not come back: nobody has to hold the clock for it."""
    loop = asyncio.get_running_loop()
    for thread in threading.enumerate():
        idle = getattr(thread, "idle_workers", None)
        if idle is None or thread in idle or getattr(thread, "stopping", False):
            continue
        if getattr(thread, "loop", None) is loop:
            return True
    return False


def _describe() -> str:
    """Return what every task of the running loop waits for."""
    lines = [f"  {task.get_name()}: {_place(task)}" for task in asyncio.all_tasks()]
    shown = "\n".join(sorted(lines)[:20])
    return (
        "nothing can ever happen: no timer is set, no socket is ready, nothing holds the virtual clock. "
        f"A part that works in a thread or process must hold the clock meanwhile. {len(lines)} tasks wait:\n{shown}"
    )


def _place(task: asyncio.Task[Any]) -> str:
    """Return the innermost place of a suspended task, as `function (file:line)`."""
    coroutine: Any = task.get_coro()
    place = repr(coroutine)
    while coroutine is not None:
        state = _state(coroutine)
        if state.get("frame") is None:
            break
        code = state["frame"].f_code
        place = f"{code.co_qualname} ({code.co_filename}:{state['frame'].f_lineno})"
        coroutine = state["awaits"]
    return place


def _state(coroutine: Any) -> Mapping[str, Any]:
    """Return frame and awaited object of a coroutine, a generator or an asynchronous generator."""
    for prefix, awaits in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
        if hasattr(coroutine, f"{prefix}_frame"):
            return {"frame": getattr(coroutine, f"{prefix}_frame"), "awaits": getattr(coroutine, awaits)}
    return {}
