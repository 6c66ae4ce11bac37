"""Group commit, cancellation, failure and close of the store on disk."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hermes.core.errors import StoreBusy, StoreError, StoreFull
from hermes.store.commit import BATCH_ROWS, WOKEN
from hermes.store.ops import Unit
from hermes.store.sqlite import open_store
from hermes.testing.clock import VirtualClock
from hermes.testing.guards import new_threads

from .rows import entry, event, made, unit

pytestmark = pytest.mark.anyio


class CountingHold:
    def __init__(self) -> None:
        self.count = 0
        self.total = 0

    def hold(self) -> None:
        self.count += 1
        self.total += 1

    def release(self) -> None:
        self.count -= 1


class Stall:
    """Keeps the database locked as another process would, until it is let go."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        self.db.execute("ROLLBACK")
        self.db.close()


def stored(path: Path) -> list[int]:
    db = sqlite3.connect(path)
    try:
        return [position for (position,) in db.execute("SELECT position FROM entries ORDER BY position")]
    finally:
        db.close()


async def test_one_turn_of_the_loop_is_one_batch(tmp_path: Path) -> None:
    hold = CountingHold()
    store = await open_store(tmp_path / "runtime.db", hold=hold)
    before = hold.total
    tickets = [store.submit(unit(entry(n))) for n in range(100)]
    assert hold.total == before, "nothing is handed over before the turn ends"
    await tickets[0].wait()
    assert all(ticket.done for ticket in tickets)
    assert hold.total == before + 1 and hold.count == 0
    await store.close()


async def test_who_has_a_person_waiting_goes_on_first_and_the_others_a_few_at_a_time(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runtime.db")
    went: list[str] = []
    turns: list[int] = []

    async def write(name: str, written: Unit) -> None:
        await store.submit(written).wait()
        went.append(name)

    async def count() -> None:
        while len(went) <= 100:
            before = len(went)
            await anyio.lowlevel.checkpoint()
            turns.append(len(went) - before)

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(write, f"child {number}", unit(entry(number)))
        group.start_soon(write, "person", Unit(ops=(entry(100),), urgent=True))
        group.start_soon(count)
    assert went == ["person", *(f"child {number}" for number in range(100))]
    assert max(turns) <= WOKEN + 1
    await store.close()


async def test_batches_grow_while_the_writer_works_and_are_capped(tmp_path: Path) -> None:
    hold = CountingHold()
    store = await open_store(tmp_path / "runtime.db", hold=hold)
    stall = Stall(store.path)
    store.submit(unit(entry(0)))
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    assert hold.count == 1, "simulated time stands while the writer works"
    before = hold.total
    for number in range(1, BATCH_ROWS):
        store.submit(unit(entry(number)))
    assert hold.total == before, "collected while the writer is busy"
    last = store.submit(unit(entry(BATCH_ROWS)))
    assert hold.total == before + 1, "a full batch is sealed at once"
    stall.end()
    await last.wait()
    assert stored(store.path) == list(range(BATCH_ROWS + 1))
    await store.close()
    assert hold.count == 0


async def test_what_a_person_waits_for_is_handed_over_while_the_writer_works(tmp_path: Path) -> None:
    hold = CountingHold()
    store = await open_store(tmp_path / "runtime.db", hold=hold)
    stall = Stall(store.path)

    async def handed_over(work: Unit) -> int:
        store.submit(work)
        before = hold.total
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        return hold.total - before

    assert await handed_over(unit(entry(0))) == 1, "the writer was idle"
    assert await handed_over(unit(entry(1))) == 0, "collected while the writer is busy"
    assert await handed_over(Unit(ops=(entry(2),), urgent=True)) == 1
    assert await handed_over(unit(entry(3))) == 0
    stall.end()
    await store.flush()
    assert stored(store.path) == [0, 1, 2, 3]
    await store.close()
    assert hold.count == 0


@pytest.mark.fault("B087")
async def test_another_process_that_writes_is_waited_for(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runtime.db")
    stall = Stall(store.path)
    ticket = store.submit(made())
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    assert not ticket.done
    stall.end()
    await ticket.wait()
    await store.close()


async def test_a_file_held_for_too_long_stops_the_journal(tmp_path: Path) -> None:
    told: list[StoreError] = []
    store = await open_store(tmp_path / "runtime.db", busy_seconds=0.0, on_broken=told.append)
    stall = Stall(store.path)
    ticket = store.submit(unit(entry(0)))
    with pytest.raises(StoreBusy, match="runtime.db"):
        await ticket.wait()
    stall.end()
    with pytest.raises(StoreBusy):
        await store.submit(unit(entry(1))).wait()  # what follows may build on what was lost: a hole in a history
    assert len(told) == 1 and stored(store.path) == []
    await store.close()


async def test_a_full_disk_stops_everything_with_one_message(tmp_path: Path) -> None:
    told: list[tuple[StoreError, int]] = []

    def on_broken(error: StoreError) -> None:
        told.append((error, threading.get_ident()))

    store = await open_store(tmp_path / "runtime.db", max_pages=60, on_broken=on_broken)
    await store.submit(made(entry(0))).wait()
    body = b"x" * 4000
    failing = [store.submit(unit(*(entry(n * 1000 + i, body=body) for i in range(1000)))) for n in range(1, 6)]
    errors = []
    for ticket in failing:
        with pytest.raises(StoreFull, match=r"runtime\.db.*free some space") as info:
            await ticket.wait()
        errors.append(info.value)
    later = store.submit(unit(entry(9000)))
    assert later.done
    with pytest.raises(StoreFull) as info:
        await later.wait()
    errors.append(info.value)
    assert len(set(map(id, errors))) == len(errors) and {id(error.__cause__) for error in errors} == {id(told[0][0])}
    assert len(told) == 1 and told[0][1] == threading.get_ident()
    assert isinstance(told[0][0].__cause__, sqlite3.Error)
    for call in (store.flush, lambda: store.task("t1")):
        with pytest.raises(StoreFull):
            await call()
    await store.close()
    again = await open_store(store.path)
    assert stored(store.path) == [0], "what was committed before stands, of the rest nothing"
    await again.submit(unit(entry(1))).wait()
    await again.close()


async def test_a_disk_that_is_full_when_opening_is_named(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runtime.db", max_pages=1)
    with pytest.raises(StoreFull):
        await store.submit(Unit(ops=tuple(entry(n, body=b"x" * 4000) for n in range(50)))).wait()
    await store.close()


async def test_a_waiter_that_is_cancelled_has_still_written(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runtime.db")
    stall = Stall(store.path)
    seen: list[bool] = []

    async def write() -> None:
        ticket = store.submit(unit(entry(0)))
        try:
            await ticket.wait()
        finally:
            seen.append(ticket.done)

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            assert seen == [], "nobody acts on an unknown outcome"
            stall.end()
    assert seen == [True] and stored(store.path) == [0]
    await store.close()


async def test_a_bare_task_that_is_cancelled_has_still_written(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runtime.db")
    stall = Stall(store.path)
    ticket = store.submit(unit(entry(0)))
    waiting = asyncio.ensure_future(ticket.wait())
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    for _ in range(2):
        waiting.cancel()
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        assert not waiting.done()
    stall.end()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ticket.done and stored(store.path) == [0]
    await store.close()


async def test_closing_writes_everything_and_leaves_no_thread(tmp_path: Path) -> None:
    threads = threading.enumerate()
    store = await open_store(tmp_path / "runtime.db")
    tickets = [store.submit(unit(entry(n))) for n in range(3 * BATCH_ROWS)]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.close()
    assert all(ticket.done for ticket in tickets)
    assert stored(store.path) == list(range(3 * BATCH_ROWS))
    assert await anyio.to_thread.run_sync(new_threads, threads) == []
    await store.close()


async def test_a_store_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    threads = threading.enumerate()
    (tmp_path / "runtime.db").write_text("something else")
    with pytest.raises(StoreError):
        await open_store(tmp_path / "runtime.db")
    assert await anyio.to_thread.run_sync(new_threads, threads) == []


async def test_closing_does_not_wait_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: list[StoreError] = []
    store = await open_store(tmp_path / "runtime.db", on_broken=told.append, close_seconds=0.05)
    stall = Stall(store.path)
    ticket = store.submit(unit(entry(0)))
    await store.close()
    assert ticket.done
    with pytest.raises(StoreError, match="not written to its end"):
        await ticket.wait()
    assert len(told) == 1
    stall.end()
    await store.close()  # the writer gives up at its next look, so this one ends
    assert stored(store.path) in ([], [0])


async def test_a_refusal_that_nobody_waits_for_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await open_store(tmp_path / "runtime.db")
    with caplog.at_level(logging.WARNING):
        store.submit(unit(event(1), event(1)))
        await store.flush()
    assert "event 1 of session s1" in caplog.text
    await store.close()


async def test_a_value_that_cannot_be_stored_costs_its_own_unit(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runtime.db")
    good, bad = store.submit(unit(entry(0))), store.submit(unit(event(2**70)))
    wrong = store.submit(unit(entry(1, body=object())))  # type: ignore[arg-type]
    after = store.submit(unit(entry(2)))
    await good.wait()
    await after.wait()
    for ticket, word in ((bad, "AddEvent"), (wrong, "AddEntry")):
        with pytest.raises(StoreError, match=word):
            await ticket.wait()
    assert stored(store.path) == [0, 2]
    await store.close()


async def test_a_reader_that_is_cancelled_leaves_the_store_usable(tmp_path: Path) -> None:
    hold = CountingHold()
    store = await open_store(tmp_path / "runtime.db", hold=hold)
    await store.submit(made()).wait()
    async with anyio.create_task_group() as group:
        group.start_soon(store.task, "t1")
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert await store.task("t1") is not None
    await store.close()
    assert hold.count == 0


async def test_flush_of_an_idle_store_returns(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runtime.db")
    await store.flush()
    await store.close()


async def test_simulated_time_stands_while_the_writer_works(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    store = await open_store(tmp_path / "runtime.db", hold=virtual_clock)
    began = anyio.current_time()

    async def work(number: int) -> None:
        for position in range(5):
            await anyio.sleep(60)
            with anyio.fail_after(0.001):
                await store.submit(unit(entry(position, task_id=f"t{number}"))).wait()

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(work, number)
    assert len(await store.entries("t99")) == 5
    assert anyio.current_time() - began == 300
    await store.close()
    assert anyio.current_time() - began == 300 and virtual_clock.holds == 0


async def test_an_event_by_itself_costs_nobody_else_when_it_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_store(tmp_path / "runtime.db")
    with caplog.at_level(logging.WARNING):
        store.log(event(1).row)
        store.log(event(1, body=b'{"twice":true}').row)
        kept = store.submit(unit(entry(0)))
        store.log(event(2).row)
        await kept.wait()
        await store.flush()
    assert [(row.seq, row.body) for row in await store.events("s1")] == [(1, b"{}"), (2, b"{}")]
    assert "event 1 of session s1" in caplog.text
    await store.close()
    store.log(event(3).row)  # nobody could be told
