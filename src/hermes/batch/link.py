"""The way between a run and one process that carries rollouts out, wherever that runs: bytes there, bytes back, an end.

What the bytes say is `wire`'s, what an end means is decided by whoever listens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol

import anyio
import anyio.abc

__all__ = ["Connect", "Link", "pipes"]

#: Seconds that a process gets to end once its input has ended; killed, it loses nothing that is not kept.
PATIENCE = 0.5


class Link(Protocol):
    """One life of a process. Its methods raise `anyio.BrokenResourceError`, `ClosedResourceError` or `EndOfStream` once
    it has died."""

    async def send(self, data: bytes) -> None:
        """Hand bytes over; calls do not overlap."""

    async def receive(self) -> bytes:
        """The next bytes of the process, at least one."""

    async def close(self) -> None:
        """Let the process read the end of its input, at which it ends by itself. Safe to call twice."""


#: Starts a process and yields the way to it; at the end of the block it is gone. `again`: one before it has died.
Connect = Callable[[bool], AbstractAsyncContextManager[Link]]


class _Pipes:
    """The standard input and output of a process of this machine."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._to, self._back = process.stdin, process.stdout

    async def send(self, data: bytes) -> None:
        await self._to.send(data)

    async def receive(self) -> bytes:
        return await self._back.receive()

    async def close(self) -> None:
        await self._to.aclose()


def pipes(command: Sequence[str]) -> Connect:
    """What starts `command` on this machine."""
    return partial(_piped, command)


@asynccontextmanager
async def _piped(command: Sequence[str], again: bool) -> AsyncIterator[Link]:
    async with await anyio.open_process(command, stderr=None, start_new_session=True) as process:
        link = _Pipes(process)
        try:
            yield link
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(PATIENCE):
                await link.close()
                await process.wait()
            if process.returncode is None:
                process.kill()
