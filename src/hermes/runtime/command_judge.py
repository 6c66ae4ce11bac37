"""Judging the simple commands of one command line in order, with the directory and the variables known so far.

Every command becomes a `Step`, once for each reason why it needs consent, and once where there is none: rules of the
user have to see the harmless ones too. Nothing is run. The tables are in `danger_rules.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from hermes.runtime import danger_rules as rules
from hermes.runtime.shell_syntax import UNKNOWN, VARIABLE, Redirect, Simple, Unreadable, is_assignment, parse

__all__ = ["CommandJudge", "Danger", "Places", "Rule", "Step", "covers", "hosts_of", "is_local", "plain"]

_HARMLESS_DEVICES = re.compile(r"/dev/(null|stdout|stderr|tty|zero|full|fd/\d+)")
_TEMPORARY = ("/tmp", "/var/tmp")
_LOCAL_HOST = re.compile(r"(?:https?://)?(?:localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)(?:[:/]|$)")
_PROCESS_SECRETS = re.compile(r"/proc/[^/]+/(?:task/[^/]+/)?(?:environ|mem|root|cwd|fd|maps|auxv)(?:/|$)")
_GIT_RUNS = re.compile(r"/\.git/(?:hooks(?:/|$)|config$|modules/.+/(?:hooks(?:/|$)|config$)|info/attributes$)")
_PROGRAM = re.compile(r"[^\ue000-\ue005*?]+")
_LONGEST_PATH = 4096
_MAX_NESTING = 12
_MAX_VALUES = 200
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/@\s]*@)?(\[[^\]]*\]|[^/:?#\s\"']+)")
_BARE_HOST = re.compile(r"(?:[^@/\s]+@)?([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?:[:/].*)?$")


class Danger(Exception):
    """A command needs consent: `category` and a clause that says what it does."""

    def __init__(self, category: str, reason: str) -> None:
        super().__init__(reason)
        self.category = category
        self.reason = reason


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
    and directories of the runtime itself: its keys, its settings, its journal."""

    workspace: str
    cwd: str | None
    home: str
    private: tuple[str, ...] = ()

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
            path = known + "*"
        if os.path.isabs(path):
            return os.path.normpath(path)
        return None if self.cwd is None else os.path.normpath(os.path.join(self.cwd, path))

    def inside(self, path: str, *, temporary: bool = True) -> bool:
        """Whether writing to this absolute path, links followed, stays inside the workspace (or the temporary
        directories)."""
        real = os.path.realpath(path)
        roots = (self.workspace, *(_TEMPORARY if temporary else ()))
        return any(real == root or real.startswith(root.rstrip("/") + "/") for root in map(os.path.realpath, roots))

    def holds_keys(self, path: str) -> bool:
        """Whether keys or logins lie at this absolute path, links followed: of the user, of this runtime, or of
        another process. A name with `*` or `?` is judged by what it may stand for."""
        home = self.home.rstrip("/")
        for one in {path, os.path.realpath(path)}:
            if any(covers(place, one) for place in self.private) or _PROCESS_SECRETS.match(one):
                return True
            if home and one.startswith(home + "/") and _names(one[len(home) + 1 :], rules.KEY_PLACES):
                return True
            if _names(one.lstrip("/"), rules.SYSTEM_KEY_PLACES):
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


def covers(place: str, path: str) -> bool:
    """Whether `path` is `place` or below it."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def _names(path: str, places: Sequence[str]) -> bool:
    """Whether a path relative to its root is one of `places`, below one, or a pattern that may stand for one."""
    parts = path.split("/")
    return any(
        len(parts) >= len(names)
        and all(part == name or fnmatchcase(name, part) for part, name in zip(parts, names, strict=False))
        for names in (place.split("/") for place in places)
    )


class CommandJudge:
    """Walks over commands and notes what each does in `steps`.

    `rule_list` is tried in order for each program; the first rule that returns True knew it and ends the search. A rule
    that raises `Danger` has said why the command needs consent; the ones after it may add reasons.
    """

    def __init__(
        self, places: Places, rule_list: Sequence[Rule], nesting: int = 0, steps: list[Step] | None = None
    ) -> None:
        self.places = places
        self.rules = rule_list
        self.nesting = nesting
        self.steps: list[Step] = [] if steps is None else steps
        self.variables: dict[str, tuple[str, ...] | None] = {"HOME": (places.home or UNKNOWN,), "TMPDIR": ("/tmp",)}
        self._stack: list[str | None] = []
        self._before: str | None = places.cwd
        self._current = Step()
        self._noted = 0

    def judge(self, commands: Iterable[Simple]) -> None:
        """Judge commands in order."""
        if self.nesting > _MAX_NESTING:
            self.note("unclear", "the command is nested too deeply to be read")
            return
        for simple in commands:
            self.simple(simple)

    def note(self, category: str, reason: str, *targets: str) -> None:
        """Note why the command that is being judged needs consent."""
        self._noted += 1
        self.steps.append(
            msgspec.structs.replace(self._current, category=category, reason=reason, targets=tuple(targets))
        )

    def inner(self) -> CommandJudge:
        """Return a judge for commands inside this one: what they change stays with them."""
        judge = CommandJudge(self.places, self.rules, self.nesting + 1, self.steps)
        judge.variables.update(self.variables)
        return judge

    def text(self, command: str, what: str) -> None:
        """Judge a command line that is given to a shell as text. Raises Danger if it cannot be read."""
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
        try:
            words = [word for part in simple.words for word in self.expand(part)]
            self._begin(words, simple)
            for redirect in simple.redirects:
                self.redirect(redirect)
            self.words(words, simple)
        except Danger as danger:
            self.note(danger.category, danger.reason)

    def redirect(self, redirect: Redirect) -> None:
        """Judge where a command's output goes, and talk to other machines."""
        if redirect.target.startswith(("/dev/tcp/", "/dev/udp/")):
            raise Danger("push", f"it talks to another machine ({redirect.target.replace(UNKNOWN, '…')})")
        if redirect.operator in {"<", "<&"} or redirect.target == "-":
            return
        if not (redirect.operator == ">&" and redirect.target.isdigit()):
            self.writes(redirect.target, "a redirection")

    def expand(self, word: str) -> Sequence[str]:
        """Return what a word may stand for with the variables that are known; unknown ones stay marked.

        A value of several words stands for itself and for each of them, since it may be split.
        """
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
            parts = value.split()
            for one in (value, *(parts if len(parts) > 1 else ())):
                found.extend(self.expand(word[: match.start()] + one + word[match.end() :]))
                if len(found) > _MAX_VALUES:
                    raise Danger("unclear", "it stands for more commands than can be judged")
        return found

    def _begin(self, words: Sequence[str], simple: Simple) -> None:
        """Take up a command: what is noted from here on is about it."""
        program, arguments = (os.path.basename(words[0]), words[1:]) if words else ("", ())
        inputs = [redirect.target for redirect in simple.redirects]
        self._current = Step(
            words=(program, *arguments) if words else (),
            paths=tuple(self._paths([*arguments, *inputs])),
            hosts=hosts_of(program, arguments),
        )

    def _paths(self, words: Iterable[str]) -> Iterable[str]:
        """The absolute paths that words may name."""
        for word in words:
            if word.startswith("-"):
                word = word.partition("=")[2]
            if word and "://" not in word and len(word) < _LONGEST_PATH:
                path = self.places.absolute(word)
                if path is not None:
                    yield path

    def words(self, words: list[str], simple: Simple) -> None:
        """Judge a command given as words, assignments and keywords in front of it included."""
        while words and (words[0] in rules.KEYWORDS or is_assignment(words[0])):
            word = words.pop(0)
            if is_assignment(word):
                name, _, value = word.partition("=")
                self.assign(name, value)
        if not words:
            return
        if words[0] in ("for", "select") and len(words) > 3 and words[2] == "in":
            self.variables[words[1]] = tuple(words[3:])
            return
        if words[0] in ("for", "select", "case", "function", "[", "[[", "test", "in", ":", "true", "false"):
            return
        if len(words[0].split()) > 1:  # a variable of several words, which a shell would split
            words[:1] = words[0].split()
        self._begin(words, simple)
        if not _PROGRAM.fullmatch(words[0]):
            self.note("unclear", "which program it runs is only known by running it")
            return
        program = os.path.basename(words[0])
        before = self._noted
        self.reads(program)
        for rule in self.rules:
            try:
                if rule(self, program, words[1:], simple):
                    break
            except Danger as danger:
                self.note(danger.category, danger.reason)
        if self._noted == before:
            self.steps.append(self._current)

    def assign(self, name: str, value: str) -> None:
        """Take note of a variable; some make other programs run something."""
        plain_name = name.rstrip("+").partition("[")[0]
        self.variables[plain_name] = None if UNKNOWN in value or name != plain_name else (value,)
        if rules.LOADS.fullmatch(plain_name):
            self.note("unclear", f"it makes other programs load or run something ({plain_name})")
        elif plain_name in rules.COMMANDS_IN_VARIABLES and value.strip():
            try:
                self.text(value, plain_name)
            except Danger as danger:
                self.note(danger.category, danger.reason)

    def writes(self, path: str, how: str) -> None:
        """Note it if writing to `path` leaves the working directory, or changes what runs by itself later."""
        for one in self.expand(path):
            if _HARMLESS_DEVICES.fullmatch(one):
                continue
            target = self.places.absolute(one)
            shown = one.replace(UNKNOWN, "…")
            if target is None:
                self.note("write_outside", f"it writes to a place that only running can tell ({how}: {shown})", UNKNOWN)
            elif target.startswith("/dev/"):
                self.note("machine", f"it writes to a device ({shown})", target)
            elif not self.places.inside(target):
                self.note("write_outside", f"it writes outside the working directory ({how}: {shown})", target)
            elif self.places.is_dotfile(target):
                self.note("write_outside", f"it writes a settings file in the home directory ({shown})", target)
            elif self.places.is_guarded(target):
                self.note("write_outside", f"it changes what runs by itself later ({shown})", target)

    def reads(self, program: str) -> None:
        """Note it if the command that is being judged names a place where keys lie."""
        if program in ("echo", "printf", "cd", "export"):
            return
        for path in self._current.paths:
            trees = program in rules.READS_TREES and covers(path, self.places.home.rstrip("/") + "/.ssh")
            if self.places.holds_keys(path) or trees and not covers(self.places.workspace, path):
                self.note("secrets", f"it reads where keys or logins lie ({path.replace(UNKNOWN, '…')})", path)

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


def hosts_of(program: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """The machines that a program's words name, in lower case; `UNKNOWN` where it talks to one that is not known."""
    found: list[str] = []
    for word in arguments:
        for match in _ADDRESS.finditer(word):
            found.append(UNKNOWN if UNKNOWN in match.group(1) else match.group(1).lower().strip("[]"))
    if program in rules.NETWORK and not found:
        for word in plain(arguments):
            bare = _BARE_HOST.match(word)
            if UNKNOWN in word:
                found.append(UNKNOWN)
            elif bare is not None:
                found.append(bare.group(1).lower())
    return tuple(dict.fromkeys(found))


def is_local(word: str) -> bool:
    """Whether an address is this machine."""
    return _LOCAL_HOST.match(word) is not None
