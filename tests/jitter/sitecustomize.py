"""A busy machine on purpose: random delays in this process and in every Python process that it starts.

`make jitter` puts this folder on `PYTHONPATH`, so that Python loads the file at its start. Before a callback of an
event loop and before a job of a thread pool it sometimes sleeps, which lets everything else go first, as a loaded
machine does. A test that fails under it assumed that something had already happened; so would somebody's program.
Callbacks keep their order: asyncio promises it.

`JITTER` is the seed and turns it on, `JITTER_RATE` the share of callbacks that are delayed, `JITTER_MOST` the longest
delay in seconds. A rate of 0.2 with 0.01 s finds other things than one of 0.003 with 0.6 s.
"""

from __future__ import annotations

import asyncio.events
import concurrent.futures.thread
import os
import random
import time
from typing import Any


def stumble(owner: type, name: str, dice: random.Random, rate: float, most: float) -> None:
    """Let a method of a class of the standard library sleep now and then before it does its work."""
    real = getattr(owner, name)

    def late(self: Any) -> Any:
        if dice.random() < rate:
            time.sleep(dice.random() * most)
        return real(self)

    setattr(owner, name, late)


if seed := os.environ.get("JITTER"):
    here = random.Random(f"{seed} {os.getpid()}")
    share, longest = float(os.environ.get("JITTER_RATE", "0.02")), float(os.environ.get("JITTER_MOST", "0.05"))
    stumble(asyncio.events.Handle, "_run", here, share, longest)
    stumble(concurrent.futures.thread._WorkItem, "run", here, min(1.0, 5 * share), longest)
