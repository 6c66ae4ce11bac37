"""Files between a card's workspace and the board: what a worker names is kept, what it forgot is told. Blocks; deletes
nothing.
"""

from __future__ import annotations

import mimetypes
import os
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.kanban.card import MAX_ATTACHMENT

__all__ = ["read_artifacts", "save_file", "unlisted"]

#: Files named in the warning about what is not kept.
_TOLD = 50


def _inside(workspace: str | None, name: str) -> Path:
    if workspace is None:
        raise ToolError("this card has no workspace, so no file can be named; put the text into result.")
    root = Path(workspace).resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise ToolError(f"{name} is outside of the workspace {root}; copy it there first.")
    return path


def read_artifacts(workspace: str | None, names: list[str]) -> list[tuple[str, str, bytes]]:
    """Read files of a workspace as (name, media type, bytes). Raises `ToolError` for the first that cannot be kept."""
    found = []
    for name in names:
        path = _inside(workspace, name)
        try:
            size = path.stat().st_size
            if size > MAX_ATTACHMENT:
                raise ToolError(f"{name} has {size:,} bytes; at most {MAX_ATTACHMENT:,} are kept. Make it smaller.")
            data = path.read_bytes()
        except OSError as error:
            raise ToolError(f"{name} cannot be read ({error.strerror or error}); nothing was completed.") from None
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        found.append((path.name, kind, data))
    return found


def unlisted(workspace: str | None, names: list[str]) -> list[str]:
    """Files of a workspace that were not named, as paths within it, at most 50, hidden folders left out."""
    if workspace is None:
        return []
    root = Path(workspace).resolve()
    listed = {(root / name).resolve() for name in names}
    found: list[str] = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(files):
            path = Path(folder) / name
            if path.resolve() not in listed:
                found.append(str(path.relative_to(root)))
            if len(found) >= _TOLD:
                return found
    return found


def save_file(workspace: str | None, name: str, data: bytes) -> str:
    """Write an attachment into a workspace and return its path. An existing file of that name is not replaced."""
    path = _inside(workspace, name)
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise ToolError(f"{path} exists already; move it aside first.") from None
    except OSError as error:
        raise ToolError(f"{path} cannot be written ({error.strerror or error}).") from None
    return str(path)
