"""Files on this machine as they are: no boundary but the rights of this process.

What a task with a boundary sees is in `bounded.py`. Nothing here decides whether a file may be read or written.
"""

from __future__ import annotations

import os
import stat
import tempfile

from hermes.core.environment import PathKind
from hermes.core.errors import ToolError

__all__ = ["LocalFiles", "kind_of", "new_mode"]


def kind_of(mode: int) -> PathKind:
    """What a status mode says of a path."""
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISDIR(mode):
        return "folder"
    return "file" if stat.S_ISREG(mode) else "other"


def new_mode() -> int:
    """The mode of a new file by the mask of this process, which is read and not set: other threads would see that."""
    mask = 0o022
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    mask = int(line.split()[1], 8)
    except OSError:
        return 0o644
    return 0o666 & ~mask


class LocalFiles:
    """See `Files` for the contract. Nothing is written in the directory `kept` ("" for none), but for what lies in it
    below `own`."""

    def __init__(self, kept: str = "", own: str = "") -> None:
        self._kept = os.path.realpath(kept) if kept else ""
        self._own = os.path.realpath(own) if own else ""

    def real(self, path: str) -> str:
        """The file that `path` stands for."""
        return os.path.realpath(path)

    def stat(self, path: str) -> os.stat_result:
        """Its status."""
        return os.stat(path)

    def open(self, path: str) -> int:
        """A descriptor for reading."""
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def replace(self, path: str, data: bytes) -> None:
        """Replace or make a file as a whole."""
        real = os.path.realpath(path)
        own = self._own and real.startswith(self._own + "/")
        if self._kept and real.startswith(self._kept + "/") and not own:
            raise ToolError(
                f"{path} belongs to {self._kept}, from which this task is isolated; write in your own workspace. "
                "Nothing was changed."
            )
        folder = os.path.dirname(real)
        os.makedirs(folder, exist_ok=True)
        mode = _mode_for(real)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".hermes-write-")
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), mode)
            os.replace(temporary, real)
        except OSError:
            os.unlink(temporary)
            raise

    def scan(self, path: str) -> list[tuple[str, PathKind]]:
        """The names in a directory, sorted."""
        found: list[tuple[str, PathKind]] = []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink():
                    found.append((entry.name, "link"))
                elif entry.is_dir(follow_symlinks=False):
                    found.append((entry.name, "folder"))
                else:
                    found.append((entry.name, "file" if entry.is_file(follow_symlinks=False) else "other"))
        return sorted(found)


def _mode_for(path: str) -> int:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return new_mode()
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "it is read-only", path)
    return stat.S_IMODE(status.st_mode)
