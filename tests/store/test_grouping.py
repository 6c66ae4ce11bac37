"""Units grouped by statement end as the same units applied one by one, and as in memory."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import anyio
import pytest

from hermes.core.errors import OwnershipLost, StoreError
from hermes.store import reading
from hermes.store.database import begin, open_writer
from hermes.store.memory import MemoryStore
from hermes.store.ops import (
    AddSession,
    AddTask,
    AdoptTasks,
    CallEnded,
    CallStarted,
    ConsumeDelivery,
    EndTask,
    Fence,
    MarkInbox,
    Op,
    PutDelivery,
    PutInbox,
    SetCallProcess,
    SetTaskState,
    TouchSession,
    Unit,
)
from hermes.store.statements import commit_units

from .rows import child, delivery, entry, event, fence, message, session, task


class Draw:
    """Random operations on few rows, so that they meet."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fresh = 0

    def op(self) -> Op:
        draw = self.random
        few, at = draw.randrange(3), float(draw.randrange(100))
        self.fresh += 1
        makes = [
            AddSession(row=session(f"s{few}")),
            TouchSession(session_id=f"s{few}", updated_at=at, title=draw.choice([None, f"title {at}"])),
            AddTask(row=task(f"t{few}", session_id=f"s{few % 2}")),
            AddTask(row=child(f"c{self.fresh}", few)),
            SetTaskState(task_id=f"t{few}", state=draw.choice(["running", "suspended"]), started_at=at),
            EndTask(task_id=f"t{few}", state="completed", ended_at=at, end=b"%d" % few),
            CallStarted(task_id="t1", position=0, index=few, name="terminal", at=at),
            SetCallProcess(task_id="t1", position=0, index=few, pgid=int(at), process_started="1"),
            CallEnded(task_id="t1", position=0, index=few, name="terminal", at=at, result=b"%f" % at),
            PutInbox(row=message(f"r{few}")),
            MarkInbox(receipt=f"r{few}", state=draw.choice(["delivered", "missed"]), position=int(at)),
            PutDelivery(row=delivery(f"c{few}")),
            ConsumeDelivery(child_id=f"c{few}", by=draw.choice(["1:0", "notice:2"])),
            entry(self.fresh if draw.random() < 0.9 else 0),
            event(self.fresh, body=b"%d" % self.fresh),
            AdoptTasks(session_id=f"s{few}", from_owner="o1", to_owner="o2"),
        ]
        weights = [2] * (len(makes) - 1) + [0.1]
        return draw.choices(makes, weights)[0]

    def unit(self) -> Unit:
        fences = (fence(f"t{self.random.randrange(3)}"),) if self.random.random() < 0.2 else ()
        return Unit(ops=tuple(self.op() for _ in range(self.random.randrange(1, 5))), fences=fences)


def lock(db: sqlite3.Connection) -> None:
    begin(db, 0.0, lambda: True)


def everything(db: sqlite3.Connection) -> dict[str, list[object]]:
    tables = ("sessions", "tasks", "calls", "inbox", "deliveries", "entries", "events")
    return {table: db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for table in tables}


async def held(memory: MemoryStore, names: tuple[str, ...]) -> tuple[object, ...]:
    return (
        [await memory.session(name) for name in names],
        [await memory.tasks(name) for name in names],
        [await memory.events(name) for name in names],
        await memory.calls("t1", 0),
        await memory.inbox("t1"),
        await memory.deliveries("t1"),
        await memory.entries("t1"),
    )


@pytest.mark.parametrize("seed", range(40))
def test_grouped_alone_and_in_memory_end_alike(tmp_path: Path, seed: int) -> None:
    draw = Draw(seed)
    grouped, alone, memory = open_writer(tmp_path / "a.db"), open_writer(tmp_path / "b.db"), MemoryStore()
    try:
        for _ in range(30):
            units = [draw.unit() for _ in range(draw.random.randrange(1, 4))]
            errors = commit_units(grouped, units, lock)
            one_by_one: dict[int, StoreError] = {}
            for number, unit in enumerate(units):
                for _, error in commit_units(alone, [unit], lock).items():
                    one_by_one[number] = error
            tickets = [memory.submit(unit) for unit in units]
            kept = {number: ticket.error for number, ticket in enumerate(tickets) if ticket.error is not None}
            words = [{n: (type(e), str(e)) for n, e in found.items()} for found in (errors, one_by_one, kept)]
            assert words[0] == words[1] == words[2]
        tables = everything(grouped)
        for table, rows in everything(alone).items():
            assert (
                [row[1:] if table in ("sessions", "tasks") else row for row in rows]
                == [  # type: ignore[index]
                    row[1:] if table in ("sessions", "tasks") else row  # type: ignore[index]
                    for row in tables[table]
                ]
            )
        names = ("s0", "s1", "s2")
        on_disk = (
            [reading.session(grouped, name) for name in names],
            [reading.tasks(grouped, name) for name in names],
            [reading.events(grouped, name, 0, 1000) for name in names],
            reading.calls(grouped, "t1", 0),
            reading.inbox(grouped, "t1"),
            reading.deliveries(grouped, "t1"),
            reading.entries(grouped, "t1", 0),
        )
        assert anyio.run(held, memory, names) == on_disk
    finally:
        grouped.close()
        alone.close()


def crowd(count: int) -> list[Unit]:
    """Units of `count` tasks, as a crowd of children writes them; a call now and then stands twice."""
    found = [Unit(ops=(AddSession(row=session()), AddTask(row=task())))]
    for number in range(count):
        name = f"c{number}"
        begun = CallStarted(task_id=name, position=1, index=0, name="terminal", at=float(number))
        ended = CallEnded(task_id=name, position=1, index=0, name="terminal", at=number + 1.0, result=b"%d" % number)
        ops: list[Op] = [
            AddTask(row=child(name, number)),
            entry(0, name),
            entry(1, name),
            event(number, body=b"%d" % number),
        ]
        ops += [begun] * (1 + number % 3) + [ended] * (number % 4) + [PutDelivery(row=delivery(name))] * (number % 2)
        found.append(Unit(ops=tuple(ops)))
        found.append(Unit(ops=(entry(2, name),), fences=(fence(name),)))
    return found


@pytest.mark.parametrize("count", [7, 8, 63, 64, 65, 201])
def test_a_crowd_in_wide_statements_ends_as_one_by_one(tmp_path: Path, count: int) -> None:
    grouped, alone = open_writer(tmp_path / "a.db"), open_writer(tmp_path / "b.db")
    try:
        units = crowd(count)
        assert commit_units(grouped, units[: count + 1], lock) == {}
        assert commit_units(grouped, units[count + 1 :], lock) == {}
        for unit in units:
            assert commit_units(alone, [unit], lock) == {}
        found = everything(grouped)
        assert found == everything(alone)
        assert len(found["tasks"]) == count + 1 and len(found["entries"]) == 3 * count
    finally:
        grouped.close()
        alone.close()


def test_a_lost_fence_in_a_crowd_costs_its_own_unit(tmp_path: Path) -> None:
    db = open_writer(tmp_path / "a.db")
    try:
        units = crowd(100)
        commit_units(db, units, lock)
        later = [Unit(ops=(entry(3, f"c{number}"),), fences=(fence(f"c{number}"),)) for number in range(100)]
        later[70] = Unit(ops=(entry(3, "c70"),), fences=(Fence(task_id="c70", owner="o1", epoch=2),))
        errors = commit_units(db, later, lock)
        assert list(errors) == [70] and isinstance(errors[70], OwnershipLost)
        assert db.execute("SELECT count(*) FROM entries WHERE position = 3").fetchone() == (99,)
    finally:
        db.close()
