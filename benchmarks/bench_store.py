"""What durability costs: the same work on the journal on disk and on its twin in memory, as ratios of one run.

1,000 tasks at once, five steps each; a step is an entry with the marks of two calls, awaited as before an act outside,
the two results, and three events, not awaited.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from figures import Figure, Options, options, show

from hermes.store.memory import MemoryStore
from hermes.store.ops import (
    AddEntry,
    AddEvent,
    AddSession,
    AddTask,
    CallEnded,
    CallStarted,
    EndTask,
    EventRow,
    Fence,
    PutSegment,
    SegmentRow,
    SessionRow,
    Store,
    TaskRow,
    Unit,
)
from hermes.store.sqlite import SqliteStore, open_store

BODY = b'{"type":"assistant","text":"' + b"word " * 60 + b'"}'
EVENT = b'{"schema":1,"type":"tool.ended","detail":"' + b"x" * 180 + b'"}'


class Work:
    def __init__(self, store: Store, tasks: int, steps: int, think: float) -> None:
        self.think = think
        self.store = store
        self.tasks = tasks
        self.steps = steps
        self.seq = 0
        self.waits: list[float] = []

    def event(self, task_id: str) -> AddEvent:
        self.seq += 1
        return AddEvent(
            row=EventRow(session_id="s", task_id=task_id, seq=self.seq, type="tool.ended", at=1.0, body=EVENT)
        )

    async def commit(self, unit: Unit) -> None:
        began = time.perf_counter()
        await self.store.submit(unit).wait()
        self.waits.append(time.perf_counter() - began)

    async def one(self, number: int) -> None:
        store, task_id = self.store, f"async_{number:08x}"
        row = TaskRow(
            task_id=task_id, session_id="s", root_id="r", parent_id="r", kind="async", role="leaf", depth=1,
            goal="count", state="running", spec=b"{}", owner="o", epoch=1, call_key="0:0", child_index=number,
            group_id="", attempt=1, created_at=1.0,
        )  # fmt: skip
        segment = SegmentRow(
            task_id=task_id, segment=0, start=0, system="You are. " * 400, nonce="n", tools=b"[]", created_at=1.0
        )
        fences = (Fence(task_id=task_id, owner="o", epoch=1),)
        await self.commit(Unit(ops=(AddTask(row=row), PutSegment(row=segment))))
        for step in range(self.steps):
            at = step * 3
            if self.think:
                await anyio.sleep(self.think)
            marks = [CallStarted(task_id=task_id, position=at, index=i, name="terminal", at=1.0) for i in (0, 1)]
            entry = AddEntry(task_id=task_id, position=at, kind="assistant", at=1.0, body=BODY)
            await self.commit(Unit(ops=(entry, *marks), fences=fences))
            for index in (0, 1):
                ended = CallEnded(task_id=task_id, position=at, index=index, name="terminal", at=1.0, result=BODY)
                store.submit(Unit(ops=(ended,), fences=fences))
            store.submit(Unit(ops=tuple(self.event(task_id) for _ in range(3))))
            await store.settle()
        await self.commit(
            Unit(ops=(EndTask(task_id=task_id, state="completed", ended_at=2.0, end=b"{}"),), fences=fences)
        )

    async def run(self) -> float:
        session = SessionRow(session_id="s", root_task="r", created_at=1.0, updated_at=1.0)
        await self.store.submit(Unit(ops=(AddSession(row=session),))).wait()
        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(self.tasks):
                group.start_soon(self.one, number)
        await self.store.flush()
        return time.perf_counter() - began


def thread_seconds(name: str) -> float:
    """CPU seconds of the thread called `name`."""
    for thread in threading.enumerate():
        if thread.name == name and thread.ident is not None:
            return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return 0.0


async def measure(store: Store, tasks: int, steps: int, think: float) -> tuple[float, float, float, list[float]]:
    work = Work(store, tasks, steps, think)
    began = time.process_time()
    wall = await work.run()
    cpu, writer = time.process_time() - began, thread_seconds("hermes-journal-writer")
    await store.close()
    return wall, cpu, writer, sorted(work.waits)


async def quiet_wait(store: SqliteStore) -> list[float]:
    """Seconds of one commit at a time, nothing else going on."""
    waits = []
    for number in range(300):
        began = time.perf_counter()
        entry = AddEntry(task_id="quiet", position=number, kind="user", at=1.0, body=BODY)
        await store.submit(Unit(ops=(entry,))).wait()
        waits.append(time.perf_counter() - began)
    await store.close()
    return waits


async def compare(folder: Path, tasks: int, steps: int, think: float) -> list[Figure]:
    """The same work on each store; what is told is the ratio to memory."""
    rows = tasks * (3 + steps * 8)
    places: list[tuple[str, Callable[[], Awaitable[Store]]]] = [
        ("memory", in_memory),
        ("process", lambda: open_store(folder / f"process-{think}.db")),
        ("power", lambda: open_store(folder / f"power-{think}.db", durability="power")),
    ]
    found = []
    plain = 0.0
    for name, make in places:
        wall, cpu, writer, waits = await measure(await make(), tasks, steps, think)
        plain = plain or wall
        if name == "memory":
            continue
        found.append(
            Figure(
                name=f"journal, {tasks} tasks x {steps} steps of {think:g} s, {name}: wall to memory",
                measured=wall / plain,
                unit="x",
                bar=1.3 if think and name == "process" else None,
                note=f"{wall:.2f} s, CPU {cpu:.2f} s, writer {writer / rows * 1e6:.1f} us a row, commit wait p50 "
                f"{statistics.median(waits) * 1e3:.2f} p99 {waits[int(len(waits) * 0.99)] * 1e3:.1f} ms",
            )
        )
    return found


async def in_memory() -> Store:
    return MemoryStore()


async def figures(given: Options) -> list[Figure]:
    """With a model that answers after 200 ms, with none at all, and one commit at a time."""
    tasks, steps = (100, 5) if given.quick else (1000, 5)
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = await compare(folder, tasks, steps, 0.2)
        found += await compare(folder, tasks, steps, 0.0)
        quiet = await quiet_wait(await open_store(folder / "quiet.db"))
    alone = Figure(
        name="journal, one commit at a time: median",
        measured=statistics.median(quiet) * 1e3,
        unit="ms",
        note=f"longest {max(quiet) * 1e3:.2f} ms",
    )
    return [*found, alone]


if __name__ == "__main__":
    asked = options(__doc__, runs=1)
    show(anyio.run(figures, asked), sys.stdout, as_json=asked.json)
