"""Who dispatches a board on this machine: a file lock that the kernel drops with its process."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hermes.environments.process import start_time
from hermes.store.filelock import is_held, take_lock

__all__ = ["BoardLock", "Serving"]


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """The process that holds the lock, and since when (seconds since the epoch).

    `arguments` stand before the command that serves the board as it does, so that another can take its place.
    """

    pid: int
    since: float
    started: str = ""
    arguments: tuple[str, ...] = ()


class BoardLock:
    """The right to dispatch a board on this machine; its file stays when it is dropped."""

    def __init__(self, path: Path, arguments: Sequence[str] = ()) -> None:
        self.path = path
        self._arguments = tuple(arguments)
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take it; False when another process has it. Raises `OperatorError` where it cannot be written."""
        descriptor = take_lock(self.path, cure="make its folder writable for this user")
        if descriptor is None:
            return False
        self._descriptor = descriptor
        own = os.getpid()
        serving = Serving(pid=own, since=time.time(), started=start_time(own), arguments=self._arguments)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(serving), 0)
        return True

    def release(self) -> None:
        """Drop it. May be called again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.truncate(descriptor, 0)
            os.close(descriptor)

    def holder(self) -> Serving | None:
        """Who has it, None if nobody."""
        if not is_held(self.path):
            return None
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Serving)
        except msgspec.DecodeError:  # it is just being taken
            return Serving(pid=0, since=time.time())

    def end_holder(self, patience: float = 60.0) -> bool:
        """Ask whoever has it to end and wait; False when it does not. Workers go on."""
        until = time.monotonic() + patience
        asked = 0
        while (found := self.holder()) is not None:
            # One that is just taking the lock has not yet written who it is.
            if found.pid and found.pid != asked and (not found.started or start_time(found.pid) == found.started):
                with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(found.pid, signal.SIGTERM)
                asked = found.pid
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)
        return True
