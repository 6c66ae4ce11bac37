"""`delegate_task_async` while 500 children run: how long until the id is back, its record committed.

The children ask a loopback model that answers after a second, without an end: 500 requests a second.
The tool is called as the loop calls it, through the gate; its time is taken around the call.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import anyio
import msgspec
from figures import Figure, Options, run
from stage import model_process, part, runtime, scratch

from hermes.compose import Assembly, conversation_spec
from hermes.core.scope import CallKey
from hermes.core.tools import CallContext, ToolEnv, ToolOutput

SETTINGS = {
    "delegation.max_concurrent_children": 1000,
    "agent.max_turns": 1_000_000,
    "delegation.max_iterations": 1_000_000,
}


async def measure(base_url: str, running: int, spawns: int) -> dict[str, Any]:
    """Milliseconds of each spawn, in order of size, and how many children ran."""
    with scratch() as folder:
        async with runtime(folder, base_url, SETTINGS) as assembly:
            spec, _ = conversation_spec(assembly, goal="PARENT hello", interactive=True, workspace=str(folder))
            session = await assembly.runtime.open_session(spec)
            await session.exchange(f"start {running} async")
            children = list(session.task.children)
            for child in children:
                await child.started.wait()
            await anyio.sleep(1.0)  # past the burst of the start
            waits = [await _spawn(assembly, session.task.id, number) for number in range(spawns)]
            alive = sum(child.state == "running" for child in children)
            committed = len(await assembly.runtime.store.tasks(session.id))
            await assembly.runtime.control.cancel(session.running(), "enough")
            await session.close()
    if committed != running + spawns + 1:
        raise SystemExit(f"{committed} rows stand in the journal, expected {running + spawns + 1}")
    return {"ms": sorted(wait * 1e3 for wait in waits), "running": alive}


async def _spawn(assembly: Assembly, parent: str, number: int) -> float:
    """Seconds of one call; another 10 ms pass before the next."""
    task = assembly.runtime.supervisor.tasks[parent]
    context = CallContext(
        key=CallKey(task.id, 1_000_000 + number, 0), scope=task.scope, progress=lambda _: None, room=lambda: 32_000
    )
    env = ToolEnv(scope=task.scope, state_dir=str(assembly.home.path))
    built = assembly.runtime.registry.build(("async_delegation",), env)
    tool = assembly.runtime.gate.wrap(next(tool for tool in built if tool.name == "delegate_task_async"), task)
    began = time.perf_counter()
    output = await tool.run(tool.parse({"goal": f"one more, number {number}"}), context)
    waited = time.perf_counter() - began
    assert isinstance(output, ToolOutput)
    answer = msgspec.json.decode(output.content[0].text)  # type: ignore[union-attr]
    if answer["task_id"] not in assembly.runtime.supervisor.tasks:
        raise SystemExit(f"not spawned: {answer}")
    await anyio.sleep(0.01)
    return waited


def figures(given: Options) -> list[Figure]:
    """The median and the 99th percentile."""
    running, spawns = (50, 50) if given.quick else (500, 300)
    with model_process("endless") as base_url:
        runs = [part(__file__, base_url, str(running), str(spawns)) for _ in range(given.runs)]
    medians = [statistics.median(run["ms"]) for run in runs]
    tails = [run["ms"][int(spawns * 0.99) - 1] for run in runs]
    name = f"delegate_task_async, {running} running"
    note = f"{spawns} spawns a run, {runs[0]['running']} children running, runs "
    return [
        Figure(
            name=f"{name}: id back, median", bar=2, measured=statistics.median(medians), unit="ms",
            note=note + ", ".join(f"{value:.2f}" for value in medians),
        ),
        Figure(
            name=f"{name}: id back, p99", bar=50, measured=statistics.median(tails), unit="ms",
            note="runs " + ", ".join(f"{value:.1f}" for value in tails),
        ),
    ]  # fmt: skip


async def run_part(base_url: str, running: str, spawns: str) -> dict[str, Any]:
    return await measure(base_url, int(running), int(spawns))


if __name__ == "__main__":
    run(__doc__, figures, run_part, sys.argv[1:])
