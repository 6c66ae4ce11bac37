"""The thread that starts commands: one, in order, for as long as it is wanted."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest

from hermes.environments.spawner import Spawner
from tests.environments.threads import no_thread_to_be_had

pytestmark = pytest.mark.anyio


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    made = Spawner()
    yield made
    made.close()


async def test_all_work_is_done_on_one_thread_in_order(spawner: Spawner) -> None:
    seen: list[tuple[int, int]] = []
    found: list[int] = []

    async def ask(number: int) -> None:
        def work() -> int:
            seen.append((number, threading.get_ident()))
            return number

        found.append(await spawner.run(work))

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(ask, number)
    assert [number for number, _ in seen] == found == list(range(20))
    assert len({thread for _, thread in seen}) == 1 and threading.get_ident() not in {thread for _, thread in seen}


async def test_an_error_is_that_of_whoever_asked(spawner: Spawner) -> None:
    def fail() -> None:
        raise FileNotFoundError("no such program")

    with pytest.raises(FileNotFoundError, match="no such program"):
        await spawner.run(fail)
    assert await spawner.run(lambda: 1) == 1


async def test_what_has_begun_is_waited_for_although_it_is_not_wanted_any_more(spawner: Spawner) -> None:
    begun, go_on, ended = anyio.Event(), threading.Event(), threading.Event()

    def work() -> str:
        assert go_on.wait(60)
        ended.set()
        return "started"

    found: list[str] = []

    async def ask() -> None:
        begun.set()
        found.append(await spawner.run(work))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await begun.wait()
        group.cancel_scope.cancel()
        go_on.set()
    assert ended.is_set() and found == ["started"]


async def test_the_thread_ends_after_what_it_was_given_and_begins_anew_where_it_is_wanted_again() -> None:
    spawner = Spawner()
    first = await spawner.run(threading.current_thread)
    for _ in range(2):
        await anyio.to_thread.run_sync(spawner.close)
    assert not first.is_alive()
    second = await spawner.run(threading.current_thread)
    assert second is not first and second.is_alive()
    await anyio.to_thread.run_sync(spawner.close)
    assert not second.is_alive()


async def test_a_thread_that_cannot_be_had_once_is_asked_for_again(spawner: Spawner) -> None:
    with no_thread_to_be_had(), pytest.raises(RuntimeError, match="thread"):
        await spawner.run(lambda: 1)
    with anyio.fail_after(300):
        assert await spawner.run(lambda: 2) == 2
