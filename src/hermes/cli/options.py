"""The options that several commands share, and what they mean for settings and endpoint.

`GlobalOptions` stands on `ctx.obj`. A command that repeats some of the options (`hermes chat -m`) uses `run_options`
and merges what it got over the global ones.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import click
import msgspec

from hermes.chat.options import UNSET, GlobalOptions
from hermes.config import Home, Loaded, find_home, load
from hermes.config.endpoints import EFFORTS
from hermes.credentials import (
    Endpoint,
    EndpointFlags,
    Key,
    PoolEntry,
    find_endpoint,
    find_keys,
    known_secrets,
    read_auth_file,
    settings_secrets,
)

__all__ = [
    "UNSET",
    "GlobalOptions",
    "Names",
    "Sources",
    "arguments_of",
    "merged",
    "home_of",
    "face_options",
    "listened",
    "open_sources",
    "options_of",
    "refused",
    "resume_options",
    "run_options",
    "sources_in",
    "worktree_option",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and keys of one invocation, read once. `variables` are the environment and `.env` together, `environ` is
    the environment alone."""

    loaded: Loaded
    options: GlobalOptions
    pool: tuple[PoolEntry, ...]
    keys: tuple[Key, ...]
    variables: dict[str, str]
    environ: Mapping[str, str] = {}

    def endpoint(self, base_url: str = "", api_key: str = "") -> Endpoint:
        """The server to ask. Raises as `hermes.credentials.find_endpoint`."""
        flags = EndpointFlags(
            model=self.options.model, provider=self.options.provider, base_url=base_url, api_key=api_key
        )
        return find_endpoint(self.loaded.settings, flags, self.keys, self.variables)

    def secrets(self) -> tuple[str, ...]:
        """Every secret that must not be written down, the logins of the pool included, longest first."""
        more = settings_secrets(self.loaded.settings, self.variables)
        return known_secrets(self.variables, {}, self.pool, more)


def options_of(context: click.Context) -> GlobalOptions:
    """The options on a click context; the defaults where a command is called by itself."""
    found = context.find_object(GlobalOptions)
    return found if found is not None else GlobalOptions()


def home_of(context: click.Context, environ: Mapping[str, str] | None = None) -> Home:
    """The home this invocation works on. Raises as `hermes.config.find_home`."""
    return find_home(os.environ if environ is None else environ, options_of(context).profile)


def open_sources(options: GlobalOptions, environ: Mapping[str, str] | None = None) -> Sources:
    """Read settings and keys of the home that `options` name. Nothing is written.

    Raises:
        UsageError: a flag, a file or a `…_BASE_URL` cannot be used.
        OperatorError: a file cannot be read.
    """
    environ = os.environ if environ is None else environ
    return sources_in(find_home(environ, options.profile), options, environ)


def sources_in(home: Home, options: GlobalOptions, environ: Mapping[str, str]) -> Sources:
    """The same for a home that is known, whatever profile `options` name. Raises as `open_sources`."""
    loaded = load(home, environ, options.flags())
    pool = read_auth_file(loaded.auth_file)
    return Sources(
        loaded=loaded,
        options=options,
        pool=pool,
        keys=find_keys(environ, loaded.dotenv, pool, loaded.inherited),
        variables={**loaded.dotenv, **environ},
        environ=environ,
    )


def listened() -> list[signal.Signals]:
    """The signals to act on: those that whoever started the process did not have ignored (nohup, a shell's `&`)."""
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]


class Names(click.ParamType[tuple[str, ...]]):
    name = "csv"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(",") if part.strip())
        return names or self.fail("expected names separated by commas", param, ctx)


class _Turns(click.ParamType[int | str | None]):
    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str | None:
        if value is None or isinstance(value, int) or value == UNSET:
            return cast("int | str | None", value)
        if str(value).lower() in ("none", "unlimited", "inf", "0", "-1"):
            return None
        try:
            number = int(value)
        except ValueError:
            number = -2
        return number if number > 0 else self.fail(f"{value!r} is neither a number above 0 nor `unlimited`", param, ctx)


_OPTIONS: tuple[Callable[[_Command], _Command], ...] = (
    click.option("-m", "--model", default="", metavar="MODEL", help="Model for this run; `embedded` is the local one."),
    click.option("-t", "--toolsets", type=Names(), default=None, metavar="CSV", help="Toolsets for this run."),
    click.option("--provider", default="", metavar="NAME", help="Provider for this run."),
    click.option(
        "--reasoning",
        type=click.Choice(EFFORTS),
        default=None,
        metavar="LEVEL",
        help=f"How much the model thinks: {', '.join(EFFORTS)}.",
    ),
    click.option("--max-turns", type=_Turns(), default=UNSET, metavar="N", help="Model calls a task may make."),
    click.option(
        "--run-budget",
        type=click.FloatRange(min=0, min_open=True),
        default=None,
        metavar="SECONDS",
        help="Running time of a one-shot run.",
    ),
    click.option(
        "--max-cost",
        type=click.FloatRange(min=0),
        default=None,
        metavar="USD",
        help="What the session and its tasks may cost in US dollars; 0: no limit.",
    ),
    click.option("--yolo", is_flag=True, help="Run dangerous commands without asking."),
    click.option(
        "--allow-host-commands",
        "host_commands",
        is_flag=True,
        help="Run dangerous commands on this machine where nobody can be asked and there is no sandbox.",
    ),
)


def run_options(command: _Command) -> _Command:
    """Give a command the options of a run: -m -t --provider --reasoning --max-turns --run-budget --max-cost --yolo
    --allow-host-commands.

    They arrive as `model, toolsets, provider, reasoning, max_turns, run_budget, max_cost, yolo, host_commands`; see
    `merged`.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def worktree_option(command: _Command) -> _Command:
    """Give a command -w/--worktree."""
    text = "Work in a git worktree of its own, on a new branch; it is kept if anything is left in it."
    return click.option("-w", "--worktree", is_flag=True, help=text)(command)


def resume_options(note: str = "") -> Callable[[_Command], _Command]:
    """Give a command -r/--resume and -c/--continue, which arrive as `resume` and `proceed`; `note` joins the help."""

    def decorate(command: _Command) -> _Command:
        newest: dict[str, Any] = {"is_flag": False, "flag_value": "latest", "default": None}
        by_title = click.option(
            "-c",
            "--continue",
            "proceed",
            metavar="[NAME]",
            help="The same by its title; without one the newest.",
            **newest,
        )
        by_id = click.option(
            "-r",
            "--resume",
            metavar="[ID|latest]",
            help=f"Go on with a conversation and its tasks{note}.",
            **newest,
        )
        return by_id(by_title(command))

    return decorate


def merged(options: GlobalOptions, **given: Any) -> GlobalOptions:
    """`options` with those of `given` that were really given (not None, empty, False or `unset`)."""
    numbers = ("max_turns", "max_cost")  # 0 has a meaning
    known = {name: value for name, value in given.items() if name in numbers or value not in (None, "", False)}
    if known.get("max_cost", 0.0) is None:
        del known["max_cost"]
    if known.get("max_turns") == UNSET:
        del known["max_turns"]
    return msgspec.structs.replace(options, **known)


def arguments_of(options: GlobalOptions) -> list[str]:
    """The options of a run as arguments before a command, for another process of this program that acts likewise."""
    found: list[str] = []
    for flag, value in (("-m", options.model), ("--provider", options.provider), ("--reasoning", options.reasoning)):
        found += [flag, value] if value else []
    found += ["-t", ",".join(options.toolsets)] if options.toolsets is not None else []
    if options.max_turns != UNSET:
        found += ["--max-turns", "unlimited" if options.max_turns is None else str(options.max_turns)]
    found += ["--run-budget", f"{options.run_budget:g}"] if options.run_budget is not None else []
    found += ["--yolo"] if options.yolo else []
    return found + (["--allow-host-commands"] if options.host_commands else [])


def face_options(command: _Command) -> _Command:
    """`--tui` and `--cli`, as `face`: `tui`, `cli`, or None."""
    command = click.option("--cli", "face", flag_value="cli", default=None, help="Converse line by line.")(command)
    return click.option("--tui", "face", flag_value="tui", default=None, help="Converse on the full screen.")(command)


def refused(**names: str | tuple[str, str]) -> Callable[[_Command], _Command]:
    """Refuse options by name instead of calling them unknown: `refused(worktree="-w --worktree")`, or with the reason:
    `refused(identity=("--install-id", "there is none."))`.

    They are options of other programs of this name; ignoring one would do something else than was asked for.
    """

    def decorate(command: _Command) -> _Command:
        for declared in names.values():
            spelled, reason = (declared, "") if isinstance(declared, str) else declared
            spellings = spelled.split()

            def refuse(context: click.Context, parameter: click.Parameter, value: Any, why: str = reason) -> None:
                if value is not None:
                    said = why or "is not supported in this release."
                    raise click.UsageError(f"{parameter.opts[-1]} {said}", context)

            command = click.option(
                *spellings,
                is_flag=False,
                flag_value="",
                default=None,
                hidden=True,
                expose_value=False,
                callback=refuse,
            )(command)
        return command

    return decorate
