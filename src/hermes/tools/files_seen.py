"""What this task has seen of files, and who wrote them last: the memory behind warnings about changed files.

A change is noticed by time and size, or by another task's write through the same toolset. It locks nothing: tasks that
share a directory on purpose may.
"""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

__all__ = ["Change", "FilesSeen", "WriteLog"]


class Change(NamedTuple):
    """Somebody else changed a file: a sentence about it, and the task that did, "" where that is not known."""

    text: str
    other: str


_Stamp = tuple[int, int, int]


def _stamp(path: str) -> _Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class WriteLog:
    """Who wrote which file last, over all tasks of one toolset. Safe to use from several threads."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._last: dict[str, str] = {}
        self._capacity = capacity
        self._lock = threading.Lock()

    def note(self, path: str, task_id: str) -> None:
        """Note a write; the oldest ones are forgotten above the capacity."""
        with self._lock:
            self._last.pop(path, None)
            self._last[path] = task_id
            if len(self._last) > self._capacity:
                del self._last[next(iter(self._last))]

    def writer(self, path: str) -> str:
        """Return the task that wrote `path` last through this toolset, "" for none."""
        with self._lock:
            return self._last.get(path, "")


class FilesSeen:
    """The files one task has read or written, as they were then."""

    def __init__(self, task_id: str, log: WriteLog) -> None:
        self._task_id = task_id
        self._log = log
        self._seen: dict[str, _Stamp | None] = {}

    def read(self, path: str) -> None:
        """Note that the task knows the file as it is now."""
        self._seen[path] = _stamp(path)

    def wrote(self, path: str) -> None:
        """Note the task's own write."""
        self._seen[path] = _stamp(path)
        self._log.note(path, self._task_id)

    def conflict(self, path: str) -> Change | None:
        """Return what somebody else did to `path` since this task last saw it, None for nothing."""
        writer = self._log.writer(path)
        if writer == self._task_id:
            writer = ""
        text = self._changed(path, f"task {writer}" if writer else "somebody else", by_task=bool(writer))
        return Change(text, writer) if text else None

    def _changed(self, path: str, other: str, *, by_task: bool) -> str:
        known = self._seen.get(path)
        if known is not None:
            now = _stamp(path)
            if now is None:
                return f"{path} was removed by {other} since this task last saw it."
            if now != known:
                return f"{path} was changed by {other} since this task last saw it."
        elif by_task:
            return f"{path} was written by {other}, and this task had not read it."
        return ""
