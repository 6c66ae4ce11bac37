"""What a shell offers after Tab: the names that this home knows, beside the commands and options that click knows.

A value is completed by the name of its parameter, so a new command with a `task_id` has it at once. Asks no server.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from hermes.chat.render import printable
from hermes.config import Home, find_home, load
from hermes.config.home import profile_names
from hermes.config.schema import FIELDS
from hermes.core.errors import HermesError
from hermes.store.glance import Named, models_used, recent_sessions, recent_tasks

__all__ = ["SHELLS", "VARIABLE", "answer", "script"]

#: The variable by which a shell asks; its name is made by click of the program's.
VARIABLE = "_HERMES_COMPLETE"


def _tasks(home: Home, prefix: str) -> Sequence[Named]:
    return recent_tasks(home.database, prefix)


def _sessions(home: Home, prefix: str) -> Sequence[Named]:
    return [*recent_sessions(home.database, prefix), *([Named("latest", "the newest")])]


def _either(home: Home, prefix: str) -> Sequence[Named]:
    return [*recent_sessions(home.database, prefix), *recent_tasks(home.database, prefix)]


def _profiles(home: Home, prefix: str) -> Sequence[Named]:
    return [Named(name) for name in profile_names(home.root)]


def _models(home: Home, prefix: str) -> Sequence[Named]:
    settings = load(home).settings
    named = [settings.model.default, *settings.model.aliases, *settings.models, "embedded"]
    found = {name: Named(name) for name in named if name}
    return [*found.values(), *(one for one in models_used(home.database) if one.name not in found)]


def _settings(home: Home, prefix: str) -> Sequence[Named]:
    return [Named(name) for name in FIELDS]


_Source = Callable[[Home, str], Sequence[Named]]
#: By the name of the parameter.
_VALUES: dict[str, _Source] = {
    "task_id": _tasks,
    "task_ids": _tasks,
    "session_id": _sessions,
    "session": _sessions,
    "resume": _sessions,
    "which": _either,
    "profile": _profiles,
    "clone_from": _profiles,
    "model": _models,
    "key": _settings,
}
#: By command and parameter, where the parameter's name says too little.
_OF_COMMAND: dict[tuple[str, str], _Source] = {
    ("model set", "name"): _models,
    ("model test", "name"): _models,
    **{(f"profile {verb}", "name"): _profiles for verb in ("show", "use", "describe", "delete", "rename")},
}


class _Offered(click.ParamType[Any]):
    """A text, with what may be offered for it."""

    name = "text"

    def __init__(self, source: _Source) -> None:
        self._source = source

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
        profile: str | None = None
        above: click.Context | None = ctx
        while above is not None:
            profile = above.params.get("profile") or profile
            above = above.parent
        try:
            found = self._source(find_home(os.environ, profile), incomplete)
        except (HermesError, sqlite3.Error, OSError):
            return []  # whoever presses Tab is in the middle of a line: nothing is offered, the command itself will say
        return [
            CompletionItem(one.name, help=" ".join(printable(one.about).split()))
            for one in found
            if one.name.startswith(incomplete)
        ]


def _prepared(command: click.Command, path: str) -> None:
    for parameter in command.params:
        name = parameter.name or ""
        source = _OF_COMMAND.get((path, name)) or _VALUES.get(name)
        if source is not None and not isinstance(parameter.type, (click.Choice, click.Path)):
            parameter.type = _Offered(source)


class _Completing(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        command, path = self.cli, ""
        _prepared(command, path)
        for word in args:
            if not isinstance(command, click.Group) or word.startswith("-"):
                continue
            inner = command.get_command(click.Context(command), word)
            if inner is not None:
                command, path = inner, f"{path} {word}".strip()
                _prepared(command, path)
        return super().get_completions(args, incomplete)


class _Bash(_Completing, BashComplete):
    pass


class _Zsh(_Completing, ZshComplete):
    pass


class _Fish(_Completing, FishComplete):
    pass


SHELLS: Mapping[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def script(command: click.Command, shell: str) -> str:
    """What a shell has to read once."""
    return SHELLS[shell](command, {}, "hermes", VARIABLE).source()


def answer(command: click.Command, instruction: str) -> int:
    """Answer a shell that asks by `VARIABLE`; returns the exit code."""
    shell, _, verb = instruction.partition("_")
    if shell not in SHELLS or verb not in ("complete", "source"):
        return 2
    click.echo(
        script(command, shell) if verb == "source" else SHELLS[shell](command, {}, "hermes", VARIABLE).complete()
    )
    return 0
