"""What of a project a sandbox sees beside its workspace, and what in the workspace it may not change.

Git on this machine runs what the settings and hooks of a repository say; so they are read-only inside, and neither they
nor the directory they lie in can be exchanged, and what would have git read others is removed after a command. Programs
of the user's own (a virtual environment, a compiler in the home) are seen when they are on PATH.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from hermes.environments.bounded import Mount

__all__ = ["Toolchains", "may_redirect", "project_mounts", "protected_mounts", "remove_redirect"]

#: Directories in which programs of a user stand and nothing secret, seen as a whole where one below is on PATH.
_TOOLS = re.compile(
    r"(/.*?/(?:\.pyenv|\.nvm|\.rbenv|\.asdf|\.volta|\.bun|\.deno|\.rustup|\.sdkman|\.local/share/mise|\.local/share/uv"
    r"|(?:mini|ana)conda3|miniforge3))(?:/|$)"
)


def project_mounts(workspace: str, home: str) -> list[Mount]:
    """The checkout around a workspace (read-only), the repository of a linked one, and what is kept from being changed.

    A directory that is the home, or holds it, is never seen as a whole.
    """
    found: list[Mount] = []
    root = next((str(path) for path in (Path(workspace), *Path(workspace).parents) if (path / ".git").exists()), "")
    if not root or root != workspace and (home == root or home.startswith(root.rstrip("/") + "/")):
        return []
    if root != workspace:
        found.append(Mount(inside=root, outside=root))
    link = os.path.join(root, ".git")
    if os.path.islink(link):
        return found
    if os.path.isfile(link):
        repository = _repository(link)
        if repository:
            found.append(Mount(inside=repository, outside=repository))
    return found


#: What git takes settings and hooks from.
_KEPT = ("config", "hooks", "config.worktree", "commondir")


def protected_mounts(workspace: str) -> list[Mount]:
    """What in the workspace is not the task's to change."""
    place = os.path.join(workspace, ".git")
    try:
        mode = os.lstat(place).st_mode
    except (OSError, ValueError):
        return []
    if stat.S_ISREG(mode):
        return [Mount(inside=place, outside=place)]
    if not stat.S_ISDIR(mode):
        return []
    if not os.path.exists(os.path.join(place, "HEAD")):
        return []
    os.makedirs(os.path.join(place, "hooks"), exist_ok=True)
    kept = [path for name in _KEPT if os.path.exists(path := os.path.join(place, name))]
    # mounted upon itself, so that it cannot be renamed and another one put in its place
    return [Mount(inside=place, outside=place, writable=True), *(Mount(inside=path, outside=path) for path in kept)]


def may_redirect(workspace: str, seen: Sequence[Mount]) -> bool:
    """Whether a command can write in the repository of the workspace. Does not block."""
    repository = os.path.join(workspace, ".git")
    return any(mount.inside == repository and mount.writable for mount in seen)


def remove_redirect(workspace: str, seen: Sequence[Mount]) -> str:
    """Remove a `.git/commondir` that a command made, and say so; "" for none. `seen` is what was mounted before.

    With it git takes settings and hooks from elsewhere. A name that is not there cannot be mounted without making it.
    """
    path = os.path.join(workspace, ".git", "commondir")
    if not may_redirect(workspace, seen) or any(mount.inside == path for mount in seen) or not os.path.lexists(path):
        return ""
    try:
        os.unlink(path)
    except OSError as error:
        return f"{path} would have git take settings from elsewhere and cannot be removed: {error.strerror}."
    return f"{path} was removed: it would have git take settings and hooks from elsewhere."


def _repository(link: str) -> str:
    """The repository that a linked checkout belongs to, if the repository says so too; a task may have written the
    link."""
    try:
        record = Path(Path(link).read_text(encoding="utf-8").removeprefix("gitdir:").strip())
        back = (record / "gitdir").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
    repository = record.parent.parent
    whole = record.parent.name == "worktrees" and all((repository / name).exists() for name in ("HEAD", "objects"))
    return str(repository) if whole and os.path.realpath(back) == os.path.realpath(link) else ""


class Toolchains:
    """Read-only directories of programs on PATH that are not part of the system; looked at once for a PATH whose
    directories stay the same, since all tasks of a runtime have it. Whether they do is asked again after `rest`
    seconds: many tasks begin in one second."""

    def __init__(self, rest: float = 0.0) -> None:
        self._rest = rest
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._there: dict[tuple[str, ...], tuple[float, tuple[str, ...]]] = {}

    def mounts(self, path: str, home: str, workspace: str) -> list[Mount]:
        """What a task in `workspace` sees of them, with what its own virtual environment stands on."""
        mine = workspace.rstrip("/") + "/"
        found = self._standing(
            tuple(
                folder
                for folder in path.split(":")
                if folder.startswith("/") and not folder.startswith((*_OF_THE_SYSTEM, mine))
            )
        )
        own = f"{workspace}/.venv/bin/python"
        seen = dict.fromkeys((*found, *(_prefix(own) if os.path.lexists(own) else ())))
        return [Mount(inside=each, outside=each) for each in seen if each not in ("/", home) and not _holds(each, home)]

    def _standing(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """What is seen for the directories that are `named` on PATH, of which some may not be there."""
        last, now = self._there.get(named), time.monotonic()
        if last is not None and self._rest and now - last[0] < self._rest:
            return last[1]
        folders = tuple(filter(os.path.isdir, named))
        known = self._known.get(folders)
        if known is None or not all(map(os.path.isdir, known)):
            self._known[folders] = known = _toolchains(folders)
        self._there[named] = now, known
        return known


_OF_THE_SYSTEM = ("/usr/", "/bin", "/sbin")


def _toolchains(folders: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for folder in folders:
        known = _TOOLS.match(folder)
        environment = os.path.dirname(folder)
        if os.path.isfile(os.path.join(environment, "pyvenv.cfg")):
            found[environment] = None
        else:
            found[known[1] if known else folder] = None
    prefixes = [prefix for folder in found for prefix in _prefix(f"{folder}/bin/python")]
    return tuple(dict.fromkeys((*found, *prefixes)))


def _prefix(python: str) -> tuple[str, ...]:
    """Where the interpreter behind a link is installed, if not in the system."""
    real = os.path.realpath(python)
    prefix = os.path.dirname(os.path.dirname(real))
    named = os.path.basename(real).startswith("python") and os.path.basename(os.path.dirname(real)) == "bin"
    whole = named and os.path.isfile(real) and os.path.isdir(f"{prefix}/lib")
    return (prefix,) if whole and not prefix.startswith("/usr") else ()


def _holds(folder: str, path: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")
