"""Copying a directory as it is: links stay links, and what is no file is left out.

Sockets, pipes and devices cannot be copied and would block whoever reads them. Nothing is followed out of the tree.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable

__all__ = ["copy_tree", "short_error"]


def _everything(_path: str) -> bool:
    return True


def copy_tree(source: str, target: str, wanted: Callable[[str], bool] = _everything) -> None:
    """Copy the directory `source` to `target`, which must not exist yet; `wanted` decides about subdirectories.

    Raises OSError, shutil.Error.
    """

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if not _copied(os.path.join(folder, name), wanted)}

    shutil.copytree(source, target, symlinks=True, ignore=left_out)


def _copied(path: str, wanted: Callable[[str], bool]) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return wanted(path) if stat.S_ISDIR(mode) else stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def short_error(error: OSError | shutil.Error) -> str:
    """One line about a copy that failed."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        return str(error.args[0][0][-1])
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
