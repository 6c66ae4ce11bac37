"""Limits of memory and processes for everything that one task runs, where this user may make control groups.

Version 2 needs a delegated group above ours (a systemd user session has one), version 1 the rights of root. Where
neither is there, only the limits of single processes hold. A group is left behind by a killed process as an empty
directory; the next one removes it. Making a group costs the kernel more than a command, so an empty one is used again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections import deque
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import msgspec

from hermes.environments.kernel_files import beginning

__all__ = ["ControlGroup", "ControlGroups", "GroupPool"]

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "hermes-"
#: Empty groups that are kept for the next task.
_SPARE = 256


class ControlGroup:
    """The groups of one task: one directory in version 2, one for each controller in version 1. `limits` are values by
    file name."""

    def __init__(self, folders: tuple[Path, ...], limits: Mapping[str, int]) -> None:
        self.folders = folders
        self._limits = limits
        self._told = 0
        #: The files that a process writes 0 to in order to enter. In version 1 a single thread enters by `tasks`,
        #: which takes no lock of the whole system as `cgroup.procs` does.
        name = "cgroup.procs" if "memory.max" in limits else "tasks"
        self.doors = [f"{folder}/{name}" for folder in folders]

    def restore(self) -> None:
        """Make what is not there: an empty group may have been taken for one that was left behind. Raises OSError."""
        for folder in self.folders:
            if not os.path.isdir(folder):
                folder.mkdir(exist_ok=True)
                self._told = 0
                for name, value in self._limits.items():
                    if os.path.exists(folder / name):
                        (folder / name).write_text(f"{value}\n")

    @property
    def empty(self) -> bool:
        """Whether no process is in it any more. Whoever is in one of its directories is in the others."""
        try:
            return not beginning(self.doors[0])
        except OSError:
            return False

    def newly_killed(self) -> bool:
        """Whether the kernel ended a process of it for want of memory since this was asked last."""
        told, self._told = self._told, self._out_of_memory()
        return self._told != told

    def _out_of_memory(self) -> int:
        name = "memory.events" if "memory.max" in self._limits else "memory.oom_control"
        try:
            counts = beginning(f"{self.folders[0]}/{name}")
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in counts.splitlines() if line.startswith(b"oom_kill ")), 0)

    def close(self) -> None:
        """Remove it; one in which something still dies is left for later."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()


class ControlGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Where groups can be made. `version` 0: nowhere, with `reason`."""

    version: int = 0
    memory: Path = ROOT
    pids: Path = ROOT
    reason: str = ""

    @classmethod
    def find(cls, root: Path = ROOT, own: str = "/proc/self/cgroup") -> ControlGroups:
        """Look where this process may make groups (blocking)."""
        try:
            lines = [line.split(":", 2) for line in Path(own).read_text().splitlines()]
        except OSError:
            return cls(reason="this system has no control groups")
        names = {name: path for _, controllers, path in lines for name in controllers.split(",")}
        if "memory" in names and "pids" in names:
            memory, pids = (root / name / names[name].lstrip("/") for name in ("memory", "pids"))
            if all(os.access(path, os.W_OK) for path in (memory, pids)):
                return cls(version=1, memory=memory, pids=pids)
            return cls(reason="control groups of version 1 can be made by root only")
        below = root / names.get("", "/").lstrip("/")
        for folder in below.parents:
            if not folder.is_relative_to(root):
                break
            if _delegated(folder):
                return cls(version=2, memory=folder, pids=folder)
        return cls(reason="no control group above this process is delegated to its user (systemd-run --user makes one)")

    def make(self, name: str, *, memory: int, processes: int) -> ControlGroup | None:
        """Make the groups of a task; None where there are none. No other of this process has this `name`.

        Raises OSError.
        """
        if not self.version:
            return None
        bases = dict.fromkeys((self.memory, self.pids))
        folders = tuple(base / f"{_PREFIX}{os.getpid()}-{name}" for base in bases)
        file = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        group = ControlGroup(folders, {"pids.max": processes, file: memory})
        group.restore()
        return group

    def sweep(self) -> None:
        """Remove empty groups that processes left which are no more (blocking)."""
        for base in {self.memory, self.pids} if self.version else ():
            for folder in base.glob(f"{_PREFIX}*-*"):
                pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
                if not Path("/proc", pid).exists():
                    with contextlib.suppress(OSError):
                        folder.rmdir()


class GroupPool:
    """The groups of one runtime's tasks, each with the same limits. Blocking; any thread may ask."""

    def __init__(self, groups: ControlGroups, *, memory: int, processes: int) -> None:
        self._groups = groups
        self._memory = memory
        self._processes = processes
        self._spare: deque[ControlGroup] = deque()
        self._numbers = count(1)
        self._name = secrets.token_hex(3)  # a process may have several runtimes

    def take(self) -> ControlGroup | None:
        """A group with nothing in it; None where none can be made. Raises OSError."""
        with contextlib.suppress(IndexError):
            while len(self._spare) > _SPARE:
                self._spare.popleft().close()
            spare = self._spare.popleft()  # the one in which something may still die is the one that came last
            if spare.empty:
                spare.newly_killed()
                return spare
            self._spare.append(spare)
        return self._groups.make(f"{self._name}-{next(self._numbers)}", memory=self._memory, processes=self._processes)

    def give(self, group: ControlGroup) -> None:
        """A task has ended: its group is for another one as soon as it is empty. Does not block: whoever takes one
        looks, and is on a thread anyway."""
        self._spare.append(group)

    def close(self) -> None:
        """Remove the spare ones."""
        while self._spare:
            self._spare.pop().close()


def _delegated(folder: Path) -> bool:
    try:
        enabled = (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    writable = os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
    return writable and {"memory", "pids"} <= set(enabled)
