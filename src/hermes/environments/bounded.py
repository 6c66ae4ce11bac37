"""The files of a task that is held by a boundary, opened in this process without a way out of it.

A path is walked name by name with descriptors and without following links; a link is read and walked again from the
root that the task sees, as the kernel does inside its boundary. So it makes no difference whether a name is exchanged
for a link between a check and its use: nothing is checked by name. `..` is removed from the text of a path first.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from hermes.core.environment import PathKind
from hermes.core.errors import ToolError
from hermes.environments.files import kind_of, new_mode

__all__ = ["BoundedFiles", "Mount"]

#: Links that are followed in one path, as in the kernel.
_MAX_LINKS = 40


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A directory or file that a task sees at `inside`. `outside` is its path on this machine, None for one that is
    covered by something empty."""

    inside: str
    outside: str | None
    writable: bool = False


class _Link(Exception):  # noqa: N818  it is a way on, not an error
    def __init__(self, path: str) -> None:
        self.path = path


class _Place:
    """Where a path ends: a descriptor of its directory and its name there; an empty name is the directory itself."""

    def __init__(self, folder: int, name: str, inside: str, mount: Mount) -> None:
        self.folder = folder
        self.name = name
        self.inside = inside
        self.mount = mount

    def stat(self) -> os.stat_result:
        if not self.name:
            return os.fstat(self.folder)
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)

    @property
    def outside(self) -> str:
        below = self.inside[len(self.mount.inside) :].strip("/")
        return os.path.join(self.mount.outside or "", below) if below else self.mount.outside or ""


class BoundedFiles:
    """See `Files` for the contract. `mounts` may be nested; the innermost one decides. `links` are targets of links
    that stand beside the mounts (`/bin`). `boundary` names it in errors ("the sandbox"). `readable` returns further
    files of this machine that may be read, as they are now."""

    def __init__(
        self,
        mounts: Sequence[Mount],
        links: Mapping[str, str],
        boundary: str,
        readable: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._mounts = sorted(mounts, key=lambda mount: len(mount.inside), reverse=True)
        self._links = links
        self._boundary = boundary
        self._readable = readable

    def _mount(self, path: str) -> Mount:
        if path in self._readable():
            return Mount(inside=path, outside=path)
        for mount in self._mounts:
            if path == mount.inside or path.startswith(mount.inside.rstrip("/") + "/"):
                if mount.outside is None:
                    break
                return mount
        for link, target in self._links.items():
            if path == link or path.startswith(link + "/"):
                raise _Link(os.path.normpath(os.path.join(os.path.dirname(link), target, path[len(link) + 1 :])))
        raise ToolError(f"{path} is not reachable from {self._boundary}. Work with files of the workspace.")

    @contextmanager
    def _found(self, path: str, *, make: bool = False) -> Iterator[_Place]:
        """Walk to a path, links followed; `make` makes missing directories. Its last name need not exist."""
        for _ in range(_MAX_LINKS):
            opened: list[int] = []
            try:
                place = self._walk(os.path.normpath(path), opened, make)
                yield place
                return
            except _Link as link:
                path = link.path
            finally:
                for descriptor in opened:
                    os.close(descriptor)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _walk(self, path: str, opened: list[int], make: bool) -> _Place:
        mount = self._mount(path)
        if make and not mount.writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        names = [name for name in path[len(mount.inside) :].split("/") if name]
        folder = os.open(mount.outside or "", os.O_PATH | os.O_CLOEXEC)
        opened.append(folder)
        inside = mount.inside
        for number, name in enumerate(names):
            last = number == len(names) - 1
            try:
                found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            except FileNotFoundError:
                if last:
                    return _Place(folder, name, os.path.join(inside, name), mount)
                if not make:
                    raise
                os.mkdir(name, dir_fd=folder)
                found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            opened.append(found)
            mode = os.fstat(found).st_mode
            if stat.S_ISLNK(mode):
                target = os.readlink("", dir_fd=found)
                raise _Link(os.path.normpath(os.path.join(inside, target, *names[number + 1 :])))
            if last:
                return _Place(folder, name, os.path.join(inside, name), mount)
            if not stat.S_ISDIR(mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder, inside = found, os.path.join(inside, name)
        return _Place(folder, "", inside, mount)

    def real(self, path: str) -> str:
        """The file on this machine that `path` stands for."""
        try:
            with self._found(path) as place:
                return place.outside
        except OSError:  # a part of it is missing or no directory: nothing there can be a link
            path = os.path.normpath(path)
            try:
                mount = self._mount(path)
            except _Link as link:
                return self.real(link.path)
            return os.path.join(mount.outside or "", path[len(mount.inside) :].strip("/"))

    def stat(self, path: str) -> os.stat_result:
        """Its status."""
        whole = self._whole(path)
        if whole is not None:  # asked before each command
            return os.stat(whole)
        with self._found(path) as place:
            return place.stat()

    def _whole(self, path: str) -> str | None:
        """What is mounted at `path` itself; None for what lies below, or is reached by a link."""
        try:
            mount = self._mount(path)
        except (_Link, ToolError):  # said with the path as it is walked
            return None
        return mount.outside if mount.inside == path else None

    def open(self, path: str) -> int:
        """A descriptor for reading."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._found(path) as place:
            if not place.name:  # what is mounted itself: its path on this machine is not the task's to change
                return os.open(place.outside, flags)
            return os.open(place.name, flags, dir_fd=place.folder)

    def replace(self, path: str, data: bytes) -> None:
        """Replace or make a file as a whole."""
        with self._found(path, make=True) as place:
            try:
                mode = stat.S_IMODE(place.stat().st_mode)
                if not place.name or not stat.S_ISREG(place.stat().st_mode):
                    raise OSError(errno.EISDIR, "it is no regular file", path)
                if not mode & stat.S_IWUSR:
                    raise PermissionError(errno.EACCES, "it is read-only", path)
            except FileNotFoundError:
                mode = new_mode()
            if any(each.inside == place.inside for each in self._mounts):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
            self._write(place, mode, data)

    @staticmethod
    def _write(place: _Place, mode: int, data: bytes) -> None:
        temporary = f".hermes-write-{secrets.token_hex(6)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=place.folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), mode)
            os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except OSError:
            os.unlink(temporary, dir_fd=place.folder)
            raise

    def scan(self, path: str) -> list[tuple[str, PathKind]]:
        """The names in a directory, sorted."""
        descriptor = self.open(path)
        try:
            with os.scandir(descriptor) as entries:
                return sorted((entry.name, kind_of(entry.stat(follow_symlinks=False).st_mode)) for entry in entries)
        finally:
            os.close(descriptor)
