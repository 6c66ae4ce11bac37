"""Several processes with one key: what each may do, by what all of them have to do."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from hermes.compose.sharing import Sharing
from hermes.credentials.grants import GRANT, LAPSE, Found, Grants, Want, limit_name
from hermes.credentials.limits import LearnedLimits
from hermes.credentials.shares import Demand, divide
from hermes.testing.clock import VirtualClock
from tests.credentials.test_limits import Provider, work

SECRET = "sk-aaaa-0123456789"
NAME = limit_name("http://server/v1", SECRET, "m")


def demand(owner: str, back: float, front: float = 0.0, trees: int = 1) -> Demand:
    return Demand(owner=owner, front=front, back=back, trees=trees)


def test_shares_follow_demand_and_sum_to_one() -> None:
    shares = divide([demand("a", 300), demand("b", 100), demand("c", 4)], 100.0)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["a"] == pytest.approx(shares["b"]) and shares["a"] > 0.4
    assert shares["c"] == pytest.approx((4 + 10 / 3) / 100)


def test_people_go_first_and_trees_count() -> None:
    shares = divide([demand("batch", 1000), demand("chat", 0, front=5)], 100.0)
    assert shares["chat"] * 100 == pytest.approx(10)  # its five and its least
    shares = divide([demand("one", 500, trees=1), demand("three", 500, trees=3)], 100.0)
    assert shares["three"] > 0.7


def test_what_nobody_wants_is_divided_evenly() -> None:
    assert divide([demand("a", 1), demand("b", 1)], 100.0) == {"a": 0.5, "b": 0.5}
    assert divide([demand("a", 9)], 100.0) == {"a": 1.0} and divide([], 1.0) == {}
    assert divide([demand("a", 1), demand("b", 0)], 0.0) == {"a": 0.5, "b": 0.5}


def alive(owner: str) -> bool:
    return False


def want(back: float, **more: object) -> Want:
    return Want(name=NAME, back=back, **more)  # type: ignore[arg-type]


def test_what_one_finds_out_the_others_know(tmp_path: Path) -> None:
    first, second = (Grants(tmp_path / "limits.db", name, alive) for name in "ab")
    found = Found(rate=50.0, size=20.0, at=100.0)
    (alone,) = first.exchange([want(10, requests=found, paused=105.0)], 100.0)
    assert (alone.share, alone.requests, alone.at_once) == (1.0, found, None)
    (told,) = second.exchange([want(10, sent=3.0)], 101.0)
    assert (told.share, told.requests, told.paused) == (0.5, found, 105.0)
    newer = Found(rate=40.0, size=20.0, at=106.0)
    second.exchange([want(10, requests=newer, sent=3.0)], 106.0)
    (again,) = first.exchange([want(10, requests=found)], 107.0)
    assert (again.requests, again.sent) == (newer, 3.0)


def test_the_parts_of_what_goes_at_once_sum_to_the_same(tmp_path: Path) -> None:
    grants = [Grants(tmp_path / "limits.db", name, alive) for name in "abc"]
    parts: dict[int, float] = {}
    for at in range(6):
        for number, each in enumerate(grants):
            own, given = (12.0, None) if not parts else (parts.get(number), parts.get(number))
            (grant,) = each.exchange([want(20, at_once=own, at_once_given=given)], 100.0 + at * GRANT)
            parts[number] = grant.at_once or 0.0
    assert sum(parts.values()) == pytest.approx(12.0) and parts[0] == pytest.approx(4.0)
    (grant,) = grants[1].exchange([want(20, at_once=parts[1] - 1, at_once_given=parts[1])], 111.0)
    assert grant.at_once == pytest.approx(11.0 / 3)


@pytest.mark.parametrize("proven", [True, False])
def test_a_process_that_ended_has_no_demand(tmp_path: Path, proven: bool) -> None:
    gone: set[str] = set()
    first, second = (Grants(tmp_path / "limits.db", name, gone.__contains__) for name in "ab")
    first.exchange([want(10)], 100.0)
    found = Found(rate=50.0, size=20.0, at=100.0)
    assert second.exchange([want(10, requests=found)], 100.0)[0].share == 0.5
    if proven:
        gone.add("a")
    assert second.exchange([want(10)], 100.1 if proven else 100.1 + LAPSE)[0].share == 1.0


def test_who_leaves_or_has_nothing_to_do_leaves_room(tmp_path: Path) -> None:
    first, second = (Grants(tmp_path / "limits.db", name, alive) for name in "ab")
    first.leave()  # nothing was written yet
    first.exchange([want(10)], 100.0)
    assert second.exchange([want(0)], 100.0)[0].share < 1.0
    assert first.exchange([want(10)], 100.0)[0].share == 1.0
    second.exchange([want(10)], 100.0)
    second.leave()
    assert first.exchange([want(10)], 100.0)[0].share == 1.0


def test_the_file_is_the_users_alone_and_holds_no_key(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    before = os.umask(0o000)
    try:
        Grants(path, "a", alive).exchange([want(1)], 100.0)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SECRET.encode() not in path.read_bytes() and "aaaa" not in NAME


def locks(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("*.lock")]


class Process:
    """What a process has of sharing; its lock is a file of its name."""

    def __init__(self, name: str, folder: Path, clock: VirtualClock, gone: Callable[[str], bool]) -> None:
        (folder / f"{name}.lock").touch()
        self.limits = LearnedLimits(now=anyio.current_time, heard=lambda soon: self.sharing.wake(soon=soon))
        self.sharing = Sharing(
            self.limits, lambda *key: NAME, path=folder / "limits.db", owner=name, gone=gone,
            living=lambda: locks(folder), now=clock.now, loop_now=anyio.current_time, hold=clock,
        )  # fmt: skip


@pytest.mark.anyio
async def test_three_processes_use_up_one_bucket_together(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    provider = Provider(50.0, 50.0, 0.2, named=1.0)
    processes = [Process(name, tmp_path, virtual_clock, alive) for name in "abc"]
    ends: list[float] = []

    async def ask(process: Process, tasks: int, turns: int, after: float) -> None:
        await anyio.sleep(after)
        ends.append(max(await work(process.limits.of("p", "k", "m"), provider, tasks, turns)))

    async with anyio.create_task_group() as group:
        for process in processes:
            group.start_soon(process.sharing.run)
        async with anyio.create_task_group() as asking:
            asking.start_soon(ask, processes[0], 200, 5, 0.0)
            asking.start_soon(ask, processes[1], 100, 5, 1.0)
            asking.start_soon(ask, processes[2], 40, 10, 8.0)
        group.cancel_scope.cancel()
    assert provider.accepted == 1900
    # the ramp, the joining of the second and third, and the end of the first two included
    assert max(ends) <= (1900 - 50) / 50 / 0.9
    assert provider.refused <= 0.025 * 1950


@pytest.mark.anyio
async def test_a_process_that_comes_later_does_not_begin_as_if_it_were_alone(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    provider = Provider(50.0, 50.0, 0.2, named=1.0)
    first, second = (Process(name, tmp_path, virtual_clock, alive) for name in "ab")
    async with anyio.create_task_group() as group:
        for process in (first, second):
            group.start_soon(process.sharing.run)
        async with anyio.create_task_group() as asking:
            asking.start_soon(work, first.limits.of("p", "k", "m"), provider, 100, 3)
            await anyio.sleep(1.0)  # the first one was refused, and that was told at once
            before = provider.refused
            limit = second.limits.of("p", "k", "m")
            asking.start_soon(work, limit, provider, 100, 3)
            await anyio.sleep(1.0)
            assert limit.rate is not None and provider.refused - before <= 5
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_processes_that_begin_together_divide_what_they_begin_with(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    provider = Provider(50.0, 50.0, 0.2, named=1.0)
    processes = [Process(name, tmp_path, virtual_clock, alive) for name in "abc"]
    async with anyio.create_task_group() as group:
        for process in processes:
            group.start_soon(process.sharing.run)
        async with anyio.create_task_group() as asking:
            for process in processes:
                asking.start_soon(work, process.limits.of("p", "k", "m"), provider, 100, 3)
            await anyio.sleep(0.15)
            assert provider.refused < 3 * 64 - 50 - 50
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_what_comes_up_during_an_exchange_is_told_by_the_next_one(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    limits, looks = LearnedLimits(now=anyio.current_time), list[int]()

    def living() -> list[str]:
        looks.append(1)
        if len(looks) == 1:
            anyio.from_thread.run_sync(sharing.wake)
        return []

    sharing = Sharing(
        limits, lambda *key: NAME, path=tmp_path / "limits.db", owner="a", gone=alive,
        living=living, now=virtual_clock.now, loop_now=anyio.current_time, hold=virtual_clock,
    )  # fmt: skip
    async with anyio.create_task_group() as group:
        group.start_soon(sharing.run)
        sharing.wake()
        await anyio.sleep(10)
        assert len(looks) == 2, "once for each thing that was to be told"
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_first_request_with_another_model_does_not_wait_for_the_next_grant(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    process = Process("a", tmp_path, virtual_clock, alive)
    (tmp_path / "b.lock").touch()
    names = iter(range(99))
    process.sharing = Sharing(
        process.limits, lambda *key: f"{key}", path=tmp_path / "limits.db", owner="a", gone=alive,
        living=lambda: locks(tmp_path), now=virtual_clock.now, loop_now=anyio.current_time, hold=virtual_clock,
    )  # fmt: skip
    times: list[float] = []
    async with anyio.create_task_group() as group:
        group.start_soon(process.sharing.run)
        for pause in (0.0, 0.1, 0.5):
            await anyio.sleep(pause)
            limit = process.limits.of("p", "k", f"model-{next(names)}")
            began = anyio.current_time()
            permit = await limit.acquire()
            assert permit is not None
            times.append(anyio.current_time() - began)
        group.cancel_scope.cancel()
    assert times == pytest.approx([0.0, 0.0, 0.0], abs=0.01)


@pytest.mark.anyio
async def test_a_file_that_cannot_be_used_costs_the_sharing_and_no_request(
    tmp_path: Path, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    process = Process("a", tmp_path, virtual_clock, alive)
    (tmp_path / "b.lock").touch()
    (tmp_path / "limits.db").write_bytes(b"no database at all, and long enough to be looked at as one" * 9)
    async with anyio.create_task_group() as group:
        group.start_soon(process.sharing.run)
        ends = await work(process.limits.of("p", "k", "m"), Provider(50.0, 50.0, 0.2, named=1.0), 60, 3)
        group.cancel_scope.cancel()
    assert max(ends) < 6.0
    assert [record.message for record in caplog.records if "not shared" in record.message] != []
    assert len([record for record in caplog.records if "not shared" in record.message]) == 1
