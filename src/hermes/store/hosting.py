"""The one process of a home that works without a terminal: who it is, whether it lives, asking it to end.

It holds `<home>/run/host.lock` for life, like every owner of tasks; the file says who it is. Starting it is the command
line's business.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

import msgspec

from hermes.store.filelock import is_held, take_lock

__all__ = ["HOST", "HostInfo", "HostLock", "host_alive", "host_info", "request_stop", "stop_requested"]

#: Its name among the sockets of the home.
HOST = "host"


class HostInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the host says of itself. `started_at` is seconds since the epoch."""

    pid: int
    owner: str
    started_at: float


def _lock(home: Path) -> Path:
    return home / "run" / "host.lock"


def _stop(home: Path) -> Path:
    return home / "run" / "host.stop"


class HostLock:
    """The right to be the host of a home. Enter it; entering tells whether it was free.

    The file stays when the lock is dropped: removing it would let two processes hold a lock of that name.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock; False when another process has it.

        Raises:
            OperatorError: `<home>/run` cannot be written.
        """
        path = _lock(self._home)
        cure = f"make {path.parent} writable for this user, or set HERMES_HOME to a folder on a local disk"
        descriptor = take_lock(path, cure=cure)
        if descriptor is None:
            return False
        self._descriptor = descriptor
        _stop(self._home).unlink(missing_ok=True)
        return True

    def say(self, info: HostInfo) -> None:
        """Write who the host is."""
        if self._descriptor is not None:
            os.truncate(self._descriptor, 0)
            os.pwrite(self._descriptor, msgspec.json.encode(info), 0)

    def release(self) -> None:
        """Drop the lock. May be called again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.truncate(descriptor, 0)
            os.close(descriptor)

    def __enter__(self) -> HostLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def host_alive(home: Path) -> bool:
    """Whether a process holds the host's lock."""
    return bool(is_held(_lock(home)))


def host_info(home: Path) -> HostInfo | None:
    """What the living host says of itself; None without one, and in the moment in which it starts."""
    if not host_alive(home):
        return None
    try:
        return msgspec.json.decode(_lock(home).read_bytes(), type=HostInfo)
    except (msgspec.DecodeError, FileNotFoundError):
        return None


def request_stop(home: Path) -> None:
    """Ask the host to end; wake it afterwards."""
    _stop(home).touch(mode=0o600)


def stop_requested(home: Path) -> bool:
    """Whether the host was asked to end."""
    return _stop(home).exists()
