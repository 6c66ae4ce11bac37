"""Batches of unusual size: many workers, many rows, one huge row. Memory of the process that runs the batch.

With 256 and 1,000 workers the rows are those of `bench_batch.py`, against a bare runner with as many; memory is the
most that the process ever held. A million rows are answered at once by an engine without a model, so that what is
measured is the batch's own: plan, feed, records, merge.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from bench_batch import LATENCY, Instant, bare, ours
from figures import Figure, Options, run
from stage import model_process, part, peak_bytes, scratch

from hermes.batch.job import JobOptions, run_job
from hermes.batch.progress import LineDisplay
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.batch.run import StopSwitch
from hermes.core.messages import Assistant, Text, User

MIB = 2**20
#: Seconds that the longest part may take.
LONGEST = 3_600
#: Characters of the huge row.
HUGE = 50_000_000


class Short(Instant):
    """Answers each row with one short sentence."""

    async def run(self, request: RolloutRequest) -> RolloutResult:
        self.asked += 1
        answer = Assistant(text="It has three words.", thinking="I see.")
        return RolloutResult(state="completed", entries=(User(content=(Text(request.prompt),)), answer))


async def answered(rows: int, length: int) -> dict[str, Any]:
    """Run `rows` rows whose prompts have `length` characters."""
    with scratch() as folder:
        dataset = folder / "prompts.jsonl"
        with dataset.open("w", encoding="utf-8") as file:
            for number in range(rows):
                file.write(json.dumps({"prompt": f"part {number:07d} ".ljust(length, "x")}) + "\n")
        began, before = time.perf_counter(), peak_bytes()
        code = await run_job(
            JobOptions(
                given={"run_name": "r", "num_workers": 64, "batch_size": 1_000, "dataset_file": str(dataset)}, yes=True
            ),
            open_engine=Short(rows).open,
            display=LineDisplay(lambda _: None),
            say=lambda _: None,
            switch=StopSwitch(),
            data_dir=folder / "data",
        )
        kept = sum(1 for _ in (folder / "data" / "r" / "trajectories.jsonl").open("rb"))
    if code or kept != rows:
        raise SystemExit(f"exit {code}, {kept} of {rows} rows kept")
    return {"seconds": time.perf_counter() - began, "peak": peak_bytes(), "before": before}


def figures(given: Options) -> list[Figure]:
    """Measure."""
    found: list[Figure] = []
    with scratch() as folder, model_process("batch", *LATENCY) as base_url:
        bodies = str(folder / "bodies.json")
        part(__file__, "record", base_url, "1", "1", bodies)
        for workers in (256, 1_000):
            rows = str(workers if given.quick else 2 * workers)
            plain = part(__file__, "bare", base_url, rows, str(workers), bodies)
            mine = part(__file__, "ours", base_url, rows, str(workers))
            name = f"batch of {rows}, {workers} workers"
            note = f"{mine['wall']:.2f}/{plain['wall']:.2f} s"
            wall = mine["wall"] / plain["wall"]
            found += [
                Figure(
                    name=f"{name}: wall to a bare runner", bar=1.25 if workers == 256 else None, measured=wall,
                    unit="x", note=note,
                ),
                Figure(
                    name=f"{name}: memory", bar=400 if workers == 1_000 else None, measured=mine["peak"] / MIB,
                    unit="MB",
                ),
            ]  # fmt: skip
    few, many = (1_000, 10_000) if given.quick else (100_000, 1_000_000)
    less, more = (part(__file__, "answered", "", str(rows), "20", timeout=LONGEST) for rows in (few, many))
    grown = (more["peak"] - less["peak"]) / (many - few)
    note = f"{more['peak'] / MIB:.0f} MB in all, {less['peak'] / MIB:.0f} with {few:,}; {more['seconds']:.0f} s"
    found.append(Figure(name=f"{many:,} rows: memory a row", bar=60, measured=grown, unit="bytes", note=note))
    size = HUGE // 50 if given.quick else HUGE
    huge = part(__file__, "answered", "", "1", str(size), timeout=LONGEST)
    note = f"{huge['seconds']:.1f} s, {huge['before'] / MIB:.0f} MB before"
    found.append(
        Figure(name=f"one row of {size // 1_000_000} MB: memory", measured=huge["peak"] / MIB, unit="MB", note=note)
    )
    return found


async def run_part(name: str, base_url: str, rows: str, *more: str) -> dict[str, Any]:
    """One part, in this process."""
    if name == "answered":
        return await answered(int(rows), int(more[0]))
    if name == "bare":
        return await bare(base_url, int(rows), Path(more[1]), int(more[0]))
    return await ours(base_url, int(rows), Path(more[1]) if name == "record" else None, int(more[0]))


if __name__ == "__main__":
    run(__doc__, figures, run_part, sys.argv[1:])
