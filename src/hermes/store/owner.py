"""Who owns a task: one start of a process, proven alive by a lock that the kernel drops with it.

The lock is `flock` on `<home>/run/<owner>.lock`, held for life, whatever the pid, namespace or suspension of the
process. If the lock can be taken, the owner is proven gone; if not, it lives, however long it was silent. A lock file
that is missing counts as gone: a clean end removes it. Were a living owner's file deleted by hand, the epoch of its
tasks would still stop it at its next write. Locks of this kind hold on one machine's disks, not on network file
systems. Nothing is adopted here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
from pathlib import Path
from types import TracebackType

from hermes.core.errors import OperatorError
from hermes.core.ids import IdSource, random_hex
from hermes.store.filelock import is_held
from hermes.store.ops import OwnerRow

__all__ = ["Owner", "is_gone", "living_owners", "lock_path", "owner_pid", "take_ownership"]

_OWNER = re.compile(r"[0-9a-f]{16}")


def lock_path(home: Path, owner_id: str) -> Path:
    """Where the lock of an owner is."""
    return home / "run" / f"{owner_id}.lock"


class Owner:
    """This start of this process. Leave it (or `release`) at a clean end; a killed process needs nothing.

    The lock stays with a process forked from this one for as long as either lives: start others with exec.
    """

    def __init__(self, owner_id: str, path: Path, descriptor: int) -> None:
        self.owner_id = owner_id
        self.path = path
        self._descriptor: int | None = descriptor

    def row(self, now: float) -> OwnerRow:
        """The row to store before the first task; `now` is seconds since the epoch."""
        return OwnerRow(owner_id=self.owner_id, host=socket.gethostname(), pid=os.getpid(), started_at=now)

    def release(self) -> None:
        """Drop the lock and remove its file: what this owner left unfinished may be taken up. May be called again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self.path.unlink(missing_ok=True)
            os.close(descriptor)

    def __enter__(self) -> Owner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def take_ownership(home: Path, ids: IdSource = random_hex) -> Owner:
    """Draw a new owner id and take its lock.

    Raises:
        OperatorError: `<home>/run` cannot be made or written, or locks do not work there.
    """
    owner_id = ids(16)
    path = lock_path(home, owner_id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):  # the lock proves the life; of a full disk the journal tells
                os.write(descriptor, b"%d\n" % os.getpid())  # for people and for `hermes update`
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise OperatorError(
            f"cannot lock {path} ({error.strerror or error}); make {path.parent} writable for this user, or set "
            "HERMES_HOME to a folder on a local disk"
        ) from error
    return Owner(owner_id, path, descriptor)


def owner_pid(home: Path, owner_id: str) -> int:
    """The number of an owner's process as it wrote it; 0 where it did not."""
    try:
        text = lock_path(home, owner_id).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def is_gone(home: Path, owner_id: str) -> bool:
    """True if the owner's process is proven to have ended.

    Raises:
        OperatorError: the lock file cannot be looked at.
    """
    path = lock_path(home, owner_id)
    try:
        return not is_held(path)
    except OSError as error:
        raise OperatorError(
            f"cannot look at {path} ({error.strerror or error}); give this user access to it, or remove the file if "
            "its process has ended"
        ) from error


def living_owners(home: Path) -> list[str]:
    """The owners whose processes live; other locks of the home are none of theirs. Raises as `is_gone`."""
    names = sorted(path.stem for path in (home / "run").glob("*.lock"))
    return [name for name in names if _OWNER.fullmatch(name) and not is_gone(home, name)]
