"""The actor of a Ray cluster that holds one process of a run: it starts the process on its node and carries bytes.

It knows nothing of what the bytes say, keeps none, and sees no key but on its way: what a process is given comes
through its input, which stands in no record of the cluster. Ray is not imported here: it makes the class an actor.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import anyio
import anyio.abc

__all__ = ["VERSIONS", "Relay"]

_COMMAND = (sys.executable, "-m", "hermes.cli.batch_worker")
#: What has to be the same on both sides.
VERSIONS: Mapping[str, str] = MappingProxyType(
    {"hermes": version("hermes-tasktree"), "python": ".".join(platform.python_version_tuple()[:2])}
)
#: Seconds that a process gets to end once its input has ended.
PATIENCE = 1.0
#: Bytes of the last words of a process that are kept.
LAST_WORDS = 2_000


class Relay:
    """One process, from its start to its end; made, used and ended by one link of a run."""

    def __init__(self) -> None:
        self._process: anyio.abc.Process | None = None
        self._said = bytearray()

    async def about(self) -> dict[str, str]:
        """The versions of this node, and its name."""
        return {**VERSIONS, "node": platform.node()}

    async def start(self) -> None:
        """Start the process. Ray's own variables stay here: a row's command has no business with the cluster."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._process = await anyio.open_process(_COMMAND, env=environ, start_new_session=True)

    async def send(self, data: bytes) -> None:
        """Write to the input of the process."""
        await _there(_there(self._process).stdin).send(data)

    async def receive(self) -> bytes:
        """The next bytes of its output; none once it has ended."""
        try:
            data: bytes = await _there(_there(self._process).stdout).receive()
            return data
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return b""

    async def listen(self) -> None:
        """Read its error output until it ends, so that it is never held up by it; the last of it is kept."""
        try:
            async for data in _there(_there(self._process).stderr):
                self._said += data
                del self._said[:-LAST_WORDS]
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def last_words(self) -> str:
        """The end of its error output."""
        return self._said.decode("utf-8", "replace").strip()

    async def close(self) -> None:
        """End its input and wait for its end, for a while."""
        process = _there(self._process)
        with anyio.move_on_after(PATIENCE):
            await _there(process.stdin).aclose()
            await process.wait()
        if process.returncode is None:
            process.kill()
        await process.aclose()


def _there(part: Any) -> Any:
    if part is None:
        raise anyio.ClosedResourceError
    return part
