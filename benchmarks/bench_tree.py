"""Trees of children on a model in the same process, whose every answer takes a fixed time: what is left is the runtime.

- 5,000 children of five turns of a second each, on disk and in memory: wall time as a ratio to the ideal five seconds
  and to each other, memory a child, and how long one spawn of all of them takes until it is committed;
- 1,000 children cut off half-way by SIGKILL: seconds from the start of the next process until all of them ask again;
- 100 children in three levels with ten places in all: wall time as a ratio to the least that any order could take.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Self

import anyio
from figures import Figure, Options, run
from stage import part, peak_memory, runtime, scratch

from hermes.compose import Assembly, conversation_spec
from hermes.core.messages import Assistant, Interrupted, Notice, Usage
from hermes.core.model import (
    CallArguments,
    CallStarted,
    Delta,
    ModelProfile,
    ModelRequest,
    Stop,
    TextDelta,
    UsageReport,
)
from hermes.core.scope import CallKey
from hermes.core.tools import CallContext
from hermes.delegation.policy import ChildOrder
from hermes.runtime.runtime import tune_interpreter
from hermes.runtime.task import Task
from hermes.testing.scripted import EndlessModel, call, first_user_text, hang, reply

TURNS, SECONDS = 5, 1.0
SETTINGS = {
    "delegation.max_concurrent_children": 10_000,
    "runtime.max_running": 10_000,
    "toolsets": ["todo", "delegation"],
}
#: Children of each task of a level, places, and seconds of a model call: 4 + 16 + 80 children.
WIDTHS, PLACES, STEP = (4, 4, 5), 10, 0.2


_USAGE = UsageReport(Usage(input=400, output=20))
_CALL = (CallStarted(0, "call_0", "todo"), CallArguments(0, '{"todos":[]}'), _USAGE, Stop("tool_calls"))
_ANSWER = (TextDelta("done"), _USAGE, Stop("stop"))


class Paced:
    """Four calls and an answer, a second each. It does next to nothing itself, for that would be measured too."""

    name, profile = "paced", ModelProfile()

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        return _Paced(_CALL if _turn(request) < TURNS - 1 else _ANSWER)


class _Paced:
    def __init__(self, deltas: tuple[Delta, ...]) -> None:
        self._deltas = deltas
        self._next = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        if not self._next:
            await anyio.sleep(SECONDS)
        self._next += 1
        if self._next > len(self._deltas):
            raise StopAsyncIteration
        return self._deltas[self._next - 1]


def _turn(request: ModelRequest) -> int:
    return sum(isinstance(entry, Assistant) for entry in request.entries)


async def _spawn(assembly: Assembly, parent: Task, count: int) -> list[Task]:
    """Start `count` children as one call of `parent` does."""
    context = CallContext(key=CallKey(parent.id, 1_000, 0), scope=parent.scope, progress=lambda _: None, room=lambda: 0)
    orders = [ChildOrder(goal=f"child {number}") for number in range(count)]
    tasks, _, _ = await assembly.delegation.spawn(orders, context, background=False)
    return tasks


async def wide(mode: str, count: int) -> dict[str, Any]:
    """All at once. Seconds of the spawn and of everything, KB a child."""
    with scratch() as folder:
        async with runtime(folder, "", SETTINGS, model=Paced(), memory=mode == "memory") as assembly:
            spec, _ = conversation_spec(
                assembly, interactive=True, workspace=str(folder), toolsets=("todo", "delegation")
            )
            parent = (await assembly.runtime.open_session(spec)).task
            parent.hushed = True  # what is measured ends before the reports are read
            await anyio.sleep(0.1)
            tune_interpreter()
            async with peak_memory() as seen:
                began = time.perf_counter()
                tasks = await _spawn(assembly, parent, count)
                spawned = time.perf_counter() - began
                await assembly.runtime.control.collect(tasks)
                wall = time.perf_counter() - began
            states = {task.state for task in tasks}
    if states != {"completed"}:
        raise SystemExit(f"children ended as {states}")
    return {"wall": wall, "spawn": spawned, "kb": (seen[1] - seen[0]) / 1024 / count}


async def cut_off(folder: Path, count: int) -> dict[str, Any]:
    """Bring `count` children to their third request and end this process by force."""

    def step(request: ModelRequest) -> Any:
        if not first_user_text(request).startswith("child"):
            return reply(calls=[call("delegate_task", tasks=[{"goal": f"child {n}"} for n in range(count)])])
        return reply(calls=[call("todo", todos=[])]) if _turn(request) < 2 else hang()

    model = EndlessModel(step)
    async with runtime(folder, "", SETTINGS, model=model) as assembly:
        spec, _ = conversation_spec(assembly, goal="parent", interactive=True, workspace=str(folder))
        session = await assembly.runtime.open_session(spec)
        while model.in_flight < count:
            await anyio.sleep(0.02)
        await assembly.runtime.store.flush()
        print(json.dumps({"session": session.id}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


async def recover(folder: Path, session: str, count: int, began: float) -> dict[str, Any]:
    """Seconds from `began`, the start of this process, until all children ask their model again."""
    model = EndlessModel(lambda _: hang())
    async with runtime(folder, "", SETTINGS, model=model) as assembly:
        opened = time.time() - began
        await assembly.recovery.adopt(session)
        adopted = time.time() - began
        while model.in_flight < count:
            await anyio.sleep(0.005)
        return {"seconds": time.time() - began, "opened": opened, "adopted": adopted}


def recovery(count: int) -> dict[str, Any]:
    """One round of the two, each in a process of its own."""
    with scratch() as folder:
        command = [sys.executable, __file__, "--part", "cut_off", str(folder), str(count)]
        first = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=300)
        if first.returncode != -signal.SIGKILL:
            raise SystemExit(f"the first process ended with {first.returncode}")
        session = json.loads(first.stdout)["session"]
        return part(__file__, "recover", str(folder), session, str(count), repr(time.time()))


def _grow(request: ModelRequest) -> Any:
    """A task of the tree: one call that spawns the next level and waits, then an answer; a leaf calls `todo`."""
    if any(isinstance(entry, (Notice, Interrupted)) for entry in request.entries):
        raise SystemExit("a level was not waited for")
    depth = first_user_text(request).count("/")
    if _turn(request):
        return reply("done", delay=STEP)
    if depth == len(WIDTHS):
        return reply(calls=[call("todo", todos=[])], delay=STEP)
    goal = first_user_text(request).split()[0]
    role = "orchestrator" if depth + 1 < len(WIDTHS) else "leaf"
    tasks = [{"goal": f"{goal}/{number}", "role": role} for number in range(WIDTHS[depth])]
    return reply(calls=[call("spawn_parallel", tasks=tasks)], delay=STEP)


def least_seconds() -> float:
    """The least that any order takes: each task asks twice; before its first level ends and after the last one begins
    to answer, no more than the tasks of the first level can run."""
    count, level = 0, 1
    for width in WIDTHS:
        level *= width
        count += level
    idle = 2 * max(0, PLACES - WIDTHS[0]) * STEP
    return 2 * STEP + (2 * STEP * count + idle) / PLACES


async def levels() -> dict[str, Any]:
    """Seconds of the whole tree."""
    settings = {**SETTINGS, "runtime.max_running": PLACES, "delegation.max_spawn_depth": len(WIDTHS)}
    model = EndlessModel(_grow)
    with scratch() as folder:
        async with runtime(folder, "", settings, model=model) as assembly:
            spec, _ = conversation_spec(assembly, goal="root", interactive=False, workspace=str(folder))
            tune_interpreter()
            began = time.perf_counter()
            result = await assembly.runtime.result(await assembly.runtime.start(spec))
            wall = time.perf_counter() - began
            tasks = len(assembly.runtime.supervisor.tasks)
    if result.state != "completed" or model.peak > PLACES:
        raise SystemExit(f"the tree ended as {result.state} ({result.error}), {model.peak} ran at once")
    return {"wall": wall, "tasks": tasks - 1}


def figures(given: Options) -> list[Figure]:
    """Each part in a process of its own, the medians over the runs."""
    count, cut = (500, 100) if given.quick else (5_000, 1_000)
    pairs = [
        (part(__file__, "wide", "durable", str(count)), part(__file__, "wide", "memory", str(count)))
        for _ in range(given.runs)
    ]
    again = [recovery(cut) for _ in range(given.runs)]
    trees = [part(__file__, "levels") for _ in range(given.runs)]
    ideal, least = TURNS * SECONDS, least_seconds()
    durable = [mine for mine, _ in pairs]
    walls = ", ".join(f"{mine['wall']:.2f}/{twin['wall']:.2f}" for mine, twin in pairs)
    name = f"{count} children, {TURNS} x {SECONDS:g} s"
    opened = ", ".join(f"{one['opened']:.2f}+{one['adopted'] - one['opened']:.2f}" for one in again)
    return [
        Figure(
            name=f"{name}: wall to the ideal", bar=1.35, unit="x",
            measured=statistics.median(one["wall"] / ideal for one in durable), note=f"on disk/in memory {walls} s",
        ),
        Figure(
            name=f"{name}: on disk to in memory", bar=1.3, unit="x",
            measured=statistics.median(mine["wall"] / twin["wall"] for mine, twin in pairs),
        ),
        Figure(
            name=f"{name}: memory a child", bar=25, unit="KB",
            measured=statistics.median(one["kb"] for one in durable),
        ),
        Figure(
            name=f"{count} spawns at once, committed", bar=0.2, unit="ms",
            measured=statistics.median(one["spawn"] * 1e3 / count for one in durable), note="each",
        ),
        Figure(
            name=f"recovery of {cut} half-done children", bar=1, unit="s",
            measured=statistics.median(one["seconds"] for one in again), note=f"of it open + adopt {opened} s",
        ),
        Figure(
            name=f"{trees[0]['tasks']} children in {len(WIDTHS)} levels, {PLACES} places", bar=1.25, unit="x",
            measured=statistics.median(one["wall"] / least for one in trees), note=f"to the least of {least:.2f} s",
        ),
    ]  # fmt: skip


async def run_part(name: str, *more: str) -> dict[str, Any]:
    """One part, in this process."""
    if name == "wide":
        return await wide(more[0], int(more[1]))
    if name == "cut_off":
        return await cut_off(Path(more[0]), int(more[1]))
    if name == "recover":
        return await recover(Path(more[0]), more[1], int(more[2]), float(more[3]))
    return await levels()


if __name__ == "__main__":
    run(__doc__, figures, run_part, sys.argv[1:])
