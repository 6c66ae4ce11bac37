"""What each operation does and refuses; memory and disk alike."""

from __future__ import annotations

import anyio
import pytest
from msgspec.structs import replace

from hermes.core.errors import OwnershipLost, StoreError
from hermes.store.ops import (
    AddOwner,
    AddSession,
    AddTask,
    AdoptTasks,
    CallEnded,
    CallRow,
    CallStarted,
    ConsumeDelivery,
    DeleteSession,
    EndTask,
    MarkInbox,
    Op,
    OwnerRow,
    PutDelivery,
    PutInbox,
    PutSegment,
    ReopenTask,
    SetCallProcess,
    SetTaskState,
    Store,
    TouchSession,
    Unit,
)

from .rows import child, delivery, entry, event, fence, made, message, segment, session, task, unit

pytestmark = pytest.mark.anyio


async def write(store: Store, *ops: Op, **more: object) -> None:
    await store.submit(unit(*ops, **more)).wait()  # type: ignore[arg-type]


async def test_every_row_comes_back_as_it_went_in(store: Store) -> None:
    full = child("c1", 2, goal="zähle 😀", group_id="deleg_1", started_at=2.5)
    await write(
        store,
        AddSession(row=session(title="Über", cwd="/tmp", model="m", source="batch")),
        AddTask(row=task()),
        AddTask(row=full),
        PutSegment(row=segment()),
        entry(0, body=b'{"a":1}'),
        CallStarted(task_id="t1", position=1, index=0, name="terminal", at=3.0),
        SetCallProcess(task_id="t1", position=1, index=0, pgid=42, process_started="99"),
        PutInbox(row=message()),
        PutDelivery(row=delivery()),
        event(7, body=b'{"seq":7}'),
        AddOwner(row=OwnerRow(owner_id="o1", host="h", pid=1, started_at=1.0)),
    )
    assert await store.session("s1") == session(title="Über", cwd="/tmp", model="m", source="batch")
    assert await store.task("t1") == task()
    assert await store.task("c1") == full
    assert await store.tasks("s1") == [task(), full]
    assert await store.segment("t1") == segment()
    assert await store.entries("t1") == [(0, b'{"a":1}')]
    assert await store.calls("t1", 1) == [
        CallRow(
            task_id="t1",
            position=1,
            index=0,
            name="terminal",
            state="started",
            started_at=3.0,
            pgid=42,
            process_started="99",
        )
    ]
    assert await store.inbox("t1") == [message()]
    assert await store.deliveries("t1") == [delivery()]
    assert await store.events("s1") == [event(7, body=b'{"seq":7}').row]
    assert await store.owner("o1") == OwnerRow(owner_id="o1", host="h", pid=1, started_at=1.0)


async def test_nothing_is_found_where_nothing_is(store: Store) -> None:
    assert await store.session("x") is None
    assert await store.task("x") is None
    assert await store.segment("x") is None
    assert await store.owner("x") is None
    assert await store.entries("x") == [] == await store.calls("x", 0)
    assert await store.inbox("x") == [] == await store.deliveries("x")
    assert await store.events("x") == [] == await store.find_tasks("x")
    assert await store.last_seq("x") == 0
    assert await store.task("\udc80") is None and await store.session("\udc80") is None
    assert await store.find_tasks("\udc80") == []


async def test_sessions_stand_by_their_newest_use(store: Store) -> None:
    await write(
        store,
        *(AddSession(row=session(f"s{n}", updated_at=float(n), source="cli" if n else "batch")) for n in range(4)),
        TouchSession(session_id="s1", updated_at=9.0, title="new", model="m2"),
        TouchSession(session_id="s3", updated_at=2.0),
    )
    assert [row.session_id for row in await store.sessions()] == ["s1", "s3", "s2", "s0"]
    assert [row.session_id for row in await store.sessions(limit=2)] == ["s1", "s3"]
    assert [row.session_id for row in await store.sessions(source="batch")] == ["s0"]
    touched, kept = await store.session("s1"), await store.session("s3")
    assert touched is not None and (touched.title, touched.model, touched.updated_at) == ("new", "m2", 9.0)
    assert kept is not None and (kept.title, kept.updated_at) == ("", 3.0), "an older touch moves nothing back"


async def test_tasks_are_found_by_prefix_without_wildcards(store: Store) -> None:
    await write(store, *(AddTask(row=task(name)) for name in ("sa-b", "sa-a", "sa_x", "sb-c")))
    assert [row.task_id for row in await store.find_tasks("sa-")] == ["sa-a", "sa-b"]
    assert [row.task_id for row in await store.find_tasks("sa_")] == ["sa_x"]
    assert [row.task_id for row in await store.find_tasks("s%")] == []
    assert [row.task_id for row in await store.find_tasks("", limit=1)] == ["sa-a"]
    assert [row.task_id for row in await store.tasks("s1")] == ["sa-b", "sa-a", "sa_x", "sb-c"], "order of creation"


async def test_a_repeated_spawn_is_refused_and_finds_its_children(store: Store) -> None:
    await write(store, AddTask(row=task()), AddTask(row=child("c1", 0)), AddTask(row=child("c2", 1)))
    for again in (child("c3", 1), child("c1", 7)):
        with pytest.raises(StoreError, match=again.task_id):
            await write(store, AddTask(row=child("c9", 9)), AddTask(row=again))
    assert await store.task("c9") is None and await store.task("c3") is None
    await write(store, AddTask(row=child("c4", 1, key="4:0")), AddTask(row=task("t2")), AddTask(row=task("t3")))
    assert len(await store.tasks("s1")) == 6, "another call, and tasks without a call, are free"


async def test_states_follow_each_other_until_the_first_end(store: Store) -> None:
    await write(store, AddTask(row=task()))
    await write(store, SetTaskState(task_id="t1", state="running", started_at=2.0))
    await write(store, SetTaskState(task_id="t1", state="suspended", attempt=2))
    row = await store.task("t1")
    assert row == task(state="suspended", started_at=2.0, attempt=2)
    await write(
        store,
        EndTask(task_id="t1", state="cancelled", ended_at=5.0, end=b"first"),
        EndTask(task_id="t1", state="completed", ended_at=6.0, end=b"second"),
        SetTaskState(task_id="t1", state="running"),
    )
    await write(store, EndTask(task_id="t1", state="failed", ended_at=7.0, end=b"third"))
    row = await store.task("t1")
    assert row is not None and (row.state, row.ended_at, row.end) == ("cancelled", 5.0, b"first")


async def test_an_end_and_a_state_of_one_batch_keep_their_order(store: Store) -> None:
    store.submit(made(EndTask(task_id="t1", state="completed", ended_at=2.0, end=b"e")))
    await store.submit(unit(SetTaskState(task_id="t1", state="running", started_at=3.0, attempt=5))).wait()
    row = await store.task("t1")
    assert row is not None and (row.state, row.started_at, row.attempt) == ("completed", None, 1)


async def test_what_tasks_go_on_from_is_read_at_once(store: Store) -> None:
    await write(store, PutSegment(row=segment()), entry(0, body=b"0"), entry(1, body=b"1"), entry(2, body=b"2"))
    await write(
        store,
        CallEnded(task_id="t1", position=1, index=0, name="todo", at=2.0, result=b"r"),
        PutSegment(row=segment(1, start=3)),
        entry(3, body=b"3"),
        entry(4, body=b"4"),
        *(CallStarted(task_id="t1", position=4, index=index, name="todo", at=3.0) for index in range(2)),
    )
    await write(store, PutSegment(row=segment(0, task_id="t2")), entry(0, "t2"))
    first, nothing, second = await store.histories(["t1", "none", "t2"])
    assert first is not None and nothing is None and second is not None
    assert first.segment == segment(1, start=3) and first.entries == [(3, b"3"), (4, b"4")]
    assert [(call.position, call.index, call.state) for call in first.calls] == [(4, 0, "started"), (4, 1, "started")]
    assert (second.segment, second.entries, second.calls) == (segment(0, task_id="t2"), [(0, b"{}")], [])
    assert await store.histories([]) == []


async def test_the_last_segment_holds_and_prompts_are_shared(store: Store) -> None:
    await write(store, *(PutSegment(row=segment(n, start=n * 10, nonce=f"n{n}")) for n in range(3)))
    await write(store, PutSegment(row=segment(0, task_id="t2")))
    last, other = await store.segment("t1"), await store.segment("t2")
    assert last is not None and other is not None
    assert (last.segment, last.start, last.nonce) == (2, 20, "n2")
    assert last.system is other.system, "a thousand children must not each hold a copy"
    with pytest.raises(StoreError, match="segment 2 of t1"):
        await write(store, PutSegment(row=segment(2)))


async def test_a_history_position_is_written_once(store: Store) -> None:
    await write(store, *(entry(n, body=b"%d" % n) for n in range(5)))
    with pytest.raises(StoreError, match="position 3 of the history of t1"):
        await write(store, entry(5), entry(3, body=b"other"))
    assert await store.entries("t1", start=3) == [(3, b"3"), (4, b"4")]


async def test_the_first_result_of_a_call_stands(store: Store) -> None:
    start = CallStarted(task_id="t1", position=2, index=1, name="terminal", at=1.0)
    end = CallEnded(task_id="t1", position=2, index=1, name="terminal", at=2.0, result=b"first")
    await write(store, start, SetCallProcess(task_id="t1", position=2, index=1, pgid=7, process_started="1"))
    await write(store, replace(start, at=1.5))
    (again,) = await store.calls("t1", 2)
    assert (again.started_at, again.pgid) == (1.5, None), "a repeated start forgets the process of the lost one"
    await write(store, end)
    await write(store, replace(end, at=9.0, result=b"second"), replace(start, at=9.0))
    await write(store, replace(end, index=0, result=b"never started"))
    first, second = await store.calls("t1", 2)
    assert (first.index, first.state, first.result, first.started_at) == (0, "ended", b"never started", 2.0)
    assert (second.state, second.result, second.started_at, second.ended_at) == ("ended", b"first", 1.5, 2.0)


async def test_a_call_restarted_in_the_same_batch_keeps_the_order(store: Store) -> None:
    start = CallStarted(task_id="t1", position=2, index=0, name="terminal", at=1.0)
    process = SetCallProcess(task_id="t1", position=2, index=0, pgid=7, process_started="1")
    await write(store, start, process, start)
    (row,) = await store.calls("t1", 2)
    assert row.pgid is None


async def test_a_control_message_is_marked_once(store: Store) -> None:
    await write(store, PutInbox(row=message("r2")), PutInbox(row=message("r1")))
    await write(store, MarkInbox(receipt="r2", state="delivered", position=4))
    await write(store, MarkInbox(receipt="r2", state="missed"), MarkInbox(receipt="unknown", state="missed"))
    assert await store.inbox("t1") == [message("r2", state="delivered", position=4), message("r1")]
    with pytest.raises(StoreError, match="r1"):
        await write(store, PutInbox(row=message("r1")))


@pytest.mark.fault("B048")
@pytest.mark.fault("B047")
async def test_an_end_is_delivered_exactly_once(store: Store) -> None:
    await write(store, PutDelivery(row=delivery("c1")), PutDelivery(row=delivery("c2")))
    await write(store, PutDelivery(row=delivery("c1", target_id="other")))
    await write(store, ConsumeDelivery(child_id="c1", by="5:0"), entry(6))
    assert await store.deliveries("t1") == [delivery("c2")]
    assert await store.deliveries("other") == [], "a second delivery of one child is ignored"
    with pytest.raises(StoreError, match="c1"):
        await write(store, entry(7), ConsumeDelivery(child_id="c1", by="notice:7"))
    assert [position for position, _ in await store.entries("t1")] == [6], "the entry falls with its delivery"
    with pytest.raises(StoreError, match="c3"):
        await write(store, ConsumeDelivery(child_id="c3", by="5:0"))
    await write(store, ConsumeDelivery(child_id="c1", by="5:0"))
    await write(store, PutDelivery(row=delivery("c1")))
    assert await store.deliveries("t1") == [delivery("c2")], "what was delivered does not become pending again"


async def test_events_are_read_in_pieces(store: Store) -> None:
    await write(store, *(event(n, body=b"%d" % n) for n in (3, 1, 2, 5)), event(9, session_id="s2"))
    assert [row.seq for row in await store.events("s1")] == [1, 2, 3, 5]
    assert [row.seq for row in await store.events("s1", after=1, limit=2)] == [2, 3]
    assert await store.last_seq("s1") == 5
    with pytest.raises(StoreError, match="event 5"):
        await write(store, event(5))


async def test_events_of_one_type_are_read_over_all_sessions(store: Store) -> None:
    kept = [
        event(1, type="turn.ended", at=5.0),
        event(2, type="turn.ended", at=2.0),
        event(3, type="task.ended", at=6.0),
        event(1, session_id="s2", type="turn.ended", at=3.0),
    ]
    await write(store, *kept)
    found = await store.events_of_type("turn.ended")
    assert [(row.session_id, row.seq) for row in found] == [("s1", 2), ("s2", 1), ("s1", 1)]
    assert [row.at for row in await store.events_of_type("turn.ended", since=3.0)] == [3.0, 5.0]
    assert [row.seq for row in await store.events_of_type("turn.ended", session_id="s2")] == [1]
    assert await store.events_of_type("nothing.such") == []


async def test_a_fence_keeps_a_former_owner_out(store: Store) -> None:
    await write(store, AddTask(row=task()), AddTask(row=child("c1")), AddTask(row=task("x", session_id="s2")))
    await write(store, entry(0), fences=(fence(),))
    await write(store, AdoptTasks(session_id="s1", from_owner="o1", to_owner="o2"))
    for old in (fence(), fence(epoch=2), fence(owner="o2"), fence("nobody")):
        with pytest.raises(OwnershipLost, match=old.task_id):
            await write(store, entry(1), fences=(fence("c1", "o2", 2), old))
    await write(store, entry(1), fences=(fence(owner="o2", epoch=2), fence("c1", "o2", 2)))
    assert await store.entries("t1") == [(0, b"{}"), (1, b"{}")]
    untouched = await store.task("x")
    assert untouched is not None and (untouched.owner, untouched.epoch) == ("o1", 1)


@pytest.mark.fault("B077")
async def test_of_two_that_adopt_one_wins(store: Store) -> None:
    await write(store, AddTask(row=task()))
    first = store.submit(unit(AdoptTasks(session_id="s1", from_owner="o1", to_owner="o2")))
    second = store.submit(unit(AdoptTasks(session_id="s1", from_owner="o1", to_owner="o3")))
    await first.wait()
    with pytest.raises(OwnershipLost, match="s1"):
        await second.wait()
    row = await store.task("t1")
    assert row is not None and (row.owner, row.epoch) == ("o2", 2)


async def test_a_unit_may_fence_the_task_that_it_makes(store: Store) -> None:
    await write(store, AddTask(row=task()), entry(0), fences=(fence(),))
    assert await store.entries("t1") == [(0, b"{}")]


async def test_a_refused_unit_leaves_its_neighbours_alone(store: Store) -> None:
    good = [store.submit(made(entry(0)))]
    bad = [store.submit(unit(entry(1), event(1), AddTask(row=task()))), store.submit(unit(entry(0)))]
    good.append(store.submit(unit(entry(2), event(1), fences=(fence(),))))
    bad.append(store.submit(unit(entry(3), fences=(fence(epoch=9),))))
    good.append(store.submit(unit(entry(4))))
    for ticket in good:
        await ticket.wait()
    for ticket, kind, word in zip(
        bad, (StoreError, StoreError, OwnershipLost), ("t1", "position 0", "epoch 9"), strict=True
    ):
        with pytest.raises(kind, match=word):
            await ticket.wait()
    assert [position for position, _ in await store.entries("t1")] == [0, 2, 4]
    assert [row.seq for row in await store.events("s1")] == [1]


async def test_each_waiter_gets_an_error_of_its_own(store: Store) -> None:
    ticket = store.submit(unit(entry(0), entry(0)))
    caught = []
    for _ in range(2):
        with pytest.raises(StoreError) as info:
            await ticket.wait()
        caught.append(info.value)
    assert caught[0] is not caught[1] and caught[0].__cause__ is caught[1].__cause__


async def test_text_that_is_not_utf8_costs_one_sign_and_not_the_unit(store: Store) -> None:
    await write(
        store,
        AddSession(row=session(title="a\ud83d", cwd="/\udcff")),
        TouchSession(session_id="s1", updated_at=1.0, title="b\udc80"),
        AddTask(row=task(goal="go \ud800")),
        PutInbox(row=message(text="\udfff!")),
        PutSegment(row=segment(system="sys\ud800")),
    )
    row, told, held = await store.task("t1"), (await store.inbox("t1"))[0], await store.segment("t1")
    touched = await store.session("s1")
    assert row is not None and row.goal == "go �" and told.text == "�!"
    assert held is not None and held.system == "sys�"
    assert touched is not None and touched.title == "b�" and touched.cwd == "/�"


async def test_reads_see_what_was_just_submitted(store: Store) -> None:
    for position in range(50):
        store.submit(unit(entry(position)))
        assert len(await store.entries("t1")) == position + 1


async def test_waiting_is_cancelled_only_after_the_outcome(store: Store) -> None:
    after = []
    with anyio.CancelScope() as scope:
        ticket = store.submit(made())
        scope.cancel()
        try:
            await ticket.wait()
        finally:
            after.append(ticket.done)
    assert scope.cancelled_caught and after == [True]
    assert await store.task("t1") is not None


async def test_a_closed_store_refuses_each_unit_and_read(store: Store) -> None:
    kept = store.submit(made())
    await store.close()
    await kept.wait()
    ticket = store.submit(Unit(ops=(entry(0),)))
    assert ticket.done
    with pytest.raises(StoreError, match="closed"):
        await ticket.wait()
    for call in (store.flush, lambda: store.task("t1")):
        with pytest.raises(StoreError, match="closed"):
            await call()
    await store.close()


async def test_an_ended_task_goes_on_with_its_next_attempt(store: Store) -> None:
    await write(store, AddTask(row=task()), AddTask(row=child("c1")), PutDelivery(row=delivery("c1")))
    await write(store, EndTask(task_id="c1", state="completed", ended_at=5.0, end=b"{}"))
    await write(store, ReopenTask(task_id="c1"), ReopenTask(task_id="t1"))
    again = await store.task("c1")
    assert again is not None
    assert (again.state, again.ended_at, again.end, again.attempt) == ("suspended", None, None, 2)
    assert await store.deliveries("t1") == []
    untouched = await store.task("t1")
    assert untouched is not None and untouched.attempt == 1
    await write(store, EndTask(task_id="c1", state="failed", ended_at=6.0, end=b"[]"), PutDelivery(row=delivery("c1")))
    ended = await store.task("c1")
    assert ended is not None and (ended.state, ended.end) == ("failed", b"[]")
    assert len(await store.deliveries("t1")) == 1


async def test_queued_messages_are_found_by_the_owner_of_their_task(store: Store) -> None:
    other = AddTask(row=task("t2", owner="o2"))
    rows = (message("r1"), message("r2", task_id="t2"), message("r3"), message("r4", state="delivered"))
    await write(store, AddTask(row=task()), other, *(PutInbox(row=row) for row in rows))
    assert [row.receipt for row in await store.queued("o1")] == ["r1", "r3"]
    await write(store, MarkInbox(receipt="r1", state="missed"))
    await write(store, AdoptTasks(session_id="s1", from_owner="o2", to_owner="o1"))
    assert [row.receipt for row in await store.queued("o1")] == ["r2", "r3"]
    assert await store.queued("o2") == []


async def test_events_by_themselves_stand_in_their_order_among_the_units(store: Store) -> None:
    assert store.keeps
    store.log(event(1).row)
    await store.submit(Unit(ops=(event(2),))).wait()
    store.log(event(3).row)
    assert [row.seq for row in await store.events("s1")] == [1, 2, 3]


async def test_a_deleted_session_keeps_no_event_that_was_logged_before(store: Store) -> None:
    await store.submit(Unit(ops=(AddSession(row=session()),))).wait()
    store.log(event(1).row)
    await store.submit(Unit(ops=(DeleteSession(session_id="s1"),))).wait()
    assert await store.events("s1") == []
