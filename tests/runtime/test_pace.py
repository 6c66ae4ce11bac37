"""Who goes to the model when: a few in a round of the loop, nobody lost, nobody held back without need."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from hermes.runtime.pace import Pace

pytestmark = pytest.mark.anyio


async def test_few_pass_at_once_and_nobody_waits_then(virtual_clock: object) -> None:
    pace = Pace(2)
    async with anyio.create_task_group() as group:
        pace.start(group)
        with anyio.fail_after(0):  # not even one round of the loop
            await pace.wait()
            await pace.wait()
        group.cancel_scope.cancel()


async def test_a_crowd_passes_in_order_and_few_in_a_round(virtual_clock: object) -> None:
    pace = Pace(3)
    passed: list[int] = []
    seen: list[int] = []

    async def one(number: int) -> None:
        await pace.wait()
        passed.append(number)

    async with anyio.create_task_group() as group:
        pace.start(group)
        async with anyio.create_task_group() as crowd:
            for number in range(10):
                crowd.start_soon(one, number)
            while len(passed) < 10:
                await anyio.lowlevel.checkpoint()
                seen.append(len(passed))
        group.cancel_scope.cancel()
    assert passed == list(range(10))
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= 3


async def test_fewer_pass_in_a_round_while_somebody_waits_for_an_answer(virtual_clock: object) -> None:
    pace = Pace(6, 2)
    passed: list[int] = []

    async def one(number: int) -> None:
        await pace.wait()
        passed.append(number)

    async def most_in_a_round() -> int:
        passed.clear()
        seen = [0]
        async with anyio.create_task_group() as crowd:
            for number in range(30):
                crowd.start_soon(one, number)
            while len(passed) < 30:
                await anyio.lowlevel.checkpoint()
                seen.append(len(passed))
        assert passed == list(range(30))
        await anyio.sleep(1)
        return max(after - before for before, after in zip(seen, seen[1:], strict=False))

    async with anyio.create_task_group() as group:
        pace.start(group)
        assert 2 < await most_in_a_round() <= 6
        pace.hasten("conversation")
        pace.hasten("another")
        pace.let_up("conversation")
        assert await most_in_a_round() <= 2
        pace.let_up("another")
        pace.let_up("another")
        assert 2 < await most_in_a_round() <= 6
        group.cancel_scope.cancel()


async def test_who_is_cancelled_in_line_holds_nobody_up(virtual_clock: object) -> None:
    pace = Pace(1)
    passed: list[str] = []

    async def one(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            await pace.wait()
            passed.append(name)

    scopes = {name: anyio.CancelScope() for name in ("first", "second", "third")}
    async with anyio.create_task_group() as group:
        pace.start(group)
        for name, scope in scopes.items():
            group.start_soon(one, name, scope)
        await anyio.lowlevel.checkpoint()
        scopes["second"].cancel()
        await anyio.sleep(1)
        group.cancel_scope.cancel()
    assert passed == ["first", "third"]


async def test_it_goes_on_after_a_rest(virtual_clock: object) -> None:
    pace = Pace(1)
    async with anyio.create_task_group() as group:
        pace.start(group)
        for _ in range(3):
            async with anyio.create_task_group() as crowd:
                for _ in range(4):
                    crowd.start_soon(pace.wait)
            await anyio.sleep(1)
        group.cancel_scope.cancel()
