"""1,000 children of one parent, five turns each, against a loopback model that answers after 200 ms.

Each run is a pair in the same minute: a bare aiohttp client that makes the same requests (the very bodies that a child
sends), and the runtime: a parent's model asks for all children in one call, with a database on disk. In further runs
the parent goes on talking while its children work.
"""

from __future__ import annotations

import base64
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from figures import Figure, Options, run
from provider_script import TURNS
from stage import MODEL, Usage, model_process, part, peak_memory, runtime, scratch

from hermes.compose import Assembly, conversation_spec
from hermes.core.events import EntryAdded, Envelope, TaskEnded
from hermes.core.messages import Assistant, User, plain_text
from hermes.core.model import ModelProfile, ModelRequest
from hermes.providers.http import HttpSession
from hermes.providers.openai_chat import Endpoint, OpenAIChat
from hermes.runtime.runtime import tune_interpreter

SETTINGS = {"delegation.max_concurrent_children": 1000, "agent.max_turns": 100_000}


class Recording(OpenAIChat):
    """A model that keeps the bodies of its requests."""

    bodies: list[bytes]

    def body_of(self, request: ModelRequest) -> bytes:
        body = super().body_of(request)
        self.bodies.append(body)
        return body


async def record(base_url: str, target: Path) -> dict[str, Any]:
    """Write the bodies of one child's requests to a file."""
    with scratch() as folder:
        session = HttpSession()
        model = Recording(MODEL, Endpoint(base_url=base_url), ModelProfile(), session)
        model.bodies = []
        async with runtime(folder, base_url, SETTINGS, model=model) as assembly:
            await _delegate(assembly, folder, 1)
        await session.close()
    own = [body for body in model.bodies if b"PARENT" not in body]
    assert len(own) == TURNS, len(own)
    target.write_text(json.dumps([base64.b64encode(body).decode() for body in own]))
    return {"bytes": sum(map(len, own))}


async def _delegate(assembly: Assembly, folder: Path, count: int) -> None:
    spec, _ = conversation_spec(
        assembly, goal=f"PARENT start {count} sync", interactive=False, workspace=str(folder), unattended=True
    )
    result = await assembly.runtime.result(await assembly.runtime.start(spec))
    ended = sum(child.status == "completed" for child in result.children)
    if result.state != "completed" or ended != count:
        raise SystemExit(f"the parent ended as {result.state} ({result.error}) with {ended} of {count} children")


async def bare(base_url: str, recorded: Path, count: int) -> dict[str, Any]:
    """The same requests from a bare client."""
    bodies = [base64.b64decode(body) for body in json.loads(recorded.read_text())]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
    ) as session:

        async def child() -> None:
            for body in bodies:
                headers = {"Content-Type": "application/json"}
                async with session.post(f"{base_url}/chat/completions", data=body, headers=headers) as response:
                    assert response.status == 200
                    while await response.content.readany():
                        pass

        await child()
        tune_interpreter()
        async with peak_memory() as seen:
            used, began = Usage(), time.perf_counter()
            async with anyio.create_task_group() as group:
                for _ in range(count):
                    group.start_soon(child)
            wall, cpu = time.perf_counter() - began, used.own()
    return {"wall": wall, "cpu": cpu, "kb": (seen[1] - seen[0]) / 1024 / count}


async def ours(base_url: str, count: int) -> dict[str, Any]:
    """The runtime: one call of the parent's model spawns all children and waits for them."""
    with scratch() as folder:
        async with runtime(folder, base_url, SETTINGS) as assembly:
            await _delegate(assembly, folder, 1)
            tune_interpreter()
            async with peak_memory() as seen:
                used, began = Usage(), time.perf_counter()
                await _delegate(assembly, folder, count)
                wall, cpu = time.perf_counter() - began, used.own()
    return {"wall": wall, "cpu": cpu, "kb": (seen[1] - seen[0]) / 1024 / count}


async def talk(base_url: str, count: int) -> dict[str, Any]:
    """How much later the parent's own turns are answered while its children work, in ms."""
    asked: dict[str, float] = {}
    waits: list[float] = []
    newest = ""
    left = count

    def hear(envelope: Envelope) -> None:
        nonlocal newest, left
        event = envelope.event
        if isinstance(event, TaskEnded):
            left -= 1
        elif isinstance(event, EntryAdded) and envelope.parent_id is None:
            if isinstance(event.entry, User):
                newest = plain_text(event.entry.content)
            elif isinstance(event.entry, Assistant) and not event.entry.calls and newest in asked:
                waits.append(time.perf_counter() - asked.pop(newest))

    with scratch() as folder:
        async with runtime(folder, base_url, SETTINGS) as assembly:
            assembly.runtime.bus.subscribe(hear)
            spec, _ = conversation_spec(assembly, goal="PARENT hello", interactive=True, workspace=str(folder))
            session = await assembly.runtime.open_session(spec)

            async def tick(number: int) -> None:
                text = f"tick {number}"
                asked[text] = time.perf_counter()
                await session.exchange(text)

            for number in range(20):
                await tick(number)
            quiet = statistics.median(waits)
            tune_interpreter(attended=True)
            await session.exchange(f"start {count} async")
            waits.clear()
            number = 1000
            while left:
                await tick(number)
                number += 1
            await session.close()
    added = sorted((wait - quiet) * 1e3 for wait in waits)
    return {
        "quiet": quiet * 1e3,
        "median": statistics.median(added),
        "p90": added[int(len(added) * 0.9)],
        "worst": added[-1],
        "turns": len(added),
    }


def figures(given: Options) -> list[Figure]:
    """Measure in pairs; ratios are medians over the pairs."""
    count = 100 if given.quick else 1000
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    talks: list[dict[str, Any]] = []
    with scratch() as folder, model_process("answer") as base_url:
        bodies = str(folder / "bodies.json")
        part(__file__, "record", base_url, bodies)
        for _ in range(given.runs):
            pairs.append(
                (part(__file__, "bare", base_url, bodies, str(count)), part(__file__, "ours", base_url, str(count)))
            )
            talks.append(part(__file__, "talk", base_url, str(count)))
    walls = [mine["wall"] / plain["wall"] for plain, mine in pairs]
    cpus = [mine["cpu"] / plain["cpu"] for plain, mine in pairs]
    each = 1e3 / (count * TURNS)
    wall_note = ", ".join(f"{mine['wall']:.2f}/{plain['wall']:.2f}" for plain, mine in pairs)
    cpu_note = ", ".join(f"{mine['cpu'] * each:.3f}/{plain['cpu'] * each:.3f}" for plain, mine in pairs)
    bare_kb = statistics.median(plain["kb"] for plain, _ in pairs)
    name = f"{count} children"
    return [
        Figure(
            name=f"{name}: wall to a bare client", bar=1.5, measured=statistics.median(walls), unit="x",
            note=f"{wall_note} s",
        ),
        Figure(
            name=f"{name}: CPU to a bare client", bar=2.2, measured=statistics.median(cpus), unit="x",
            note=f"{cpu_note} ms a request",
        ),
        Figure(
            name=f"{name}: memory a child", bar=45, measured=statistics.median(mine["kb"] for _, mine in pairs),
            unit="KB", note=f"bare client {bare_kb:.0f} KB",
        ),
        Figure(
            name=f"{name}: parent's turn, median added", bar=50, unit="ms",
            measured=statistics.median(one["median"] for one in talks),
            note=f"{talks[0]['turns']} turns of {talks[0]['quiet']:.0f} ms, p90 {talks[0]['p90']:.0f} ms",
        ),
        Figure(
            name=f"{name}: parent's turn, worst added", bar=150, unit="ms",
            measured=statistics.median(one["worst"] for one in talks),
            note="median of the runs' worst: " + ", ".join(f"{one['worst']:.0f}" for one in talks),
        ),
    ]  # fmt: skip


async def run_part(name: str, base_url: str, *more: str) -> dict[str, Any]:
    """One part, in this process."""
    if name == "record":
        return await record(base_url, Path(more[0]))
    if name == "bare":
        return await bare(base_url, Path(more[0]), int(more[1]))
    return await (ours if name == "ours" else talk)(base_url, int(more[0]))


if __name__ == "__main__":
    run(__doc__, figures, run_part, sys.argv[1:])
