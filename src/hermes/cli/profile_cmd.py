"""`hermes profile`: named agents of this home, each with settings, keys, persona and sessions of its own.

A new one runs on what the one it was made from runs on, by reference; `create` says what that is.
"""

from __future__ import annotations

import os
from typing import Any

import click

from hermes.chat.render import printable
from hermes.cli.agreeing import agree
from hermes.cli.options import home_of, options_of, refused
from hermes.cli.profile_describing import describe
from hermes.cli.profile_installing import info, install, update
from hermes.cli.profile_moving import alias, alias_of, export, import_
from hermes.cli.profile_parts import check_idle, named_profile, runs_on, standing
from hermes.cli.profile_renaming import rename
from hermes.cli.screens import print_json, rows
from hermes.config import find_home
from hermes.config.home import DEFAULT_PROFILE, check_profile_name, profile_names
from hermes.config.profiles import choose_profile, create_profile, delete_profile, heirs

__all__ = ["profile"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(
    epilog='\b\nExamples:\n  hermes profile create coder --description "Writes code and tests"\n'
    "  hermes profile list\n  hermes -p coder chat\n  hermes profile use coder"
)
def profile() -> None:
    """Named agents, each with settings, keys, persona and sessions of its own.

    They share this home's boards. The persona of a profile is the file SOUL.md in its folder.
    """


@profile.command(
    "create",
    epilog='\b\nExamples:\n  hermes profile create researcher --description "Reads sources, writes reports"\n'
    "  hermes profile create careful --clone-from coder",
)
@click.argument("name")
@click.option("--description", default="", metavar="TEXT", help="What it is good at; others choose it by this.")
@click.option("--clone", is_flag=True, help="Copy config.yaml and SOUL.md too; keys are never copied.")
@click.option("--clone-from", default=None, metavar="NAME", help="The same from that profile.")
@click.option("--no-alias", is_flag=True, hidden=True)
@click.option("--no-skills", is_flag=True, hidden=True)
@refused(everything="--clone-all", runtime="--runtime")
@_json
@click.pass_context
def create(
    context: click.Context, /, name: str, description: str, clone: bool, clone_from: str | None, as_json: bool, **_: Any
) -> None:
    """Make a profile. Model, providers and keys are those of the profile in use, until it has its own."""
    origin = named_profile(context, clone_from)
    description = " ".join(description.split())
    home = create_profile(origin, name, description=description, clone=clone or clone_from is not None)
    found = standing(home, home_of(context).profile, options_of(context))
    if as_json:
        print_json(found)
        return
    click.echo(f"created {name} in {home.path}")
    click.echo(f"  runs on {printable(runs_on(found))}")
    if found.trouble:
        click.echo(
            f"hermes: {name} has nothing to run on; `hermes setup` for all, `hermes -p {name} setup` for it alone",
            err=True,
        )
    if not description:
        click.echo(f'  say what it is good at, so that work finds it: hermes profile describe {name} --text "…"')


@profile.command("list", epilog="\b\nExamples:\n  hermes profile list\n  hermes profile list --json")
@_json
@click.pass_context
def list_(context: click.Context, /, as_json: bool) -> None:
    """List the profiles; `*` marks the one in use."""
    here = home_of(context)
    table = [standing(here.of(name), here.profile, options_of(context)) for name in profile_names(here.root)]
    if as_json:
        print_json({"profiles": table})
        return
    lines = [
        ("*" if each.active else "", each.name, "-" if each.trouble else each.model or "?", each.description or "-")
        for each in table
    ]
    click.echo(rows([("", "NAME", "MODEL", "GOOD AT"), *lines], indent=""))


@profile.command("show", epilog="\b\nExamples:\n  hermes profile show coder\n  hermes profile show coder --json")
@click.argument("name", required=False)
@_json
@click.pass_context
def show(context: click.Context, /, name: str | None, as_json: bool) -> None:
    """Show a profile (the one in use): its folder, what it runs on, what it inherits."""
    home = named_profile(context, name)
    found = standing(home, home_of(context).profile, options_of(context))
    if as_json:
        print_json(found)
        return
    table = [
        ("profile", found.name + (" (in use)" if found.active else "")),
        ("good at", found.description or "(no description set)"),
        ("folder", found.path),
        ("runs on", runs_on(found)),
        ("inherits", f"from {found.inherits}: model, providers, keys" if found.inherits else "nothing"),
        ("settings", str(home.config_file) if home.config_file.is_file() else "none of its own"),
        ("alias", str(alias_of(home) or "none")),
        ("persona", str(home.persona_file) if found.persona else f"none ({home.persona_file} would be it)"),
    ]
    click.echo(rows(table, indent=""))


@profile.command("use", epilog="\b\nExamples:\n  hermes profile use coder\n  hermes profile use default")
@click.argument("name")
@_json
@click.pass_context
def use(context: click.Context, /, name: str, as_json: bool) -> None:
    """Use a profile from now on wherever none is named with -p."""
    root = find_home(os.environ, DEFAULT_PROFILE)
    choose_profile(root.of(name if name == DEFAULT_PROFILE else check_profile_name(name)))
    if as_json:
        print_json({"profile": name})
        return
    click.echo(f"{name} is used from now on; -p NAME names another one for a single command")


@profile.command("delete", epilog="\b\nExamples:\n  hermes profile delete coder\n  hermes profile delete coder -y")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_json
@click.pass_context
def delete(context: click.Context, /, name: str, yes: bool, as_json: bool) -> None:
    """Delete a profile with its settings, keys and sessions. Refused while it works on a card or is open somewhere."""
    home = named_profile(context, name)
    if home.profile != DEFAULT_PROFILE and not heirs(home):
        check_idle(context, home)
        question = f"Delete {home.path} with all sessions of {name}?"
        agree(question, "Nothing was deleted", yes=yes, as_json=as_json)
    there = alias_of(home)
    delete_profile(home)
    if there is not None:
        there.unlink(missing_ok=True)
    if as_json:
        print_json({"deleted": name, "path": home.path})
    else:
        click.echo(f"deleted {name} ({home.path})")


for _command in (describe, rename, export, import_, alias, install, update, info):
    profile.add_command(_command)
