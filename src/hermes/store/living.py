"""Which processes of a home live, and what each has: read from their locks and the journal. Ends and adopts nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hermes.core.errors import StoreError
from hermes.store.database import refuse_foreign, store_error
from hermes.store.hosting import host_alive, host_info
from hermes.store.owner import living_owners, lock_path, owner_pid

__all__ = ["Living", "holds", "is_ours", "living_processes"]

#: How a process of this program may have been started.
_PROGRAMS = frozenset({"hermes", "batch_runner.py", "hermes.cli.main"})


class Living(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a home. `pid` is 0 where it does not say; `sessions` are those with something unfinished, and
    `unfinished` counts their tasks."""

    owner: str
    pid: int
    host: bool = False
    sessions: tuple[str, ...] = ()
    unfinished: int = 0
    title: str = ""


def living_processes(home: Path, journal: Path) -> list[Living]:
    """The processes that hold a lock of this home, the host last. `journal` says what they have; it may be missing.

    Raises:
        StoreError: the journal cannot be read.
        OperatorError: a lock cannot be looked at.
    """
    info = host_info(home)
    mine = info.owner if info is not None else ""
    found = [
        Living(
            owner=owner, pid=owner_pid(home, owner) or (info.pid if info and owner == mine else 0), host=owner == mine
        )
        for owner in living_owners(home)
    ]
    if host_alive(home) and not any(one.host for one in found):  # it starts, or ends
        found.append(Living(owner=mine, pid=info.pid if info is not None else 0, host=True))
    return sorted(_with_work(found, journal), key=lambda one: one.host)


def _with_work(found: Sequence[Living], journal: Path) -> list[Living]:
    if not found or not journal.exists():
        return list(found)
    try:
        refuse_foreign(journal)
        db = sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True, timeout=10)
        try:
            return [_one(db, one) for one in found]
        finally:
            db.close()
    except sqlite3.Error as error:
        raise store_error(error, journal) from error
    except OSError as error:
        raise StoreError(
            f"{journal} cannot be read ({error.strerror or error}); give this user access to it"
        ) from error


def _one(db: sqlite3.Connection, one: Living) -> Living:
    rows = db.execute(
        "SELECT session_id, count(*) FROM tasks WHERE owner = ? AND ended_at IS NULL GROUP BY session_id", (one.owner,)
    ).fetchall()
    sessions = tuple(session for session, _ in rows)
    titles = [
        title
        for session in sessions[:1]
        for (title,) in db.execute("SELECT title FROM sessions WHERE session_id = ?", (session,))
    ]
    return msgspec.structs.replace(
        one, sessions=sessions, unfinished=sum(count for _, count in rows), title=titles[0] if titles else ""
    )


def holds(home: Path, one: Living) -> bool | None:
    """Whether the process of that number really is the one that holds the lock, so that it may be sent a signal; None
    where this system does not tell (no /proc)."""
    wanted = {str(lock_path(home, one.owner)), str(home / "run" / "host.lock")}
    folder = Path("/proc") / str(one.pid) / "fd"
    try:
        return any(os.readlink(entry) in wanted for entry in folder.iterdir())
    except FileNotFoundError:
        return None if not Path("/proc/self/fd").exists() else False
    except OSError:
        return False  # another user's


def is_ours(pid: int) -> bool:
    """Whether a process was started as this program, and not as one that uses it as a library."""
    try:
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(os.path.basename(word.decode(errors="replace")) in _PROGRAMS for word in words[:5])
