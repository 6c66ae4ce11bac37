"""Blocking functions on threads: bounded, and counted when they are left behind."""

from __future__ import annotations

import sys
import threading
import time

import anyio
import pytest

from hermes.core.events import ToolAbandoned
from hermes.core.scope import CallKey, TaskScope
from hermes.core.tools import CallContext
from hermes.runtime.blocking import BlockingPool
from hermes.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


def context(index: int = 0) -> CallContext:
    return CallContext(
        key=CallKey("sa-1", 3, index),
        scope=TaskScope(task_id="sa-1", session_id="s", root_id="sa-1"),
        progress=lambda text: None,
        room=lambda: 1000,
    )


class Reports(list[tuple[str, ToolAbandoned]]):
    def __call__(self, task_id: str, event: ToolAbandoned) -> None:
        self.append((task_id, event))


async def test_values_and_errors_come_back() -> None:
    pool = BlockingPool(Reports())
    assert await pool.run(context(), "add", lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        await pool.run(context(), "divide", lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="end the program with code 3"):
        await pool.run(context(), "leave", sys.exit, 3)


async def test_no_more_threads_than_places() -> None:
    pool = BlockingPool(Reports(), threads=3)
    lock, running, peak = threading.Lock(), 0, 0

    def work() -> None:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.005)
        with lock:
            running -= 1

    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(pool.run, context(), "work", work)
    assert peak == 3


async def test_an_abandoned_call_is_reported_and_keeps_its_place() -> None:
    reports = Reports()
    pool = BlockingPool(reports, threads=1)
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(100)
        ended.set()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(pool.run, context(4), "slow", work)
            while not begun.is_set():
                await anyio.sleep(0.001)
            scope.cancel()
    assert reports == [("sa-1", ToolAbandoned(position=3, index=4, name="slow", still_running=1))]
    assert pool.abandoned == 1
    with anyio.move_on_after(0.02) as waited:
        await pool.run(context(), "next", lambda: None)
    assert waited.cancelled_caught, "the place belongs to the abandoned call until its function returns"
    assert len(reports) == 1, "a call that never got a thread is not abandoned"
    go_on.set()
    assert await pool.run(context(), "next", lambda: "free") == "free"
    assert pool.abandoned == 0 and ended.is_set()


async def test_simulated_time_stands_while_a_function_runs(virtual_clock: VirtualClock) -> None:
    pool = BlockingPool(Reports(), hold=virtual_clock)
    with anyio.fail_after(1):
        assert await pool.run(context(), "work", lambda: time.sleep(0.05) or "done") == "done"
    assert virtual_clock.elapsed < 1
