"""What lets other processes reach the tasks of this one: its bell, and the loop that looks into the journal.

Nothing of it exists for a runtime in memory: nobody else could have written to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread

from hermes.compose.parts import Parts
from hermes.core.clock import held
from hermes.runtime.outside import Outside
from hermes.runtime.runtime import Runtime
from hermes.store.wake import Bell, open_bell

__all__ = ["answering", "bell_of", "rung"]


@asynccontextmanager
async def answering(
    parts: Parts, runtime: Runtime, owner: str
) -> AsyncIterator[tuple[Callable[[], Coroutine[Any, Any, None]], ...]]:
    """What has to run beside the tasks so that other processes are heard; the bell is closed at the end."""
    if parts.memory:
        yield ()
        return
    async with bell_of(parts, owner) as bell:
        yield (Outside(runtime.supervisor, runtime.control, rung(bell) if bell is not None else None).run,)


@asynccontextmanager
async def bell_of(parts: Parts, name: str) -> AsyncIterator[Bell | None]:
    """A bell of the home for the length of a block, None where there can be none."""
    with held(parts.hold):
        bell = await anyio.to_thread.run_sync(open_bell, parts.loaded.home.path, name)
    try:
        yield bell
    finally:
        if bell is not None:
            with anyio.CancelScope(shield=True), held(parts.hold):
                await anyio.to_thread.run_sync(bell.close)


def rung(bell: Bell) -> Callable[[], Awaitable[None]]:
    """What waits until a bell is rung."""

    async def wait() -> None:
        await anyio.wait_readable(bell.socket)
        bell.clear()

    return wait
