"""Where one rollout works: a copy of the row's `cwd` of its own, or an empty folder, or the `cwd` itself in place.

Copies keep symbolic links as links and leave out what is no file (sockets, pipes) and the folders of batch runs: the
run's own would copy itself. Nothing here decides what a rollout may do in its folder.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

__all__ = ["WorkspaceError", "prepare", "remove"]


class WorkspaceError(Exception):
    """The workspace cannot be made; the text says why."""


def prepare(cwd: str | None, target: Path, run_dir: Path, *, inplace: bool) -> Path:
    """Make the workspace of a rollout and return its absolute path.

    `target` is where a copy goes (what is there already is replaced), `run_dir` is never copied.

    Raises:
        WorkspaceError: `cwd` is no folder or cannot be copied.
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
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target, symlinks=True, ignore=_LeftOut(run_dir))
    except (OSError, shutil.Error) as error:
        raise WorkspaceError(f'the "cwd" of the row, {source or target}, cannot be copied: {_short(error)}') from error
    return target


def remove(path: Path) -> None:
    """Remove a workspace; what cannot be removed now goes with the folder of all workspaces at the end of the run."""
    shutil.rmtree(path, ignore_errors=True)


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
