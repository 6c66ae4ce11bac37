"""A program that asks a model one thing, for a test that stops it: `python -m tests.compose.sleeper URL FOLDER`.

Its clock that goes on during a sleep is ahead by what stands in `FOLDER/ahead`. It prints the answer, and a line for
each time that it asked again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from hermes.compose import open_runtime
from hermes.core.events import RetryWaiting
from hermes.runtime.standstill import awake_clock
from hermes.testing.lab import Lab
from tests.compose.served import parts_for


async def _main(url: str, folder: Path) -> None:
    ahead = folder / "ahead"
    parts = parts_for(url, folder, watchdog=True, awake=lambda: awake_clock() + float(ahead.read_text()))
    async with open_runtime(parts) as assembly:
        lab = Lab(assembly, folder)
        result = await lab.ask("go")
    for event in lab.of(RetryWaiting):
        print(f"again: {event.reason} {event.attempt} {event.message}")
    print(f"answer: {result.summary}{result.error}")


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1], Path(sys.argv[2]))
