"""A latch is set once; whoever waits for it, before or after, goes on."""

from __future__ import annotations

import anyio
import pytest

from hermes.runtime.latch import Latch

pytestmark = pytest.mark.anyio


async def test_all_who_wait_go_on_once_it_is_set() -> None:
    latch, passed = Latch(), []

    async def wait(number: int) -> None:
        await latch.wait()
        passed.append(number)

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(wait, number)
        await anyio.wait_all_tasks_blocked()
        assert passed == [] and not latch.is_set()
        latch.set()
        latch.set()
    assert sorted(passed) == [0, 1, 2]
    await latch.wait()
    assert latch.is_set()


async def test_a_waiter_that_is_cancelled_leaves_the_others_waiting() -> None:
    latch = Latch()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await latch.wait()
    assert scope.cancelled_caught
    async with anyio.create_task_group() as group:
        group.start_soon(latch.wait)
        await anyio.wait_all_tasks_blocked()
        latch.set()


async def test_waiting_for_what_has_happened_can_be_cancelled() -> None:
    latch = Latch()
    latch.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await latch.wait()
    assert scope.cancelled_caught
