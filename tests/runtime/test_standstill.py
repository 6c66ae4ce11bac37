"""A process that stood still as a whole, and a loop that something blocks: told apart."""

from __future__ import annotations

import threading
import time

import anyio
import pytest

from hermes.runtime.standstill import WAKING, Standstill, awake_clock
from hermes.runtime.watchdog import Watchdog


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Standstill, Clock, list[float]]:
    clock, told = Clock(), list[float]()
    standstill = Standstill(clock)
    standstill.noticed.append(told.append)
    return standstill, clock, told


def test_a_process_that_just_started_did_not_stand_still() -> None:
    standstill, clock, told = made()
    assert not standstill.lately()
    assert standstill.take() == 0.0 and told == []


def test_a_gap_of_both_is_a_suspension_and_is_told_once() -> None:
    standstill, clock, told = made()
    standstill.take()
    clock.now += 312
    assert standstill.lately(), "known from the first moment, before anybody beats"
    assert standstill.take() == 312 and told == [312]
    assert standstill.take() == 0.0 and told == [312]
    clock.now += WAKING - 1
    standstill.beat()
    assert standstill.lately()
    clock.now += 2
    standstill.beat()
    assert not standstill.lately()


def test_the_thread_may_be_the_first_to_wake() -> None:
    standstill, clock, told = made()
    standstill.take()
    clock.now += 312
    assert standstill.beat() == 312
    clock.now += 1
    assert standstill.take() == 312 and told == [312]


def test_a_loop_that_is_blocked_while_the_thread_beats_was_not_suspended() -> None:
    standstill, clock, told = made()
    standstill.take()
    for _ in range(200):
        clock.now += 0.25
        standstill.beat()
    assert standstill.take() == 0.0 and told == []


def test_delays_of_scheduling_do_not_add_up() -> None:
    standstill, clock, told = made()
    for _ in range(10):
        clock.now += 29
        assert standstill.take() == 0.0
    assert told == []


def test_the_clock_goes_on() -> None:
    first = awake_clock()
    assert first <= awake_clock() < first + 600


@pytest.mark.anyio
async def test_the_watchdog_tells_a_suspension_and_names_nothing_as_its_cause() -> None:
    standstill, clock, told = made()
    blocked: list[str] = []
    woke = anyio.Event()
    standstill.noticed.append(lambda seconds: woke.set())
    # a machine that is busy may hold the loop for long: only the clock that is moved is to be noticed
    watchdog = Watchdog(lambda seconds, where: blocked.append(where), standstill, limit=60, beat=0.01)
    async with anyio.create_task_group() as group:
        group.start_soon(watchdog.run)
        await anyio.wait_all_tasks_blocked()
        clock.now += 3_600
        with anyio.fail_after(60):
            await woke.wait()
        group.cancel_scope.cancel()
    assert told == [3_600] and blocked == []


@pytest.mark.anyio
@pytest.mark.may_block
async def test_the_watchdog_names_what_blocks_the_loop() -> None:
    blocked: list[str] = []
    watchdog = Watchdog(lambda seconds, where: blocked.append(where), Standstill(), limit=0.05, beat=0.01)
    async with anyio.create_task_group() as group:
        group.start_soon(watchdog.run)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(120):
            while not any("_block_until" in where for where in blocked):  # a busy machine may be named before
                _block_until(lambda: watchdog.blocked_by != "")
                while watchdog.blocked_by:
                    await anyio.sleep(0.01)
        group.cancel_scope.cancel()


def _block_until(done: object) -> None:
    """Keep the loop for as long as it takes to be noticed."""
    assert callable(done)
    end = time.monotonic() + 60
    while not done() and time.monotonic() < end:
        threading.Event().wait(0.005)
