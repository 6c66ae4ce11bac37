"""Judging the simple commands of one command line in order, with the directory and the variables known so far.

It raises `Danger` at the first command that needs consent and runs nothing. The tables are in `danger_rules.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from hermes.runtime import danger_rules as rules
from hermes.runtime.shell_syntax import UNKNOWN, VARIABLE, Simple, Unreadable, is_assignment, parse

__all__ = ["CommandJudge", "Danger", "Places", "Rule", "is_local", "plain"]

_HARMLESS_DEVICES = re.compile(r"/dev/(null|stdout|stderr|tty|zero|full|fd/\d+)")
_TEMPORARY = ("/tmp", "/var/tmp")
_LOCAL_HOST = re.compile(r"(?:https?://)?(?:localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)(?:[:/]|$)")
_MAX_NESTING = 12
_MAX_VALUES = 200


class Danger(Exception):
    """A command needs consent: `category` and a clause that says what it does."""

    def __init__(self, category: str, reason: str) -> None:
        super().__init__(reason)
        self.category = category
        self.reason = reason


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """The directories by which paths are judged, absolute. `cwd` is None when it cannot be known."""

    workspace: str
    cwd: str | None
    home: str

    def absolute(self, path: str) -> str | None:
        """Return the normalised absolute path, None if it cannot be known."""
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        if path.startswith("~"):
            return None
        if UNKNOWN in path or "\ue000" in path:
            # A name with an unknown part stays where its known beginning leads, as long as it does not climb.
            known = re.split("[\ue000\ue002]", path, maxsplit=1)[0]
            if "/" not in known or ".." in path:
                return None
            path = known + "unknown"
        if os.path.isabs(path):
            return os.path.normpath(path)
        return None if self.cwd is None else os.path.normpath(os.path.join(self.cwd, path))

    def inside(self, path: str, *, temporary: bool = True) -> bool:
        """Whether writing to this absolute path, links followed, stays inside the workspace (or the temporary
        directories)."""
        real = os.path.realpath(path)
        roots = (self.workspace, *(_TEMPORARY if temporary else ()))
        return any(real == root or real.startswith(root.rstrip("/") + "/") for root in map(os.path.realpath, roots))

    def is_dotfile(self, path: str) -> bool:
        """Whether it is a settings file directly below the home, for a workspace that is the home itself."""
        home = os.path.normpath(self.home) if self.home else ""
        if not home or os.path.normpath(self.workspace) != home or not path.startswith(home + "/"):
            return False
        return path[len(home) + 1 :].startswith(".")


class CommandJudge:
    """Walks over commands. `judge` returns when none of them needs consent and raises `Danger` at the first.

    `rule_list` is tried in order for each program; the first rule that returns True knew it and ends the search.
    """

    def __init__(self, places: Places, rule_list: Sequence[Rule], nesting: int = 0) -> None:
        self.places = places
        self.rules = rule_list
        self.nesting = nesting
        self.variables: dict[str, tuple[str, ...] | None] = {"HOME": (places.home or UNKNOWN,), "TMPDIR": ("/tmp",)}
        self._stack: list[str | None] = []
        self._before: str | None = places.cwd

    def judge(self, commands: Iterable[Simple]) -> None:
        """Judge commands in order."""
        if self.nesting > _MAX_NESTING:
            raise Danger("unclear", "the command is nested too deeply to be read")
        for simple in commands:
            self.simple(simple)

    def inner(self) -> CommandJudge:
        """Return a judge for commands inside this one: what they change stays with them."""
        judge = CommandJudge(self.places, self.rules, self.nesting + 1)
        judge.variables.update(self.variables)
        return judge

    def text(self, command: str, what: str) -> None:
        """Judge a command line that is given to a shell as text."""
        if UNKNOWN in command or "\ue000" in command:
            raise Danger("remote_code", f"it runs a text that only running can tell ({what})")
        try:
            self.inner().judge(parse(command))
        except Unreadable as error:
            raise Danger("unclear", f"the command inside {what} cannot be read ({error})") from None

    def simple(self, simple: Simple) -> None:
        """Judge one simple command with its redirections and the commands inside its words."""
        if simple.words == ("(",):
            self._stack.append(self.places.cwd)
            return
        if simple.words == (")",):
            if self._stack:
                self._move(self._stack.pop())
            return
        self.inner().judge(simple.substitutions)
        for redirect in simple.redirects:
            if redirect.operator not in {"<", "<&"} and not (redirect.operator == ">&" and redirect.target.isdigit()):
                if redirect.target != "-":
                    self.writes(redirect.target, "a redirection")
        words = [word for part in simple.words for word in self.expand(part)]
        self.words(words, simple)

    def expand(self, word: str) -> Sequence[str]:
        """Return what a word may stand for with the variables that are known; unknown ones stay marked."""
        match = VARIABLE.search(word)
        if match is None:
            return (word,)
        if match.group(1) == "PWD" and self.places.cwd is not None:
            values: tuple[str, ...] | None = (self.places.cwd,)
        else:
            values = self.variables.get(match.group(1))
        if values is None:
            return (VARIABLE.sub(UNKNOWN, word),)
        found: list[str] = []
        for value in values:
            found.extend(self.expand(word[: match.start()] + value + word[match.end() :]))
            if len(found) > _MAX_VALUES:
                raise Danger("unclear", "it stands for more commands than can be judged")
        return found

    def words(self, words: list[str], simple: Simple) -> None:
        """Judge a command given as words, assignments and keywords in front of it included."""
        while words and (words[0] in rules.KEYWORDS or is_assignment(words[0])):
            word = words.pop(0)
            if is_assignment(word):
                name, _, value = word.partition("=")
                self.variables[name.rstrip("+")] = None if UNKNOWN in value or name.endswith("+") else (value,)
        if not words:
            return
        if words[0] in ("for", "select") and len(words) > 3 and words[2] == "in":
            self.variables[words[1]] = tuple(words[3:])
            return
        if words[0] in ("for", "select", "case", "function", "[", "[[", "test", "in", ":", "true", "false"):
            return
        if UNKNOWN in words[0] or "\ue000" in words[0]:
            raise Danger("unclear", "which program it runs is only known by running it")
        program = os.path.basename(words[0])
        arguments = words[1:]
        for rule in self.rules:
            if rule(self, program, arguments, simple):
                return

    def writes(self, path: str, how: str) -> None:
        """Raise Danger if writing to `path` leaves the working directory."""
        for one in self.expand(path):
            if _HARMLESS_DEVICES.fullmatch(one):
                continue
            target = self.places.absolute(one)
            shown = one.replace(UNKNOWN, "…")
            if target is None:
                raise Danger("write_outside", f"it writes to a place that only running can tell ({how}: {shown})")
            if target.startswith("/dev/"):
                raise Danger("machine", f"it writes to a device ({shown})")
            if not self.places.inside(target):
                raise Danger("write_outside", f"it writes outside the working directory ({how}: {shown})")
            if self.places.is_dotfile(target):
                raise Danger("write_outside", f"it writes a settings file in the home directory ({shown})")

    def _move(self, cwd: str | None) -> None:
        self._before = self.places.cwd
        self.places = msgspec.structs.replace(self.places, cwd=cwd)

    def change_directory(self, arguments: list[str]) -> None:
        """Follow a `cd`."""
        targets = [word for word in arguments if not word.startswith("-") or word == "-"]
        if not targets:
            self._move(self.places.home or None)
        elif targets[0] == "-":
            self._move(self._before)
        else:
            self._move(self.places.absolute(targets[0]) if UNKNOWN not in targets[0] else None)


#: Judges (judge, program, arguments, command): returns whether nothing more need be asked; raises Danger.
Rule = Callable[[CommandJudge, str, list[str], Simple], bool]


def plain(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that are no options."""
    found: list[str] = []
    for index, word in enumerate(arguments):
        if word == "--":
            return found + list(arguments[index + 1 :])
        if not word.startswith("-") or word == "-":
            found.append(word)
    return found


def is_local(word: str) -> bool:
    """Whether an address is this machine."""
    return _LOCAL_HOST.match(word) is not None
