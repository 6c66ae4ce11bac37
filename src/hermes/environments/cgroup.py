"""Limits of memory and processes for everything that one task runs, where this user may make control groups.

Version 2 needs a delegated group above ours (a systemd user session has one), version 1 the rights of root. Where
neither is there, only the limits of single processes hold. A group is left behind by a killed process as an empty
directory; the next one removes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["ControlGroup", "ControlGroups"]

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "hermes-"


class ControlGroup:
    """The groups of one task: one directory in version 2, one for each controller in version 1. `limits` are values by
    file name."""

    def __init__(self, folders: tuple[Path, ...], limits: Mapping[str, int]) -> None:
        self.folders = folders
        self._limits = limits

    @property
    def doors(self) -> list[str]:
        """The files that a process writes 0 to in order to enter.

        In version 1 a single thread enters by `tasks`, which takes no lock of the whole system as `cgroup.procs` does.
        """
        name = "cgroup.procs" if "memory.max" in self._limits else "tasks"
        return [str(folder / name) for folder in self.folders]

    def restore(self) -> None:
        """Make what is not there: an empty group may have been taken for one that was left behind. Raises OSError."""
        for folder in self.folders:
            if not folder.exists():
                folder.mkdir(exist_ok=True)
                for name, value in self._limits.items():
                    if (folder / name).exists():
                        (folder / name).write_text(f"{value}\n")

    @property
    def out_of_memory(self) -> int:
        """How often the kernel ended a process of it for want of memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                try:
                    lines = (folder / name).read_text().splitlines()
                except OSError:
                    continue
                found = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
                if found:
                    return int(found[0])
        return 0

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
        """Make the groups of a task; None where there are none. `memory` is bytes. Raises OSError."""
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


def _delegated(folder: Path) -> bool:
    try:
        enabled = (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    writable = os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
    return writable and {"memory", "pids"} <= set(enabled)
