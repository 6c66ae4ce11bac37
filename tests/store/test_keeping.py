"""Deleting sessions and finding what is old or unseen; memory and disk alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.core.errors import OwnershipLost, StoreError
from hermes.store.ops import (
    AddSession,
    AddTask,
    CallStarted,
    ConsumeDelivery,
    DeleteSession,
    EndTask,
    Op,
    PutDelivery,
    PutInbox,
    PutSegment,
    ReopenTask,
    SetTaskState,
    ShowDelivery,
    Store,
    StoreCounts,
)
from hermes.store.sqlite import open_store

from .rows import child, delivery, entry, event, fence, message, segment, session, task, unit

pytestmark = pytest.mark.anyio


async def write(store: Store, *ops: Op, **more: object) -> None:
    await store.submit(unit(*ops, **more)).wait()  # type: ignore[arg-type]


def end(task_id: str, at: float = 5.0) -> EndTask:
    return EndTask(task_id=task_id, state="completed", ended_at=at, end=b"{}")


def whole() -> list[Op]:
    """Session s1 with a task and a child, and everything that can hang on them."""
    return [
        AddSession(row=session()),
        AddTask(row=task()),
        AddTask(row=child("c1")),
        PutSegment(row=segment(system="only s1 says 4e8a1c")),
        PutSegment(row=segment(task_id="c1", system="shared")),
        entry(0, body=b'"what was said"'),
        entry(0, "c1"),
        CallStarted(task_id="t1", position=0, index=0, name="terminal", at=2.0),
        PutInbox(row=message()),
        PutDelivery(row=delivery()),
        event(1),
    ]


def other() -> list[Op]:
    """Session s2, of which nothing may be touched."""
    return [
        AddSession(row=session("s2", root_task="t2")),
        AddTask(row=task("t2", session_id="s2", root_id="t2")),
        PutSegment(row=segment(task_id="t2", system="shared")),
        entry(0, "t2"),
        event(1, "s2"),
    ]


async def test_a_session_goes_with_all_it_has_and_nothing_else(store: Store) -> None:
    await write(store, *whole(), *other())
    await write(store, DeleteSession(session_id="s1", unfinished=True))
    assert await store.session("s1") is None and await store.tasks("s1") == []
    assert await store.task("c1") is None and await store.entries("t1") == [] == await store.entries("c1")
    assert await store.segment("t1") is None and await store.calls("t1", 0) == [] == await store.inbox("t1")
    assert await store.deliveries("t1") == [] == await store.events("s1")
    assert [row.session_id for row in await store.sessions()] == ["s2"]
    kept = await store.segment("t2")
    assert kept is not None and kept.system == "shared", "a prompt that others have stays"
    assert await store.entries("t2") != [] and await store.events("s2") != []
    await write(store, DeleteSession(session_id="s1"))
    await write(store, *whole())
    assert len(await store.tasks("s1")) == 2, "every key is free again"


async def test_unfinished_work_and_unseen_ends_stay(store: Store) -> None:
    await write(store, *whole())
    with pytest.raises(StoreError, match="session s1 is not deleted"):
        await write(store, DeleteSession(session_id="s1"))
    await write(store, end("t1"), end("c1"))
    with pytest.raises(StoreError, match="a result that nobody saw"):
        await write(store, DeleteSession(session_id="s1"))
    assert len(await store.tasks("s1")) == 2
    await write(store, ShowDelivery(child_id="c1", at=6.0))
    await write(store, DeleteSession(session_id="s1"))
    assert await store.session("s1") is None


async def test_a_refused_unit_deletes_nothing(store: Store) -> None:
    await write(store, *whole())
    with pytest.raises(OwnershipLost):
        await write(store, DeleteSession(session_id="s1", unfinished=True), fences=(fence("t1", "somebody"),))
    assert [row.task_id for row in await store.tasks("s1")] == ["t1", "c1"]
    assert await store.entries("t1") == [(0, b'"what was said"')] and len(await store.deliveries("t1")) == 1


async def test_a_deleted_session_stops_its_process_at_the_next_write(store: Store) -> None:
    await write(store, *whole())
    await write(store, DeleteSession(session_id="s1", unfinished=True))
    with pytest.raises(OwnershipLost):
        await write(store, SetTaskState(task_id="t1", state="running"), fences=(fence(),))


async def test_old_sessions_without_anything_open(store: Store) -> None:
    await write(
        store,
        *(AddSession(row=session(f"s{n}", root_task=f"t{n}", updated_at=float(n))) for n in range(5)),
        *(AddTask(row=task(f"t{n}", session_id=f"s{n}")) for n in range(4)),
        AddTask(row=child("c2", session_id="s2", root_id="t2")),
        end("t0"),
        end("t2"),
        end("c2"),
        end("t3", 50.0),
        PutDelivery(row=delivery("c2", "t2")),
    )
    found = [row.session_id for row in await store.stale_sessions(10.0)]
    assert found == ["s0", "s4"], "s1 runs, an end of s2 is unseen, s3 ended after that"
    assert [row.session_id for row in await store.stale_sessions(10.0, 1)] == ["s0"]
    assert await store.stale_sessions(0.0) == []
    await write(store, ConsumeDelivery(child_id="c2", by="notice:3"))
    assert [row.session_id for row in await store.stale_sessions(60.0)] == ["s0", "s2", "s3", "s4"]


async def test_ends_that_nobody_saw(store: Store) -> None:
    await write(store, *whole(), AddTask(row=child("c2", 1)), PutDelivery(row=delivery("c2")))
    assert await store.unseen() == [], "what has not ended cannot have been seen"
    await write(store, end("c1"), end("c2"))
    assert [row.task_id for row in await store.unseen()] == ["c1", "c2"]
    assert [row.task_id for row in await store.unseen("s1", 1)] == ["c1"]
    assert await store.unseen("s2") == []
    await write(store, ShowDelivery(child_id="c1", at=7.0), ShowDelivery(child_id="none", at=7.0))
    await write(store, ShowDelivery(child_id="c1", at=9.0))
    assert [row.shown_at for row in await store.deliveries("t1")] == [7.0, None], "the conversation is still to be told"
    await write(store, ConsumeDelivery(child_id="c2", by="3:0"))
    assert await store.unseen() == []
    await write(store, ReopenTask(task_id="c1"), end("c1"), PutDelivery(row=delivery("c1")))
    assert [row.task_id for row in await store.unseen()] == ["c1"], "its next end is told anew"


async def test_how_much_there_is(store: Store) -> None:
    assert await store.counts() == StoreCounts(
        sessions=0, tasks=0, unfinished=0, unseen=0, entries=0, calls=0, events=0
    )
    await write(store, *whole(), *other(), end("c1"))
    assert await store.counts() == StoreCounts(
        sessions=2, tasks=3, unfinished=2, unseen=1, entries=3, calls=1, events=2, oldest=1.0, newest=1.0
    )


async def test_what_was_said_is_gone_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    first = await open_store(path)
    await write(first, *whole())
    await first.close()
    assert b"4e8a1c" in path.read_bytes()
    second = await open_store(path)
    await write(second, DeleteSession(session_id="s1", unfinished=True))
    await second.close()
    left = b"".join(file.read_bytes() for file in tmp_path.glob("runtime.db*"))
    assert b"4e8a1c" not in left and b"what was said" not in left
