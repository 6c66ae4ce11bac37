"""Which tool calls need a person's consent: those that write outside the working directory, delete, install, publish,
gain rights, or reach into the machine.

A judgement of the call's text; of the file system it only follows links, so that a way out of the working directory is
seen. It is a net for mistakes and for injected orders, not a wall: a program that is
run can do anything. What cannot be read is dangerous, what is unknown but ordinary is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.runtime.command_judge import CommandJudge, Danger
from hermes.runtime.command_places import Places, Step, covers, hosts_of
from hermes.runtime.command_rules import RULES
from hermes.runtime.danger_code import judge_code
from hermes.runtime.read_only import Permission, allowed_read_only
from hermes.runtime.shell_syntax import Unreadable, parse

__all__ = ["JUDGED", "Permission", "Step", "Verdict", "allowed_read_only", "classify", "examine"]

_FUNCTION = re.compile(
    r"(?:function\s+([^\s(){}|&;]{1,60})\s*(?:\(\s*\))?|([^\s(){}|&;]{1,60})\s*\(\s*\))\s*[{(]([^}]{0,2000})"
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` is a clause such as `it deletes files (rm)`; `category` groups what one consent may cover:

    write_outside, delete, install, push, privilege, kill, permissions, machine, remote_code, agent, secrets, unclear.
    """

    dangerous: bool
    reason: str = ""
    category: str = ""


_FINE = Verdict(dangerous=False)

_WRITERS = frozenset(("write_file", "patch"))
_FILE_TOOLS = _WRITERS | {"read_file", "search_files"}
#: Tools whose calls may be anything else than harmless.
JUDGED = _FILE_TOOLS | {"terminal", "execute_code"}


def classify(
    tool: str,
    arguments: Mapping[str, Any],
    workspace: str,
    *,
    cwd: str | None = None,
    home: str | None = None,
) -> Verdict:
    """Judge one call by the first of its steps that needs consent. Arguments as `examine`."""
    for step in examine(tool, arguments, workspace, cwd=cwd, home=home):
        if step.category:
            return Verdict(dangerous=True, category=step.category, reason=step.reason)
    return _FINE


def examine(
    tool: str,
    arguments: Mapping[str, Any],
    workspace: str,
    *,
    cwd: str | None = None,
    home: str | None = None,
    private: tuple[str, ...] = (),
) -> tuple[Step, ...]:
    """Return what a call does, step by step, each with the reason why it needs consent, if it does.

    `workspace` is the absolute directory in which a task may do as it likes; `cwd` where its session stands now
    (default: the workspace); `home` what `~` means (default: the user's); `private` the runtime's own files.
    """
    user_home = os.path.expanduser("~") if home is None else home
    places = Places(
        workspace=workspace, cwd=cwd if cwd is not None else workspace, home=user_home, private=tuple(private)
    )
    command = arguments.get("command")
    if tool == "terminal" and isinstance(command, str):
        workdir = arguments.get("workdir")
        if isinstance(workdir, str) and workdir:
            places = msgspec.structs.replace(places, cwd=places.absolute(workdir))
        return _command(command, places)
    if tool in _FILE_TOOLS:
        return _file(tool, str(arguments.get("path") or "."), places)
    code = arguments.get("code")
    if tool == "execute_code" and isinstance(code, str):
        return _code(code, places)
    return (Step(hosts=_hosts(arguments)),)


def _hosts(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The machines that a tool of the web is sent to: whatever of its arguments is an address."""
    found: list[str] = []
    for value in arguments.values():
        words = value if isinstance(value, (list, tuple)) else (value,)
        found.extend(hosts_of("", [word for word in words if isinstance(word, str)]))
    return tuple(dict.fromkeys(found))


def _file(tool: str, path: str, places: Places) -> tuple[Step, ...]:
    target, writes = places.absolute(path), tool in _WRITERS
    known = (target,) if target is not None else ()
    if writes and (target is None or not places.inside(target, temporary=False)):
        return (_reason("write_outside", f"it writes outside the working directory ({path})", known),)
    if writes and target is not None and places.is_dotfile(target):
        return (_reason("write_outside", f"it writes a settings file in the home directory ({path})", known),)
    if writes and target is not None and places.is_guarded(target):
        return (_reason("write_outside", f"it changes what runs by itself later ({path})", known),)
    whole = tool == "search_files" and target is not None and covers(target, places.home.rstrip("/") + "/.ssh")
    if target is not None and (places.holds_keys(target) or whole and not covers(places.workspace, target)):
        return (_reason("secrets", f"it reads keys or logins ({path})", known),)
    return (Step(paths=known),)


def _reason(category: str, reason: str, paths: tuple[str, ...]) -> Step:
    return Step(category=category, reason=reason, targets=paths, paths=paths)


def _code(code: str, places: Places) -> tuple[Step, ...]:
    judge = CommandJudge(places, RULES)
    try:
        judge_code(judge, code, "execute_code")
    except Danger as danger:
        judge.note(danger.category, danger.reason)
    return tuple(judge.steps) or (Step(),)


def _command(command: str, places: Places) -> tuple[Step, ...]:
    try:
        commands = parse(command)
    except Unreadable as error:
        return (Step(category="unclear", reason=f"the command cannot be read ({error})"),)
    judge = CommandJudge(places, RULES)
    if is_fork_bomb(command):
        judge.note("machine", "it starts itself without end (a fork bomb)")
    judge.judge(commands)
    return tuple(judge.steps) or (Step(),)


def is_fork_bomb(command: str) -> bool:
    """Whether a function of the command starts itself in a pipe or in the background."""
    for match in _FUNCTION.finditer(command):
        name, body = re.escape(match.group(1) or match.group(2)), match.group(3)
        if re.search(rf"(?:^|[\s;&|({{]){name}(?=[\s;&|)}}]|$)", body) and re.search(r"[|&]", body.replace("&&", "")):
            return True
    return False
