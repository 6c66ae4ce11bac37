"""The virtual clock: time jumps when nothing is ready, stands while held, and a hang is an error."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from hermes.core.clock import held
from hermes.testing.clock import Deadlock, VirtualClock


def run(clock: VirtualClock, main: Callable[[], Awaitable[Any]]) -> Any:
    return anyio.run(main, backend_options={"loop_factory": clock.loop})


def test_an_hour_passes_at_once() -> None:
    clock = VirtualClock(start=100.0)

    async def main() -> float:
        began = anyio.current_time()
        await anyio.sleep(3600)
        return anyio.current_time() - began

    real = time.monotonic()
    assert run(clock, main) == 3600
    assert clock.now() == 3700
    assert time.monotonic() - real < 60


def test_many_sleepers_end_in_the_order_of_their_times() -> None:
    clock = VirtualClock()
    order: list[int] = []

    async def sleeper(seconds: int) -> None:
        await anyio.sleep(seconds)
        order.append(seconds)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for seconds in (300, 1, 20, 4000):
                group.start_soon(sleeper, seconds)

    run(clock, main)
    assert order == [1, 20, 300, 4000]
    assert clock.elapsed == 4000


def test_a_deadline_fires_at_its_time() -> None:
    clock = VirtualClock()

    async def main() -> bool:
        with anyio.move_on_after(10) as scope:
            await anyio.sleep(60)
        return scope.cancelled_caught

    assert run(clock, main)
    assert clock.elapsed == 10


def test_a_held_thread_does_not_let_the_deadline_fire() -> None:
    clock = VirtualClock()
    go = threading.Event()

    async def main() -> bool:
        async with anyio.create_task_group() as group:
            group.start_soon(release_later)
            with anyio.move_on_after(10) as scope, held(clock):
                await anyio.to_thread.run_sync(go.wait)
            return scope.cancelled_caught

    async def release_later() -> None:
        for _ in range(50):
            await anyio.sleep(0)
        go.set()

    assert run(clock, main) is False
    assert clock.elapsed == 0


def test_the_loops_own_executor_holds_the_clock() -> None:
    clock = VirtualClock()
    go = threading.Event()

    async def main() -> None:
        future = asyncio.get_running_loop().run_in_executor(None, go.wait)
        assert clock.holds == 1
        with anyio.fail_after(5):
            await anyio.sleep(0)
            go.set()
            await future

    run(clock, main)
    assert clock.elapsed == 0
    assert clock.holds == 0


def test_a_hang_is_a_deadlock_that_names_who_waits() -> None:
    clock = VirtualClock()

    async def waits_for_nothing() -> None:
        await anyio.Event().wait()

    with pytest.raises(Deadlock, match=r"Event\.wait") as caught:
        run(clock, waits_for_nothing)
    assert "1 tasks wait" in str(caught.value)


def test_sockets_of_the_same_loop_are_served_before_time_jumps() -> None:
    clock = VirtualClock()

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await anyio.sleep(30)
            await stream.send(await stream.receive())

    async def ask(port: int) -> None:
        with anyio.fail_after(31):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(b"ping")
                assert await stream.receive() == b"ping"

    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            for _ in range(20):
                await ask(port)
            group.cancel_scope.cancel()

    run(clock, main)
    assert clock.elapsed == 600


def test_more_releases_than_holds_are_an_error() -> None:
    clock = VirtualClock()
    clock.hold()
    clock.release()
    with pytest.raises(RuntimeError, match="more often than held"):
        clock.release()


def test_a_jump_makes_timers_fire_late() -> None:
    clock = VirtualClock()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 5)
            await anyio.sleep(0)
            clock.jump(100)
        return anyio.current_time()

    assert run(clock, main) == 100


def test_a_second_loop_goes_on_where_the_first_stopped() -> None:
    clock = VirtualClock()

    async def main() -> None:
        await anyio.sleep(7)

    run(clock, main)
    run(clock, main)
    assert clock.elapsed == 14


@pytest.mark.anyio
async def test_a_test_that_asks_for_the_clock_runs_on_it(virtual_clock: VirtualClock) -> None:
    await anyio.sleep(86_400)
    assert virtual_clock.elapsed == 86_400
