"""What the sandbox costs: the same command of a task bare and behind bubblewrap, in turn, as a ratio of one run.

A command is `true` in a session of its own: shell, state, output and the history's bookkeeping of the terminal are in
both. Medians of pairs that alternate, so that a busy machine burdens both alike.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import anyio
from figures import Figure, options, show
from stage import scratch

from hermes.core.scope import CallKey, TaskScope
from hermes.environments.local import LocalEnvironment
from hermes.environments.sandbox import Bubblewrap, SandboxSettings
from hermes.environments.scrub import command_environment


async def measure(folder: Path, pairs: int) -> tuple[float, float]:
    """Median seconds of a command (bare, sandboxed)."""
    work = folder / "work"
    work.mkdir()
    maker = Bubblewrap(SandboxSettings(), folder / "cache")
    reason = maker.why_not()
    if reason:
        raise SystemExit(f"no sandbox here: {reason}")
    commands = anyio.CapacityLimiter(4)

    def place(name: str, *, boxed: bool) -> LocalEnvironment:
        state = folder / name
        environment = command_environment({"PATH": "/usr/bin:/bin", "HOME": "/root"})
        box = maker.sandbox(str(work), state, environment) if boxed else None
        scope = TaskScope(task_id=name, session_id="s", root_id="r", workspace=str(work))
        return LocalEnvironment(scope, state, source=os.environ, commands=commands, enclosure=box)

    places = (place("bare", boxed=False), place("boxed", boxed=True))
    took: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs + 3):
        for each, times in zip(places, took, strict=True):
            began = time.perf_counter()
            await each.run("true", key=CallKey("bench", number, 0))
            if number >= 3:  # the first ones find the shell and make directories
                times.append(time.perf_counter() - began)
    for each in places:
        await each.close()
    maker.close()
    return statistics.median(took[0]), statistics.median(took[1])


def main() -> None:
    """Measure and print."""
    given = options(__doc__)
    found = []
    for _ in range(given.runs):
        with scratch() as folder:
            found.append(anyio.run(measure, folder, 20 if given.quick else 150))
    found.sort(key=lambda pair: pair[1] / pair[0])
    bare, boxed = found[len(found) // 2]
    note = f"{1000 * boxed:.1f} ms against {1000 * bare:.1f} ms"
    show(
        [Figure(name="a sandboxed command, bare ones", measured=boxed / bare, unit="x", bar=4, note=note)],
        sys.stdout,
        as_json=given.json,
    )


if __name__ == "__main__":
    main()
