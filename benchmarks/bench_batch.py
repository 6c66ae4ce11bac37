"""A batch of prompts, 64 at a time, against a loopback model that answers after 200 ms ± 50 %: two turns, one command.

Each run is a pair in the same minute: a bare runner that makes the same requests and runs the same commands without any
agent, its first row alone too and its rows synced in groups, and the batch itself. Both are timed from the first
request to the last synced row; CPU counts from there to the end of the job, merging included.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import anyio
from figures import Figure, Options, run
from stage import MODEL, Usage, model_process, part, peak_bytes, runtime, scratch

from hermes.batch.execute import RuntimeEngine
from hermes.batch.job import JobOptions, run_job
from hermes.batch.progress import LineDisplay
from hermes.batch.rollout import Engine, RolloutRequest, RolloutResult
from hermes.batch.run import StopSwitch
from hermes.batch.settings import BatchSettings
from hermes.core.messages import Assistant, Text, User
from hermes.core.model import ModelProfile, ModelRequest
from hermes.providers.http import HttpSession
from hermes.providers.openai_chat import Endpoint, OpenAIChat
from hermes.runtime.spec import ModelChoice

WORKERS = 64
LATENCY = ("--latency", "0.2", "--jitter", "0.5")


class Timed:
    """An engine that notes when its first rollout began."""

    def __init__(self, engine: RuntimeEngine) -> None:
        self._engine = engine
        self.began = 0.0
        self.used: Usage | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def run(self, request: RolloutRequest) -> RolloutResult:
        if self.used is None:
            self.began, self.used = time.time(), Usage()
        return await self._engine.run(request)


async def ours(base_url: str, rows: int, recorded: Path | None = None, workers: int = WORKERS) -> dict[str, Any]:
    """The batch, as the command runs it. `recorded` takes the bodies of the first row's requests."""
    timed: list[Timed] = []
    session = HttpSession()
    model = Recording(MODEL, Endpoint(base_url=base_url), ModelProfile(thinking=True), session) if recorded else None
    said: list[str] = []
    with scratch() as folder:
        dataset = folder / "prompts.jsonl"
        lines = [{"prompt": f"How many words does part {n:06d} have?", "toolsets": ["terminal"]} for n in range(rows)]
        dataset.write_text("".join(json.dumps(line) + "\n" for line in lines))

        @asynccontextmanager
        async def open_engine(_: BatchSettings) -> AsyncIterator[Engine]:
            async with runtime(
                folder,
                base_url,
                {},
                model=model,
                journal=folder / "run.db",
                state_root=folder / "data" / "bench" / "state",
            ) as opened:
                choice = ModelChoice(name=MODEL, provider="custom", base_url=base_url)
                engine = RuntimeEngine(
                    opened.runtime, model=opened.model, choice=choice, ceiling=("terminal",), recovery=opened.recovery
                )
                await engine.look()
                timed.append(Timed(engine))
                yield timed[-1]

        code = await run_job(
            JobOptions(given={"dataset_file": str(dataset), "run_name": "bench", "num_workers": workers}, yes=True),
            open_engine=open_engine,
            display=LineDisplay(lambda _: None),
            say=said.append,
            switch=StopSwitch(),
            data_dir=folder / "data",
        )
        used = timed[0].used
        assert used is not None
        own, commands = used.own(), used.commands()
        synced = (folder / "data" / "bench" / "records.jsonl").stat().st_mtime
        kept = len((folder / "data" / "bench" / "trajectories.jsonl").read_bytes().splitlines())
    await session.close()
    if code or kept != rows:
        raise SystemExit(f"exit {code}, {kept} of {rows} rows kept: {' '.join(said)}")
    if recorded is not None and model is not None:
        recorded.write_text(json.dumps([base64.b64encode(body).decode() for body in model.bodies]))
    return {"wall": synced - timed[0].began, "own": own, "commands": commands, "peak": peak_bytes()}


class Recording(OpenAIChat):
    """A model that keeps the bodies of its requests."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.bodies: list[bytes] = []

    def body_of(self, request: ModelRequest) -> bytes:
        body = super().body_of(request)
        self.bodies.append(body)
        return body


async def bare(base_url: str, rows: int, recorded: Path, workers: int = WORKERS) -> dict[str, Any]:
    """The same requests and commands, and rows of about the same size, without an agent."""
    first, second = (base64.b64decode(body) for body in json.loads(recorded.read_text()))
    headers = {"Content-Type": "application/json"}
    waiting: list[bytes] = []
    ended = anyio.Event()
    with scratch() as folder, open(folder / "rows.jsonl", "ab") as file:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session:  # fmt: skip

            async def ask(body: bytes) -> None:
                async with session.post(f"{base_url}/chat/completions", data=body, headers=headers) as response:
                    assert response.status == 200
                    while await response.content.readany():
                        pass

            async def row() -> None:
                await ask(first)
                command = await asyncio.create_subprocess_exec(
                    "bash", "-c", "echo one", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                output, _ = await command.communicate()
                assert output == b"one\n"
                await ask(second)
                waiting.append(first + second)

            def sync(data: bytes) -> None:
                file.write(data)
                file.flush()
                os.fdatasync(file.fileno())

            async def write() -> None:
                while True:
                    if waiting:
                        data = b"\n".join(waiting)
                        waiting.clear()
                        await anyio.to_thread.run_sync(sync, data)
                    elif ended.is_set():
                        return
                    with anyio.move_on_after(0.05):
                        await ended.wait()

            async def work(numbers: list[int]) -> None:
                while numbers:
                    numbers.pop()
                    await row()

            used, began = Usage(), time.perf_counter()
            async with anyio.create_task_group() as writing:
                writing.start_soon(write)
                await row()
                async with anyio.create_task_group() as group:
                    left = list(range(rows - 1))
                    for _ in range(workers):
                        group.start_soon(work, left)
                ended.set()
            wall = time.perf_counter() - began
            own, commands = used.own(), used.commands()
    return {"wall": wall, "own": own, "commands": commands}


def figures(given: Options) -> list[Figure]:
    """Measure in pairs; the ratio is the median over the pairs."""
    rows = 128 if given.quick else 640
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    with scratch() as folder, model_process("batch", *LATENCY) as base_url:
        bodies = str(folder / "bodies.json")
        part(__file__, "record", base_url, "1", bodies)
        for _ in range(given.runs):
            plain = part(__file__, "bare", base_url, str(rows), bodies)
            pairs.append((plain, part(__file__, "ours", base_url, str(rows))))
    own = [mine["own"] / rows * 1e3 for _, mine in pairs]
    both = [(mine["own"] + mine["commands"]) / rows * 1e3 for _, mine in pairs]
    plain_own = statistics.median(plain["own"] / rows * 1e3 for plain, _ in pairs)
    plain_both = statistics.median((plain["own"] + plain["commands"]) / rows * 1e3 for plain, _ in pairs)
    finished = 2_000 if given.quick else 100_000
    again = part(__file__, "resumed", "", str(finished))
    if again["touched"] or again["asked"] != 1:
        raise SystemExit(f"a resumed run touched {again['touched']} finished files and asked for {again['asked']} rows")
    name = f"batch of {rows}, {WORKERS} workers"
    return [
        Figure(
            name=f"{name}: wall to a bare runner", bar=1.25, unit="x",
            measured=statistics.median(mine["wall"] / plain["wall"] for plain, mine in pairs),
            note=", ".join(f"{mine['wall']:.2f}/{plain['wall']:.2f}" for plain, mine in pairs) + " s",
        ),
        Figure(
            name=f"{name}: CPU a prompt", bar=4, measured=statistics.median(own), unit="ms",
            note=f"bare runner {plain_own:.1f}",
        ),
        Figure(
            name=f"{name}: CPU a prompt with its commands", bar=10, measured=statistics.median(both), unit="ms",
            note=f"bare runner {plain_both:.1f}",
        ),
        Figure(
            name=f"batch --resume on {finished:,} finished rows of 5 KB", bar=5, measured=again["seconds"], unit="s",
            note=f"until the row that is left is asked for; CPU {again['cpu']:.2f} s; no finished file is touched",
        ),
    ]  # fmt: skip


#: Bytes of a finished row.
ROW_BYTES = 5_000


async def resumed(rows: int) -> dict[str, Any]:
    """Seconds until a run with so many finished rows asks for the one that is left."""
    with scratch() as folder:
        dataset = folder / "prompts.jsonl"
        dataset.write_text("".join(json.dumps({"prompt": f"part {n:06d}"}) + "\n" for n in range(rows + 1)))
        engine = Instant(rows)

        async def start(**more: Any) -> int:
            return await run_job(
                JobOptions(given={"run_name": "r", "num_workers": 64, **more}, resume=engine.asked > 0, yes=True),
                open_engine=engine.open,
                display=LineDisplay(lambda _: None),
                say=lambda _: None,
                switch=StopSwitch(),
                data_dir=folder / "data",
            )

        await start(dataset_file=str(dataset))
        finished = {path: path.stat().st_mtime_ns for path in (folder / "data" / "r").glob("batch_*.jsonl")}
        engine.failing, began, used = False, time.perf_counter(), time.process_time()
        await start()
        touched = sum(path.stat().st_mtime_ns != at for path, at in finished.items())
    cpu = engine.began_cpu - used
    return {"seconds": engine.began - began, "cpu": cpu, "touched": touched, "asked": engine.asked}


class Instant:
    """An engine that answers at once with a row of `ROW_BYTES`; the last row fails while it is `failing`."""

    model, profile, taped = MODEL, ModelProfile(thinking=True), False
    toolsets: ClassVar = {"terminal": ("terminal",), "file": ("read_file",), "web": ("web_search",)}

    def __init__(self, rows: int) -> None:
        self.rows, self.failing, self.began, self.began_cpu, self.asked = rows, True, 0.0, 0.0, 0

    def redact(self, data: bytes) -> bytes:
        return data

    def begun(self) -> tuple[str, ...]:
        return ()

    def keep_only(self, names: Any) -> None:
        """Nothing is half-done here."""

    def settled(self, key: str, attempt: int) -> None:
        """Nothing is kept to go on from."""

    def spent(self) -> tuple[int, float]:
        return 0, 0.0

    def waiting_for(self) -> str:
        return ""

    @asynccontextmanager
    async def open(self, _: BatchSettings) -> AsyncIterator[Any]:
        self.asked, self.began = 0, 0.0
        yield self

    async def run(self, request: RolloutRequest) -> RolloutResult:
        self.asked += 1
        if not self.began:
            self.began, self.began_cpu = time.perf_counter(), time.process_time()
        if self.failing and request.index == self.rows:
            return RolloutResult(state="failed")
        answer = Assistant(text="x" * ROW_BYTES, thinking="I see.")
        return RolloutResult(state="completed", entries=(User(content=(Text(request.prompt),)), answer))


async def run_part(name: str, base_url: str, rows: str, *more: str) -> dict[str, Any]:
    """One part, in this process."""
    if name == "resumed":
        return await resumed(int(rows))
    if name == "bare":
        return await bare(base_url, int(rows), Path(more[0]))
    return await ours(base_url, int(rows), Path(more[0]) if more else None)


if __name__ == "__main__":
    run(__doc__, figures, run_part, sys.argv[1:])
