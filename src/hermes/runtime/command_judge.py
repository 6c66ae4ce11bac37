"""Judging the simple commands of one command line in order, with the directory and the variables known so far.

Every command becomes a `Step`, once for each reason why it needs consent, and once where there is none: rules of the
user have to see the harmless ones too. Nothing is run. The tables are in `danger_rules.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from hermes.runtime import danger_rules as rules
from hermes.runtime.command_places import Places, Step, covers, hosts_of
from hermes.runtime.shell_syntax import UNKNOWN, VARIABLE, Redirect, Simple, Unreadable, is_assignment, parse

__all__ = ["CommandJudge", "Danger", "Rule", "is_local"]

#: Shell words that evaluate an index, and with it the commands inside a quoted word.
_EVALUATES = frozenset(
    {"[", "[[", "test", "let", "unset", "read", "printf", "declare", "typeset", "local", "((", "wait"}
)
_HARMLESS_DEVICES = re.compile(r"/dev/(null|stdout|stderr|tty|zero|full|fd/\d+)")
_LOCAL_HOST = re.compile(r"(?:https?://)?(?:localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0)(?:[:/]|$)")
_PROGRAM = re.compile(r"[^\ue000-\ue005*?]+")
_OPENS = frozenset({"if", "while", "until", "for", "case", "select", "{"})
_CLOSES = frozenset({"fi", "done", "esac", "}"})
_LONGEST_PATH = 4096
_MAX_NESTING = 12
_MAX_COMMANDS = 1000
_MAX_PLACES = 16
_MAX_VALUES = 200


class Danger(Exception):
    """A command needs consent: `category` and a clause that says what it does."""

    def __init__(self, category: str, reason: str) -> None:
        super().__init__(reason)
        self.category = category
        self.reason = reason


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
        self._stack: list[tuple[str | None, dict[str, tuple[str, ...] | None]]] = []
        self._before: str | None = places.cwd
        self._open = 0  # compound commands that are not closed yet
        self._uncertain = False  # whether the command that is being judged may not be run, or in a shell of its own
        self._untaken: list[str | None] = []  # directories that hold if a cd of this chain of && was not made
        self._maybe: list[str | None] = []  # directories that may hold instead of the current one
        self.fetched: set[str] = set()  # files that it loads from another machine
        self._dark: set[str] = set()  # variables that stand for others
        self._current = Step()
        self._begun: Simple | None = None  # which command that is about
        self._noted = 0

    def judge(self, commands: Iterable[Simple]) -> None:
        """Judge commands in order."""
        if self.nesting > _MAX_NESTING:
            self.note("unclear", "the command is nested too deeply to be read")
            return
        for number, simple in enumerate(commands):
            if number > _MAX_COMMANDS:
                self.note("unclear", f"it is more than {_MAX_COMMANDS} commands")
                return
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
        judge._maybe, judge._dark, judge.fetched = list(self._maybe), self._dark, self.fetched
        return judge

    def text(self, command: str, what: str, *, here: bool = False) -> None:
        """Judge a command line that is given to a shell as text, to this one if `here`. Raises Danger if it cannot be
        read."""
        if UNKNOWN in command or "\ue000" in command:
            raise Danger("remote_code", f"it runs a text that only running can tell ({what})")
        if here and self.nesting < _MAX_NESTING:
            self.nesting += 1
            judge = self
        else:
            judge = self.inner()
        try:
            judge.judge(parse(command))
        except Unreadable as error:
            raise Danger("unclear", f"the command inside {what} cannot be read ({error})") from None

    def simple(self, simple: Simple) -> None:
        """Judge one simple command with its redirections and the commands inside its words."""
        if simple.words == ("(",):
            self._stack.append((self.places.cwd, dict(self.variables)))
            return
        if simple.words == (")",):
            if self._stack:
                cwd, self.variables = self._stack.pop()
                self._move(cwd)
            return
        if simple.after != "&&":
            self._maybe = list(dict.fromkeys((*self._maybe, *self._untaken)))[:_MAX_PLACES]
            self._untaken = []
        self._uncertain = bool(self._open or simple.after or simple.piped or simple.background)
        self.inner().judge(simple.substitutions)
        try:
            words = [word for part in simple.words for word in self.expand(part)]
            self._begin(words, simple)
            for redirect in simple.redirects:
                self.redirect(redirect)
            if not words:
                self.reads("")
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
        if match.group(1) == "PWD" and self.places.cwd is not None and "PWD" not in self.variables:
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
        self._begun = simple
        program, arguments = (os.path.basename(words[0]), words[1:]) if words else ("", ())
        inputs = [one for redirect in simple.redirects for one in self.expand(redirect.target)]
        self._current = Step(
            words=(program, *arguments) if words else (),
            paths=tuple(dict.fromkeys(self._paths([*arguments, *inputs]))),
            hosts=hosts_of(program, arguments),
        )

    def _paths(self, words: Iterable[str]) -> Iterable[str]:
        """The absolute paths that words may name."""
        parts = (part for word in words for part in (word, word.partition("=")[2]))
        for part in (part.removeprefix("@") for part in parts):
            if part and not part.startswith("-") and "://" not in part and len(part) < _LONGEST_PATH:
                path = self.places.absolute(part)
                if path is not None:
                    yield path

    def words(self, words: list[str], simple: Simple) -> None:
        """Judge a command given as words, assignments and keywords in front of it included."""
        while words and (words[0] in rules.KEYWORDS or is_assignment(words[0])):
            word = words.pop(0)
            self._open += (word in _OPENS) - (word in _CLOSES and self._open > 0)
            self._uncertain = self._uncertain or self._open > 0
            if is_assignment(word):
                name, _, value = word.partition("=")
                self.assign(name, value)
        if not words:
            return
        self._open += words[0] in _OPENS
        if words[0] in _EVALUATES and any("$(" in word or "`" in word for word in words[1:]):
            self.note("unclear", f"{words[0]} runs a command inside a word")
        if words[0] in ("for", "select") and len(words) > 3 and words[2] == "in":
            self.variables[words[1]] = tuple(words[3:])
            return
        if words[0] in ("for", "select", "case", "function", "[", "[[", "test", "in", ":", "true", "false"):
            return
        if len(words[0].split()) > 1:  # a variable of several words, which a shell would split
            words[:1] = words[0].split()
        if self._begun is not simple or self._current.words != (os.path.basename(words[0]), *words[1:]):
            self._begin(words, simple)
        if not _PROGRAM.fullmatch(words[0]):
            self.note("unclear", "which program it runs is only known by running it")
            return
        program = os.path.basename(words[0])
        before = self._noted
        self.reads(program)
        if self.fetched and self.places.absolute(words[0]) in self.fetched:
            self.note("remote_code", f"it runs what it has just loaded ({words[0]})")
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
        known = self.variables.get(plain_name)
        if UNKNOWN in value or name != plain_name or plain_name in self._dark:
            self.variables[plain_name] = None
        elif self._uncertain and plain_name in self.variables:
            self.variables[plain_name] = (*known, value) if known is not None else None
        else:
            self.variables[plain_name] = (value,)
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
            for cwd in self._maybe if not one.startswith(("/", "~")) else ():
                other = msgspec.structs.replace(self.places, cwd=cwd).absolute(one)
                if target is not None and (other is None or not self.places.inside(other)):
                    target = other
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
        if program in ("cd", "pushd"):
            return
        walks = program in rules.READS_TREES or program == "find" and "-exec" in " ".join(self._current.words)
        known: dict[str, str] = {}
        for path in self._current.paths:
            trees = walks and covers(path, self.places.home.rstrip("/") + "/.ssh")
            if self.places.holds_keys(path, known) or trees and not covers(self.places.workspace, path):
                self.note("secrets", f"it reads where keys or logins lie ({path.replace(UNKNOWN, '…')})", path)

    def _move(self, cwd: str | None) -> None:
        self._before = self.places.cwd
        self.places = msgspec.structs.replace(self.places, cwd=cwd)

    def change_directory(self, arguments: list[str]) -> None:
        """Follow a `cd`; where it may not come to it, both directories are kept in mind."""
        targets = [word for word in arguments if not word.startswith("-") or word == "-"]
        was = self.places.cwd
        if not targets:
            self._move(self.places.home or None)
        elif targets[0] == "-":
            self._move(self._before)
        elif UNKNOWN in targets[0] or re.match(r"[+-]\d", targets[0]):
            self._move(None)
        else:
            target = self.places.absolute(targets[0])
            logical = os.path.normpath(os.path.join(was or "/", targets[0]))
            if was is not None and target != logical and not targets[0].startswith("~"):
                self._untaken.append(logical)
            self._move(target)
        now = self.places.cwd
        if self._uncertain or now is None or not os.path.isdir(now):
            self._untaken.append(was)

    def unknowable(self, name: str) -> None:
        """Take note of a variable that stands for another one: its value is never known."""
        self._dark.add(name)
        self.variables[name] = None


#: Judges (judge, program, arguments, command): returns whether nothing more need be asked; raises Danger.
Rule = Callable[[CommandJudge, str, list[str], Simple], bool]


def is_local(word: str) -> bool:
    """Whether an address is this machine."""
    return _LOCAL_HOST.match(word) is not None
