"""`hermes profile export|import|alias`: a profile in another home, and as a command."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import click
import msgspec

from hermes.chat.render import printable
from hermes.cli.opening import parts_without_model
from hermes.cli.options import home_of, open_sources, options_of
from hermes.cli.profile_parts import named_profile, runs_on, standing
from hermes.cli.screens import print_json
from hermes.compose.opening import redactor_of
from hermes.config import Home
from hermes.config.document import parse
from hermes.config.files import read_text, write_file
from hermes.config.profile_bundle import bundle, pack_profile, read_bundle
from hermes.config.profiles import create_profile, fill_profile
from hermes.core.errors import OperatorError, UsageError

__all__ = ["alias", "alias_of", "export", "import_", "write_alias"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_MARK = "# a profile of hermes as a command; hermes profile alias --remove takes it away"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@click.command(
    epilog="\b\nExamples:\n  hermes profile export coder\n  hermes profile export coder -o ~/coder.tar.gz --json"
)
@click.argument("name")
@click.option("-o", "--output", default=None, metavar="FILE", help="Where to; NAME.tar.gz here if not given.")
@_json
@click.pass_context
def export(context: click.Context, /, name: str, output: str | None, as_json: bool) -> None:
    """Write a profile as one file, without keys.

    Settings, persona, description and agent types are in it; keys, logins and sessions never.
    """
    home = named_profile(context, name)
    sources = open_sources(msgspec.structs.replace(options_of(context), profile=name))
    files = pack_profile(home)
    if not files:
        raise UsageError(f"{name} has no settings, persona or description of its own: there is nothing to take along.")
    hide = redactor_of(parts_without_model(sources)).text
    for path, text in files.items():
        if hide(text) != text:
            raise OperatorError(
                f"{home.path / path} holds a key or another secret, which does not leave this home: put it into "
                f"{home.env_file} and write ${{NAME}} in its place. Nothing was written."
            )
    target = Path(os.path.abspath(os.path.expanduser(output or f"{name}.tar.gz")))
    if target.exists():
        raise UsageError(f"{target} is there already; give another file with -o, or remove it.")
    try:
        target.write_bytes(bundle(name, files))
    except OSError as error:
        raise OperatorError(f"cannot write {target}: {error.strerror}.") from error
    if as_json:
        print_json({"profile": name, "path": target, "files": sorted(files)})
    else:
        click.echo(f"wrote {target}: {', '.join(sorted(files))}\n  elsewhere: hermes profile import {target.name}")


@click.command(
    "import",
    epilog="\b\nExamples:\n  hermes profile import coder.tar.gz\n  hermes profile import coder.tar.gz --name other",
)
@click.argument("file")
@click.option("--name", default=None, metavar="NAME", help="Its name here; the one in the file if not given.")
@_json
@click.pass_context
def import_(context: click.Context, /, file: str, name: str | None, as_json: bool) -> None:
    """Make a profile of a file that `export` wrote. It runs on what the profile in use runs on, unless it says more.

    Its settings may run commands on this machine: which ones it brings is printed, look at them first.
    """
    named, files = read_bundle(Path(os.path.expanduser(file)))
    told = parse(Path("profile.yaml"), files.get("profile.yaml", "")).data
    description = " ".join(str(told.get("description") or "").split())
    home = create_profile(home_of(context), name or named, description=description)
    fill_profile(home, files)
    found = standing(home, home_of(context).profile, options_of(context))
    settings = sorted(parse(home.config_file, files.get("config.yaml", "")).data)
    if as_json:
        print_json({**msgspec.to_builtins(found), "files": sorted(files), "settings": settings})
        return
    click.echo(f"made {home.profile} in {home.path}: {', '.join(sorted(files))}")
    click.echo(f"  runs on {printable(runs_on(found))}")
    if settings:
        click.echo(printable(f"  it brings settings ({', '.join(settings)}); look at them: {home.config_file}"))


@click.command(
    epilog="\b\nExamples:\n  hermes profile alias coder\n  hermes profile alias coder --name dev\n"
    "  hermes profile alias coder --remove"
)
@click.argument("profile")
@click.option("--name", default=None, metavar="NAME", help="The command's name; the profile's if not given.")
@click.option("--remove", is_flag=True, help="Take the command away.")
@_json
@click.pass_context
def alias(context: click.Context, /, profile: str, name: str | None, remove: bool, as_json: bool) -> None:
    """Make a command of a profile.

    NAME does what `hermes -p PROFILE` does. It is written into ~/.local/bin.
    """
    home = named_profile(context, profile)
    there = alias_of(home)
    if remove:
        if there is None:
            raise UsageError(f"{profile} has no alias; `hermes profile alias {profile}` makes one.")
        there.unlink()
    else:
        wanted = name or profile
        if not _NAME.fullmatch(wanted) or wanted == "hermes":
            raise UsageError(f"{wanted!r} cannot be a command here: use lower-case letters, digits, '-' and '_'.")
        target = _folder() / wanted
        other = shutil.which(wanted)
        if not _is_alias(target) and (target.exists() or other is not None):
            raise UsageError(f"there is a command {wanted} already ({other or target}); give another one with --name.")
        write_alias(home, target)
        if there is not None and there != target:
            there.unlink()
        there = target
    if as_json:
        print_json({"profile": profile, "alias": None if remove else there, "removed": remove})
        return
    click.echo(f"removed {there}" if remove else f"{there.name} does what hermes -p {profile} does ({there})")
    if not remove and str(there.parent) not in os.environ.get("PATH", "").split(os.pathsep):
        click.echo(f"hermes: {there.parent} is not in PATH: add it there, or call {there}", err=True)


def _folder() -> Path:
    return Path(os.path.expanduser("~")) / ".local" / "bin"


def _is_alias(path: Path) -> bool:
    try:
        return path.is_file() and _MARK in path.read_text(encoding="utf-8", errors="replace")[:500]
    except OSError:
        return False


def _line(home: Home) -> str:
    """What an alias of a profile runs."""
    command = [sys.executable, "-m", "hermes.cli.main", "-p", home.profile]
    return f'HERMES_HOME={shlex.quote(str(home.root))} exec {shlex.join(command)} "$@"\n'


def alias_of(home: Home) -> Path | None:
    """The command that a profile has, None without one."""
    folder = _folder()
    end = f'-p {home.profile} "$@"\n'
    root = f"HERMES_HOME={shlex.quote(str(home.root))} "
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _is_alias(path):
            text = read_text(path) or ""
            if text.endswith(end) and root in text:
                return path
    return None


def write_alias(home: Home, path: Path) -> None:
    """Make the command at `path` that of a profile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, f"#!/bin/sh\n{_MARK}\n{_line(home)}", mode=0o700, keep=False)
