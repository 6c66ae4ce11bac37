"""Waking another process of this home: one datagram to `<home>/run/<name>.sock`, which says nothing but "look".

What is asked stands in the journal; a datagram that is lost costs the half second until the other one looks by itself.
So nothing here raises for a socket that cannot be made or reached. Nothing is read from the datagrams.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

__all__ = ["Bell", "open_bell", "ring"]

#: Bytes of a socket's path that every platform takes.
_PATH_BYTES = 100


class Bell:
    """A socket that others ring. Close it; closing twice changes nothing."""

    def __init__(self, path: Path, sock: socket.socket) -> None:
        self.path = path
        self.socket = sock

    def clear(self) -> None:
        """Forget the datagrams that came so far."""
        while True:
            try:
                self.socket.recv(16)
            except (BlockingIOError, InterruptedError):
                return

    def close(self) -> None:
        """Close the socket and remove its file."""
        if self.socket.fileno() != -1:
            self.socket.close()
            self.path.unlink(missing_ok=True)


class _Address:
    """A path that fits into a socket's address: a long one goes through the open folder."""

    def __init__(self, path: Path) -> None:
        self._folder: int | None = None
        self.path = str(path)
        if len(os.fsencode(path)) > _PATH_BYTES and sys.platform == "linux":
            self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.path = f"/proc/self/fd/{self._folder}/{path.name}"

    def close(self) -> None:
        if self._folder is not None:
            os.close(self._folder)


def open_bell(home: Path, name: str) -> Bell | None:
    """Make the socket `<home>/run/<name>.sock` with mode 0600; None where that cannot be done."""
    path = home / "run" / f"{name}.sock"
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.setblocking(False)
    try:
        path.unlink(missing_ok=True)
        address = _Address(path)
        try:
            sock.bind(address.path)
        finally:
            address.close()
        path.chmod(0o600)  # the folder is closed to others anyway
    except OSError:
        sock.close()
        return None  # an address too long, a file system without sockets: whoever is asked looks by itself
    return Bell(path, sock)


def ring(home: Path, name: str) -> bool:
    """Wake whoever has the socket of that name; False if nobody could be reached."""
    try:
        address = _Address(home / "run" / f"{name}.sock")
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        try:
            sock.sendto(b"look", address.path)
        except BlockingIOError:
            return True  # its queue is full: it has been rung often enough
        except OSError:
            return False
        finally:
            address.close()
    return True
