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

from hermes.runtime.command_judge import CommandJudge, Danger, Places
from hermes.runtime.command_rules import RULES
from hermes.runtime.danger_rules import CODE
from hermes.runtime.read_only import Permission, allowed_read_only
from hermes.runtime.shell_syntax import Unreadable, parse

__all__ = ["JUDGED", "Permission", "Verdict", "allowed_read_only", "classify"]

_FORK_BOMB = re.compile(r"([\w:.]{1,40})\(\)\s{0,9}\{\s{0,9}\1\s{0,9}\|\s{0,9}\1\s{0,9}&")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`reason` is a clause such as `it deletes files (rm)`; `category` groups what one consent may cover:

    write_outside, delete, install, push, privilege, kill, permissions, machine, remote_code, agent, read_only, unclear.
    """

    dangerous: bool
    reason: str = ""
    category: str = ""


_FINE = Verdict(dangerous=False)

#: Tools whose calls may be anything else than harmless.
JUDGED = frozenset(("terminal", "write_file", "patch", "execute_code"))


def _verdict(category: str, reason: str) -> Verdict:
    return Verdict(dangerous=True, category=category, reason=reason)


def classify(
    tool: str,
    arguments: Mapping[str, Any],
    workspace: str,
    read_only: bool = False,
    *,
    cwd: str | None = None,
    home: str | None = None,
) -> Verdict:
    """Judge one call.

    `workspace` is the absolute directory in which a task may do as it likes; `cwd` where its session stands now
    (default: the workspace); `home` what `~` means (default: the user's). `read_only` allows only what
    `allowed_read_only` does.
    """
    if tool not in JUDGED:
        return _FINE
    user_home = os.path.expanduser("~") if home is None else home
    places = Places(workspace=workspace, cwd=cwd if cwd is not None else workspace, home=user_home)
    command = arguments.get("command")
    if tool == "terminal" and isinstance(command, str):
        if read_only:
            permission = allowed_read_only(command)
            return _FINE if permission.allowed else _verdict("read_only", permission.reason)
        workdir = arguments.get("workdir")
        if isinstance(workdir, str) and workdir:
            places = msgspec.structs.replace(places, cwd=places.absolute(workdir))
        return _command(command, places)
    if tool in ("write_file", "patch"):
        if read_only:
            return _verdict("read_only", "this task may only look")
        return _file(str(arguments.get("path", "")), places)
    code = arguments.get("code")
    if tool == "execute_code" and isinstance(code, str) and (found := CODE.search(code)) is not None:
        return _verdict("unclear", f"its code may delete, send or start programs ({found.group()})")
    return _FINE


def _file(path: str, places: Places) -> Verdict:
    target = places.absolute(path)
    if target is None or not places.inside(target, temporary=False):
        return _verdict("write_outside", f"it writes outside the working directory ({path})")
    if places.is_dotfile(target):
        return _verdict("write_outside", f"it writes a settings file in the home directory ({path})")
    return _FINE


def _command(command: str, places: Places) -> Verdict:
    try:
        commands = parse(command)
        if _FORK_BOMB.search(command):
            return _verdict("machine", "it starts itself without end (a fork bomb)")
        CommandJudge(places, RULES).judge(commands)
    except Danger as danger:
        return _verdict(danger.category, danger.reason)
    except Unreadable as error:
        return _verdict("unclear", f"the command cannot be read ({error})")
    return _FINE
