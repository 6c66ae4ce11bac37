"""A lock that the kernel drops with its process: `flock` on a file that stays.

Removing the file when the lock is dropped would let two processes hold a lock of that name. What stands in the file is
its owner's business. Locks of this kind hold on one machine's disks, not on network file systems.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hermes.core.errors import OperatorError

__all__ = ["is_held", "take_lock"]


def take_lock(path: Path, *, cure: str) -> int | None:
    """Take the lock and return its descriptor, to be closed when it is dropped; None where another process has it.

    The folder is made, readable by its user only.

    Raises:
        OperatorError: the file cannot be written; `cure` says what to do.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OperatorError(f"cannot write {path} ({error.strerror or error}); {cure}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(path: Path) -> bool | None:
    """Whether a process holds the lock; None where there is no such file. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Shared, so that two that look at once do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
