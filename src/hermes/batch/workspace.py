"""Where one rollout works: a checkout or a copy of the row's `cwd` of its own, an empty folder, or the `cwd` itself.

Copies keep symbolic links as links and leave out what is no file (sockets, pipes) and the folders of batch runs: the
run's own would copy itself. Nothing here decides what a rollout may do in its folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
from pathlib import Path

from hermes.batch.checkout import Uncheckable, check_out

__all__ = ["WorkspaceError", "prepare", "remove", "share"]


_MIB = 1024 * 1024
#: Folders that one program removes.
_AT_ONCE = 200
#: Of Linux: share the blocks of a file (linux/fs.h).
_FICLONE = 0x40049409


class WorkspaceError(Exception):
    """The workspace cannot be made; the text says why."""


def prepare(
    cwd: str | None, target: Path, run_dir: Path, *, inplace: bool, most_mb: int = 1024, checkout: bool = False
) -> Path:
    """Make the workspace of a rollout and return its absolute path.

    `target` is where a copy goes (what is there already is replaced), `run_dir` is never copied. A file system that can
    shares the blocks of a copy until one is written; `most_mb` (2**20 bytes) limits what really has to be copied.
    `checkout`: where `cwd` is a repository, what is committed there is checked out instead.

    Raises:
        WorkspaceError: `cwd` is no folder, is too large or cannot be copied; nothing of a copy is left.
    """
    source = None if cwd is None else Path(cwd).expanduser().absolute()
    if source is not None and not source.is_dir():
        raise WorkspaceError(f'the "cwd" of the row, {source}, is no folder here')
    if source is not None and inplace:
        return source
    try:
        if target.exists():
            shutil.rmtree(target)
        if source is None:
            target.mkdir(parents=True)
        elif not checkout or not check_out(source, target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(
                source, target, symlinks=True, ignore=_LeftOut(run_dir), copy_function=_Copying(most_mb * _MIB)
            )
            _unlink_repository(target)
    except Uncheckable as error:
        remove(target)
        raise WorkspaceError(
            f'git cannot check out the "cwd" of the row, {source}: {error}. --cwd_mode=copy copies its files instead'
        ) from None
    except _TooLarge:
        remove(target)
        size = -(-_size(source or target) // _MIB)
        raise WorkspaceError(
            f'the "cwd" of the row, {source}, holds {size:,} MB, and a copy for each rollout may have {most_mb:,} MB '
            "here (--max_copy_mb): give more, a smaller cwd, or --cwd_mode=inplace"
        ) from None
    except (OSError, shutil.Error) as error:
        raise WorkspaceError(f'the "cwd" of the row, {source or target}, cannot be copied: {_short(error)}') from error
    return target


def remove(*paths: Path) -> None:
    """Remove folders; what cannot be removed now goes with the folder of all workspaces at the end of the run.

    By `rm` where there is one: hundreds of calls of the system from here, each of which lets the interpreter go and
    waits for it again, take four times as long and hold up everything else.
    """
    program = shutil.which("rm")
    for start in range(0, len(paths), _AT_ONCE):
        some = [str(path) for path in paths[start : start + _AT_ONCE]]
        if program is not None:
            subprocess.run(
                [program, "-rf", "--", *some], stdin=subprocess.DEVNULL, capture_output=True, check=False, env={}
            )
        for path in some:
            if os.path.lexists(path):
                shutil.rmtree(path, ignore_errors=True)


class _TooLarge(Exception):
    """More would have to be copied than may be."""


class _Copying:
    """Copies files, sharing their blocks where the file system can; counts what it could not share."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._shares = True

    def __call__(self, source: str, target: str) -> str:
        if not os.path.islink(source):
            self._shares = self._shares and share(source, target)
            if self._shares:
                shutil.copystat(source, target)
                return target
            self._left -= os.stat(source).st_size
            if self._left < 0:
                raise _TooLarge
        return str(shutil.copy2(source, target, follow_symlinks=False))


def share(source: str, target: str) -> bool:
    """Make `target` a file of the same blocks; False where the file system has no such thing."""
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError:
            return False
    return True


def _size(folder: Path) -> int:
    """Bytes of the regular files below a folder."""
    sizes = (os.lstat(os.path.join(top, name)) for top, _, names in os.walk(folder) for name in names)
    return sum(status.st_size for status in sizes if stat.S_ISREG(status.st_mode))


def _unlink_repository(copy: Path) -> None:
    """Take out a `.git` that only leads to a repository elsewhere: commits in the copy would move the original."""
    link = copy / ".git"
    if link.is_symlink() or link.is_file():
        link.unlink()


class _LeftOut:
    def __init__(self, run_dir: Path) -> None:
        self._run_dir = os.path.realpath(run_dir)

    def __call__(self, folder: str, names: list[str]) -> set[str]:
        return {name for name in names if not self._wanted(os.path.join(folder, name))}

    def _wanted(self, path: str) -> bool:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return False
        if stat.S_ISDIR(mode):
            return os.path.realpath(path) != self._run_dir and not os.path.exists(os.path.join(path, "run.lock"))
        return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _short(error: OSError | shutil.Error) -> str:
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        return str(error.args[0][0][-1])
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
