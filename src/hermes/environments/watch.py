"""Looks at what sandboxed commands take of the machine while they run, where the kernel sets no limit by itself.

That is the room on the disk in total, and the processes of root where there are no control groups. A look twice a
second is no wall: what is written within half a second gets through. It is cheap: files are only counted once the disk
has filled by as much as the task may still add, whoever did it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from hermes.environments.process import parent_of, running_pids

__all__ = ["DiskRoom", "Watch", "crowded"]

_MIB = 1024 * 1024
_EVERY = 0.5
#: A count of files rests for as many times as long as it took.
_REST = 20
#: Bytes that the disk has to fill by before a task that is at its limit is counted again.
_STEP = 64 * _MIB
_GRACE = 1.0  # the clock of a file system is behind by a tick


class Watch:
    """One thread, which exists while there is something to look at. `every` is seconds."""

    def __init__(self, every: float = _EVERY) -> None:
        self._every = every
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._looks: dict[object, tuple[Callable[[], str], Callable[[str], None]]] = {}
        self._thread: threading.Thread | None = None
        self._census: dict[int, list[int]] | None = None

    def begin(self, look: Callable[[], str], tell: Callable[[str], None]) -> Callable[[], None]:
        """Call `look` on the thread (it may block) until it says something, which `tell` gets there, or until what this
        returns is called. Raises RuntimeError where this machine gives no thread."""
        one = object()
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                thread = threading.Thread(target=self._run, name="hermes-watch", daemon=True)
                thread.start()
                self._thread = thread
            self._looks[one] = look, tell

        def end() -> None:
            with self._lock:
                self._looks.pop(one, None)

        return end

    def inside(self, leader: int) -> list[int]:
        """Processes in the namespace that a child of `leader` is the first of (blocking), as they are in this round."""
        if self._census is None:
            self._census = _census()
        return self._census.get(leader, [])

    def _run(self) -> None:
        seen: set[object] = set()
        while not self._closed.wait(self._every):
            with self._lock:
                if not self._looks:
                    self._thread = None
                    return
                looks = dict(self._looks)
            self._census = None
            for one, (look, tell) in looks.items():
                # One that came since the last round is most likely over in the next.
                if one in seen and (said := look()):
                    with self._lock:
                        still = self._looks.pop(one, None)
                    if still is not None:
                        tell(said)
            seen = set(looks)

    def close(self) -> None:
        """End the thread (blocking, a moment). Safe to call twice."""
        self._closed.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()


class _Uncountable(Exception):
    """A directory keeps from being looked into."""


class DiskRoom:
    """What one task may add to the disk in `folders`, which hold no files of others but are seen by whoever shares
    them: `limit` bytes in files that changed since this was made. Blocking; any thread may look.

    `used` tells how many bytes of a folder's file system are taken, `since` is in seconds since the epoch.
    """

    def __init__(
        self,
        folders: Sequence[str],
        limit: int,
        *,
        used: Callable[[str], int] | None = None,
        since: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders = tuple(folders)
        self._limit = limit
        self._used = used or _used
        self._clock = clock
        self._since = time.time() - _GRACE if since is None else since
        self._lock = threading.Lock()
        devices: dict[int, str] = {}
        for folder in self._folders:
            with contextlib.suppress(OSError):  # it is not there; whoever needs it says so
                devices.setdefault(os.stat(folder).st_dev, folder)
        self._devices = frozenset(devices)
        self._last = {folder: self._used(folder) for folder in devices.values()}
        self._grown = 0
        self._room = limit
        self._rested = 0.0

    @property
    def near(self) -> bool:
        """Whether the next look may well count files, or wait for one that does: by what the last one found."""
        return self._lock.locked() or 2 * self._grown > self._room

    def look(self, inside: Callable[[], Iterable[int]] = tuple) -> str:
        """A sentence if the task has more than it may have. `inside` finds its processes, whose open files count too
        when they have no name any more."""
        with self._lock:
            for folder, before in self._last.items():
                with contextlib.suppress(OSError):  # removed by the task, or a network's that is away
                    self._last[folder] = now = self._used(folder)
                    self._grown += max(0, now - before)
            if self._grown <= self._room or self._clock() < self._rested:
                return ""
            begun = self._clock()
            try:
                held, why = self._held(inside()), ""
            except _Uncountable as error:
                held, why = self._limit, f" What stands in {error} cannot be counted."
            self._rested = begun + (1 + _REST) * (self._clock() - begun)
            self._grown = 0
            self._room = max(self._limit - held, min(_STEP, self._limit // 2))
            if held <= self._limit and not why:
                return ""
        written = f"{'more than ' if why else ''}{held // _MIB} MB of the disk, of {self._limit // _MIB} MB"
        return (
            f"What was written in the sandbox since the task began takes {written} (terminal.container_disk).{why} "
            "Remove what is not needed."
        )

    def _held(self, pids: Iterable[int]) -> int:
        devices, files = set(self._devices), dict[tuple[int, int], int]()
        for one in _files(self._folders):
            devices.add(one.st_dev)
            if one.st_ctime >= self._since and stat.S_ISREG(one.st_mode):
                files[one.st_dev, one.st_ino] = one.st_blocks * 512
        for one in _unnamed(pids):
            if one.st_dev in devices and one.st_ctime >= self._since:  # and not in memory
                files[one.st_dev, one.st_ino] = one.st_blocks * 512
        return sum(files.values())


def _threads(pid: int) -> int:
    try:
        return max(0, os.stat(f"/proc/{pid}/task").st_nlink - 2)
    except OSError:
        return 0


def _used(folder: str) -> int:
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _files(folders: Iterable[str]) -> Iterator[os.stat_result]:
    """All files below; links are not followed. Raises _Uncountable."""
    waiting = list(folders)
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        continue
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        yield entry.stat(follow_symlinks=False)
        except OSError as error:
            if _hides(folder, error):
                shown = os.fsencode(folder[:200]).decode("utf-8", "replace")  # it becomes part of an answer
                raise _Uncountable(f"{shown}: {error.strerror}") from None


def _hides(folder: str, error: OSError) -> bool:
    """Whether a directory that cannot be read was made so: deeper than any path, or closed by its owner."""
    if error.errno == errno.ENAMETOOLONG:
        return True
    with contextlib.suppress(OSError):
        return error.errno == errno.EACCES and os.stat(folder, follow_symlinks=False).st_uid == os.getuid()
    return False


def _unnamed(pids: Iterable[int]) -> Iterator[os.stat_result]:
    """Files that processes hold open and nobody can find."""
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as opened:
            for entry in opened:
                with contextlib.suppress(OSError):
                    if (status := entry.stat()).st_nlink == 0:
                        yield status


def crowded(pids: Iterable[int], limit: int) -> str:
    """A sentence if these processes have more than `limit` threads together (blocking)."""
    found = sum(map(_threads, pids))
    if found <= limit:
        return ""
    return f"There were {found} processes and threads, of {limit} (terminal.sandbox_processes)."


def _census() -> dict[int, list[int]]:
    """Of each process that started a namespace of processes: the namespace's members."""
    spaces: dict[str, list[int]] = {}
    for pid in running_pids():
        with contextlib.suppress(OSError):
            spaces.setdefault(os.readlink(f"/proc/{pid}/ns/pid"), []).append(pid)
    found: dict[int, list[int]] = {}
    for pids in spaces.values():
        members = set(pids)
        for pid in pids:
            if (parent := parent_of(pid)) not in members:
                found.setdefault(parent, []).extend(pids)
    return found
