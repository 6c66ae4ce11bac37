"""Paths and addresses in the words of a command: where they lead, and whether that is inside, private, or elsewhere.

Of the file system it only follows links. Nothing is decided here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from hermes.runtime import danger_rules as rules
from hermes.runtime.shell_syntax import UNKNOWN

__all__ = ["Places", "Step", "covers", "hosts_of", "plain"]

_TEMPORARY = ("/tmp", "/var/tmp")
_PROCESS_SECRETS = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:environ|mem|root|cwd|fd|maps|auxv)(?:/|$)")
_PROCESS_LINK = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:root|cwd)$")
_MOST_LINKS = 40  # as the kernel does
_GIT_RUNS = re.compile(
    r"/\.git/(?:(?:modules/.+/|worktrees/[^/]+/)?(?:hooks(?:/|$)|config(?:\.worktree)?$|commondir$)|info/attributes$)"
)
_HOMES = re.compile(r"/(?:home|Users|var/home)/[^/]+/|/root/|/var/root/")
_KEY_PLACES = tuple(place.split("/") for place in rules.KEY_PLACES)
_SYSTEM_KEY_PLACES = tuple(place.split("/") for place in rules.SYSTEM_KEY_PLACES)
_ADDRESS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://(?:[^/@\s]*@)?(\[[^\]]*\]|[^/:?#\s\"']+)")
_BARE_HOST = re.compile(r"(?:[^@/\s]+@)?([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?:[:/].*)?$")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a call does, and why it needs consent (`category` is empty where it needs none).

    `words` are the program, without its directory, and its arguments; empty for what is no command. `targets` are the
    absolute paths that this reason is about, `paths` all that the step may touch as far as its words tell, `hosts` the
    machines it talks to (`UNKNOWN` where only running can tell).
    """

    words: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    category: str = ""
    reason: str = ""


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """The directories by which paths are judged, absolute. `cwd` is None when it cannot be known. `private` are files
    and directories of the runtime itself: its keys, its settings, its journal. `straight` is what one judgement has
    seen: whether a path is reached without any link."""

    workspace: str
    cwd: str | None
    home: str
    private: tuple[str, ...] = ()
    straight: dict[str, bool] = msgspec.field(default_factory=dict)

    def absolute(self, path: str) -> str | None:
        """Return the absolute path without `.` and `..`, None if it cannot be known. `..` leads out of where a link
        leads, as it does for the kernel. What leads through `/proc/self/cwd` and its like goes elsewhere for whoever
        runs the command than for whoever judges it: it stays as it is."""
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        if path.startswith("~"):
            path = os.path.expanduser(path)
        if path.startswith("~"):
            return None
        if UNKNOWN in path or "\ue000" in path:
            # A name with an unknown part stays where its known beginning leads, as long as it does not climb.
            known = re.split("[\ue000\ue002]", path, maxsplit=1)[0]
            if "/" not in known or ".." in path:
                return None
            path = known + "*"
        if not os.path.isabs(path):
            if self.cwd is None:
                return None
            path = os.path.join(self.cwd, path)
        through = "" if self._is_straight(path) else _through_process(path)
        if through:
            return through
        plain_path = os.path.normpath(path)
        if ".." in path.split("/"):
            real = os.path.realpath(path)
            if real != os.path.realpath(plain_path):
                return real
        return plain_path

    def _is_straight(self, path: str) -> bool:
        """Whether there is no link in an absolute path: in most there is none, and to see that for the directory as a
        whole asks the system three times, not once or twice for each of its names."""
        if path.startswith("/proc") or path.endswith("/.."):
            return False
        parent = os.path.dirname(path)
        if parent not in self.straight:
            self.straight[parent] = _leads_straight(parent)
        self.straight[path] = found = self.straight[parent] and not _link(path)
        return found

    def _real(self, path: str) -> str:
        return path if self.straight.get(path) else os.path.realpath(path)

    def inside(self, path: str, *, temporary: bool = True) -> bool:
        """Whether writing to this absolute path, links followed, stays inside the workspace (or the temporary
        directories)."""
        if not self.straight.get(path) and _through_process(path):
            return False
        real = self._real(path)
        roots = (self.workspace, *(_TEMPORARY if temporary else ()))
        return any(real == root or real.startswith(root.rstrip("/") + "/") for root in map(self._real, roots))

    def holds_keys(self, path: str, known: dict[str, str] | None = None) -> bool:
        """Whether keys or logins lie at this absolute path, links followed: of the user, of this runtime, or of
        another process. A name with `*` or `?` is judged by what it may stand for. `known` keeps where directories
        lead, for many paths one after the other."""
        home = self.home.rstrip("/")
        for one in {path, path if self.straight.get(path) else _real(path, {} if known is None else known)}:
            if any(covers(place, one) for place in self.private) or _PROCESS_SECRETS.match(one):
                return True
            if home and one.startswith(home + "/") and _names(one[len(home) + 1 :], _KEY_PLACES):
                return True
            other = _HOMES.match(one)
            if other is not None and _names(one[other.end() :], _KEY_PLACES):
                return True
            if _names(one.lstrip("/"), _SYSTEM_KEY_PLACES):
                return True
        return False

    def is_guarded(self, path: str) -> bool:
        """Whether it is inside the working directory and yet decides what runs later or what is allowed: the runtime's
        own files, and the places where git looks for commands."""
        real = os.path.realpath(path)
        return any(covers(place, real) for place in self.private) or _GIT_RUNS.search(real) is not None

    def is_dotfile(self, path: str) -> bool:
        """Whether it is a settings file directly below the home, for a workspace that is the home itself."""
        home = os.path.normpath(self.home) if self.home else ""
        if not home or os.path.normpath(self.workspace) != home or not path.startswith(home + "/"):
            return False
        return path[len(home) + 1 :].startswith(".")


def _through_process(path: str) -> str:
    """Return an absolute path from the link of a process on (`/proc/self/cwd/…`) that it leads through, "" if none."""
    at, links = "/", 0
    parts = path.split("/")[::-1]
    while parts:
        name = parts.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        one = f"/{name}" if at == "/" else f"{at}/{name}"
        if one.startswith("/proc/") and _PROCESS_LINK.match(one):
            return "/".join([one, *reversed(parts)])
        target = _link(one) if at != "/proc" and links < _MOST_LINKS else ""
        if target:
            links += 1
            at = "/" if target.startswith("/") else at
            parts.extend(target.split("/")[::-1])
        else:
            at = one
    return ""


def _leads_straight(folder: str) -> bool:
    """Whether a directory is there, and written as the kernel writes where it is: no link leads to it."""
    if sys.platform != "linux":
        return False
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):  # not there, or no name that a file can have
        return False
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == folder
    except OSError:  # no /proc here
        return False
    finally:
        os.close(descriptor)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except (OSError, ValueError):  # no link, gone, or no name that a file can have
        return ""


def _real(path: str, known: dict[str, str]) -> str:
    parent, name = os.path.split(path)
    if parent not in known:
        known[parent] = os.path.realpath(parent)
    joined = os.path.join(known[parent], name)
    return os.path.realpath(joined) if os.path.islink(joined) else joined


def covers(place: str, path: str) -> bool:
    """Whether `path` is `place` or below it."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def _names(path: str, places: Sequence[Sequence[str]]) -> bool:
    """Whether a path relative to its root is one of `places`, below one, or a pattern that may stand for one."""
    parts = path.split("/")
    return any(
        len(parts) >= len(names)
        and all(part == name or fnmatchcase(name, part) for part, name in zip(parts, names, strict=False))
        for names in places
    )


def plain(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that are no options."""
    found: list[str] = []
    for index, word in enumerate(arguments):
        if word == "--":
            return found + list(arguments[index + 1 :])
        if not word.startswith("-") or word == "-":
            found.append(word)
    return found


def hosts_of(program: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """The machines that a program's words name, in lower case; `UNKNOWN` where it talks to one that is not known."""
    found: list[str] = []
    for word in arguments:
        for match in _ADDRESS.finditer(word) if "://" in word else ():
            found.append(UNKNOWN if UNKNOWN in match.group(1) else match.group(1).lower().strip("[]"))
    if program in rules.NETWORK and not found:
        for word in plain(arguments):
            bare = _BARE_HOST.match(word)
            if UNKNOWN in word:
                found.append(UNKNOWN)
            elif bare is not None:
                found.append(bare.group(1).lower())
    return tuple(dict.fromkeys(found))
