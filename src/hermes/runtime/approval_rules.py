"""Rules about calls: which one speaks about a step, and which one an answer of a person makes.

A rule that allows has to name the whole of what it allows; one that denies or asks speaks as soon as it may be meant.
Nothing is asked and nothing is run here.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from functools import lru_cache

from hermes.config.approvals import ApprovalRule, Decision
from hermes.runtime.command_places import Step, covers, plain
from hermes.runtime.command_traps import git_words
from hermes.runtime.danger_rules import SUBCOMMANDS
from hermes.runtime.shell_syntax import UNKNOWN

__all__ = ["Subject", "decision_of", "rule_for", "rule_text"]

#: What a rule with a path alone allows: writing there. Deleting and the rest need their command named.
_BY_PATH = frozenset({"write_outside", "secrets"})
#: What stays inside the working directory when no target is named.
_LOCAL = frozenset({"delete", "permissions"})


class Subject:
    """A call as rules see it: its tool, the whole command line (empty for other tools), the task's directories."""

    __slots__ = ("home", "line", "tool", "workspace")

    def __init__(self, tool: str, line: str, workspace: str, home: str = "") -> None:
        self.tool = tool
        self.line = line
        self.workspace = workspace
        self.home = home or os.path.expanduser("~")


def decision_of(rules: Iterable[ApprovalRule], step: Step, subject: Subject) -> Decision | None:
    """What the rules say of one step: the last that speaks about it, a denial before all; None if none does."""
    found: Decision | None = None
    for rule in rules:
        if _speaks(rule, step, subject):
            if rule.decision == "deny":
                return "deny"
            found = rule.decision
    return found


def _speaks(rule: ApprovalRule, step: Step, subject: Subject) -> bool:
    allows = rule.decision == "allow"
    if rule.tool and not _pattern(rule.tool).fullmatch(subject.tool):
        return False
    if rule.line and rule.line != subject.line:
        return False
    if rule.command and not (_allowed_words if allows else _meant_words)(rule.command, step.words):
        return False
    if rule.host and not _host(rule.host, step.hosts, allows):
        return False
    return not rule.path or _path(rule, step, subject, allows)


def _host(pattern: str, hosts: Sequence[str], allows: bool) -> bool:
    known = _pattern(pattern.lower())
    if allows:
        return bool(hosts) and all(known.fullmatch(host) for host in hosts)
    return any(host == UNKNOWN or known.fullmatch(host) for host in hosts)


def _path(rule: ApprovalRule, step: Step, subject: Subject, allows: bool) -> bool:
    place = _absolute(rule.path, subject)
    if allows:
        touched = step.targets or (step.paths if step.category in _LOCAL else ())
        if not step.targets and any(UNKNOWN in word for word in step.words):
            return False
        if not rule.command and not rule.tool and step.category and step.category not in _BY_PATH:
            return False
        return bool(touched) and all(_below(place, path, strict=True) for path in touched)
    return any(path == UNKNOWN or _below(place, path) for path in (*step.targets, *step.paths))


def _absolute(path: str, subject: Subject) -> str:
    if path == "~" or path.startswith("~/"):
        path = subject.home + path[1:]
    return os.path.normpath(os.path.join(subject.workspace, path))


def _below(place: str, path: str, *, strict: bool = False) -> bool:
    """Whether a path is the place, below it, or fits its pattern; links are followed. Not strict, a pattern of the
    command that may stand for the place is enough."""
    real = os.path.realpath(path)
    if strict and (UNKNOWN in path or "*" in path or "?" in path):
        path = real = os.path.dirname(path.partition("*")[0].partition("?")[0])
    pattern = _path_pattern(place)
    if any(pattern.fullmatch(one) for one in ((real,) if strict else (path, real))):
        return True
    if strict:
        return covers(os.path.realpath(place), real)
    return covers(os.path.realpath(place), real) or _may_stand_for(path, place)


def _may_stand_for(path: str, place: str) -> bool:
    """Whether a word with `*` or `?` may stand for the place or something below it."""
    parts, names = path.split("/"), place.split("/")
    if len(parts) < len(names) or not any(ch in path for ch in "*?["):
        return False
    return all(_pattern(part).fullmatch(name) for part, name in zip(parts, names, strict=False))


@lru_cache(maxsize=512)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(".*" if ch == "*" else "." if ch == "?" else re.escape(ch) for ch in pattern), re.DOTALL)


@lru_cache(maxsize=512)
def _path_pattern(place: str) -> re.Pattern[str]:
    """`*` and `?` stay within a name, `**` does not; what is below fits too."""
    parts = re.split(r"(\*\*|\*|\?)", place)
    text = "".join({"**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part)) for part in parts)
    return re.compile(text.rstrip("/") + "(?:/.*)?", re.DOTALL)


def _split(pattern: str) -> list[str]:
    try:
        return shlex.split(pattern)
    except ValueError:
        return pattern.split()


def _canonical(words: Sequence[str]) -> list[str]:
    """The program's words without the options that stand before git's subcommand."""
    return ["git", *git_words(words[1:])[1]] if words[:1] == ("git",) else list(words)


def _allowed_words(pattern: str, words: Sequence[str]) -> bool:
    """Whether the pattern names every word; a last `*` stands for any further words, elsewhere for part of one."""
    wanted = _split(pattern)
    rest = wanted[-1:] == ["*"]
    wanted = wanted[:-1] if rest else wanted
    if not words or len(words) < len(wanted) or len(words) > len(wanted) and not rest:
        return False
    return all(
        word == want
        or "*" in want
        and UNKNOWN not in word
        and ".." not in word
        and bool(_pattern(want).fullmatch(word))
        for want, word in zip(wanted, words, strict=False)
    )


def _meant_words(pattern: str, words: Sequence[str]) -> bool:
    """Whether the pattern may be meant: its words are the first ones apart from options, its options stand anywhere."""
    wanted = [want for want in _split(pattern) if want != "*"]
    given = _canonical(words)
    if not given or not wanted or not _same(wanted[0], given[0]):
        return False
    options = [want for want in wanted[1:] if want.startswith("-")]
    names = [want for want in wanted[1:] if not want.startswith("-")]
    rest = plain(given[1:])
    return (
        all(any(_same(want, word) or word.startswith(want + "=") for word in given) for want in options)
        and len(rest) >= len(names)
        and all(_same(want, word) for want, word in zip(names, rest, strict=False))
    )


def _same(want: str, word: str) -> bool:
    return UNKNOWN in word or bool(_pattern(want).fullmatch(word))


def rule_for(step: Step, subject: Subject) -> ApprovalRule:
    """The narrowest rule of use that allows this step again: what `session` and `always` stand for."""
    if step.category == "write_outside" and step.targets and UNKNOWN not in step.targets:
        return ApprovalRule(decision="allow", path=step.targets[0])
    if step.category == "secrets" and step.targets:
        return ApprovalRule(decision="allow", tool=subject.tool, path=step.targets[0])
    if step.category in ("unclear", "remote_code", "machine", "privilege") or not step.words:
        if subject.line:
            return ApprovalRule(decision="allow", line=subject.line)
        if step.hosts and UNKNOWN not in step.hosts:
            return ApprovalRule(decision="allow", tool=subject.tool, host=step.hosts[0])
        return ApprovalRule(decision="allow", tool=subject.tool)
    if any(UNKNOWN in word for word in step.words):
        return ApprovalRule(decision="allow", line=subject.line)
    name = [step.words[0]]
    if name[0] in SUBCOMMANDS and len(step.words) > 1 and re.fullmatch(r"[a-z][a-z-]*", step.words[1]):
        name.append(step.words[1])
    command = shlex.join(name) + " *"
    touched = step.targets or step.paths
    inside = bool(touched) and all(covers(subject.workspace, os.path.realpath(path)) for path in touched)
    if step.category in _LOCAL:
        if not inside:
            return ApprovalRule(decision="allow", command=shlex.join(step.words))
        return ApprovalRule(decision="allow", command=command, path=subject.workspace)
    if step.category == "push" and step.hosts:
        if len(step.hosts) > 1 or UNKNOWN in step.hosts:
            return ApprovalRule(decision="allow", command=shlex.join(step.words))
        return ApprovalRule(decision="allow", command=command, host=step.hosts[0])
    return ApprovalRule(decision="allow", command=command)


def rule_text(rule: ApprovalRule) -> str:
    """The rule in few words, for the person who is asked."""
    named = [(name, getattr(rule, name)) for name in ("tool", "command", "path", "host", "line")]
    return ", ".join(f"{name} {value}" for name, value in named if value)
