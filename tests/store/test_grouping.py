"""Units grouped by statement end as the same units applied one by one, and as in memory."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import anyio
import pytest

from hermes.core.errors import StoreError
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
