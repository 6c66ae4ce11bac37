"""Talking to a run from another process: what somebody wishes of it, and what it says of itself.

Two small files in the folder of the run, readable by their owner alone and replaced as a whole: `control.json` holds
the wishes (a state, so that repeating one changes nothing), `status.json` the newest word of the running process and
which wish it has obeyed. Whether that process lives is not in them: its lock says so. Nothing here acts on a run.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from hermes.batch.folder import RunFolder, write_errors
from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError
from hermes.store import filelock

__all__ = ["Status", "Wish", "change_wish", "forget", "is_held", "read_status", "read_wish", "write_status"]

T = TypeVar("T")


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of a run. `number` counts the changes; `workers` is None where nobody asked for another number."""

    number: int = 0
    paused: bool = False
    workers: int | None = None
    stop: bool = False


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a running process says of itself. Times are seconds since the epoch; `obeyed` is the number of the newest
    wish it acted on, `expected_usd` what the whole run will have cost if the rest is like what has ended."""

    pid: int
    state: str
    at: float
    started_at: float
    total: int
    kept: int
    rejected: int
    failed: int
    pending: int
    running: int
    workers: int
    tokens: int
    cost_usd: float | None = None
    expected_usd: float | None = None
    retries: int = 0
    line: str = ""
    obeyed: int = 0


def control_path(folder: RunFolder) -> Path:
    """The file of wishes."""
    return folder.path / "control.json"


def status_path(folder: RunFolder) -> Path:
    """The file in which a running process says how it is."""
    return folder.path / "status.json"


def is_held(folder: RunFolder) -> bool:
    """Whether a living process works on the run."""
    return bool(filelock.is_held(folder.lock_path))


def read_wish(folder: RunFolder) -> Wish:
    """What is wanted of the run; nothing where nobody has asked.

    Raises:
        OperatorError: the file is there and cannot be read.
    """
    return _read(control_path(folder), Wish) or Wish()


def read_status(folder: RunFolder) -> Status | None:
    """The newest word of the process that works on the run, or did; None if it said none.

    Raises:
        OperatorError: the file is there and cannot be read.
    """
    return _read(status_path(folder), Status)


def change_wish(folder: RunFolder, change: Callable[[Wish], Wish]) -> Wish:
    """Replace what is wanted of the run by what `change` makes of it, and return that, numbered.

    Raises:
        OperatorError: it cannot be written.
    """
    with write_errors(folder.path):
        lock = os.open(folder.path / "control.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held for one read and one write
        old = read_wish(folder)
        new = msgspec.structs.replace(change(old), number=old.number + 1)
        _write(control_path(folder), new)
    finally:
        os.close(lock)
    return new


def write_status(folder: RunFolder, status: Status) -> None:
    """Say how the run is.

    Raises:
        OperatorError: it cannot be written.
    """
    _write(status_path(folder), status)


def forget(folder: RunFolder) -> None:
    """Drop what was wished of, and said by, an earlier process."""
    for path in (control_path(folder), status_path(folder), folder.path / "control.lock"):
        path.unlink(missing_ok=True)


def _read(path: Path, type_: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type_)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise OperatorError(f"{path} cannot be read ({error}); remove it and ask again.") from error


def _write(path: Path, value: msgspec.Struct) -> None:
    # Never synced: it says nothing that has to outlive the machine.
    temporary = path.with_name(f".{path.name}.tmp")
    with write_errors(path):
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(encode_json(value) + b"\n")
        temporary.replace(path)
