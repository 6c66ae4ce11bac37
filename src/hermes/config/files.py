"""Reading and replacing the shared text files of a home, so that no reader ever sees half of one.

Knows no format. The first write of a file leaves the former text beside it as `<name>.bak`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hermes.core.errors import ConfigError, OperatorError, TryLater

__all__ = ["locked", "read_text", "write_file"]

#: Seconds for which another process that changes the same file is waited for.
LOCK_WAIT = 10.0


def read_text(path: Path) -> str | None:
    """Read UTF-8 text without its byte order mark, line ends as they are; None if there is no such file.

    Raises:
        ConfigError: the bytes are not UTF-8; names the line.
        OperatorError: the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OperatorError(f"cannot read {path}: {error.strerror}. Check its owner and mode.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise ConfigError(f"{path}:{line}: byte 0x{byte:02x} is not UTF-8. Save the file as UTF-8.") from None


def write_file(path: Path, text: str, *, mode: int, keep: bool = True) -> None:
    """Replace a file in one step: written beside it, synced, renamed. A symbolic link stays one.

    `keep` leaves the first text beside it.

    An existing file keeps its own mode without the rights of group and others where `mode` has none.

    Raises:
        OperatorError: it cannot be written; the old file is untouched.
    """
    target = Path(os.path.realpath(path))
    spare = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        old = target.read_bytes() if target.exists() else None
        if old is not None:
            mode = (target.stat().st_mode & 0o777) if mode & 0o077 else (target.stat().st_mode & 0o700) | mode
            backup = target.with_name(target.name + ".bak")
            if keep and not backup.exists():
                _create(backup, old, mode)
        bom = b"\xef\xbb\xbf" if old is not None and old.startswith(b"\xef\xbb\xbf") else b""
        _create(spare, bom + text.encode("utf-8"), mode)
        os.replace(spare, target)
        _sync_folder(target.parent)
    except OSError as error:
        spare.unlink(missing_ok=True)
        raise OperatorError(f"cannot write {path}: {error.strerror}. The old file is untouched.") from error


def _create(path: Path, data: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(path, mode)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(lock: Path, most: float = LOCK_WAIT) -> Iterator[None]:
    """Hold an exclusive lock between processes, so that two edits of one file never lose one of them.

    Raises:
        TryLater: another process has held it for `most` seconds; one that was stopped may do so for ever.
        OperatorError: it cannot be opened.
    """
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise OperatorError(f"cannot open the lock {lock}: {error.strerror}.") from error
    try:
        end = time.monotonic() + most
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() >= end:
                raise TryLater(
                    f"another process has held {lock} for {most:g} s, so nothing was changed. "
                    "Try again; a process that is stopped (Ctrl+Z) lets it go when it goes on or ends."
                )
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)
