"""`hermes profile rename`: another name for a profile, on its boards and for its command too; and finishing one that
was cut off, which the next command does, whichever it is."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from hermes.chat.render import printable
from hermes.cli.options import GlobalOptions, options_of, sources_in
from hermes.cli.profile_moving import alias_of, write_alias
from hermes.cli.profile_parts import check_idle, named_profile
from hermes.cli.screens import print_json
from hermes.config import Home
from hermes.config.home import DEFAULT_PROFILE
from hermes.config.profile_renaming import Renaming, finishing, renaming
from hermes.core.errors import HermesError, OperatorError, TryLater
from hermes.kanban.board_lock import BoardLock
from hermes.kanban.home import open_boards

__all__ = ["finish_renaming", "rename"]


@click.command(
    epilog="\b\nExamples:\n  hermes profile rename coder builder\n  hermes profile rename coder builder --json"
)
@click.argument("old")
@click.argument("new")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def rename(context: click.Context, /, old: str, new: str, as_json: bool) -> None:
    """Give a profile another name. Its cards, profiles that inherit from it, and settings that name it follow."""
    home = named_profile(context, old)
    options = options_of(context)
    if home.profile != DEFAULT_PROFILE:
        check_idle(context, home, moves=True)
        _refuse_served(home, options)
    there = alias_of(home)
    with renaming(home, new, str(there or "")) as (moved, wanted):
        cards = _follow(moved, wanted, options)
    if as_json:
        print_json({"profile": new, "path": moved.path, "cards": cards, "alias": there, "followed": wanted.followed})
        return
    click.echo(f"{old} is {new} now ({moved.path})")
    for line in wanted.followed:
        click.echo(f"  {line}")
    if cards:
        click.echo(f"  {len(cards)} open card{' is' if len(cards) == 1 else 's are'} for {new} now")


def _root(home: Home, options: GlobalOptions) -> tuple[Home, GlobalOptions]:
    return home.of(DEFAULT_PROFILE), msgspec.structs.replace(options, profile=DEFAULT_PROFILE)


def _refuse_served(home: Home, options: GlobalOptions) -> None:
    """Raises `OperatorError` while a dispatcher runs as this profile: it would start planners by the old name."""
    loaded = sources_in(*_root(home, options), os.environ).loaded
    boards = open_boards(loaded.home, loaded.settings)
    for name in boards.existing():
        holder = BoardLock(boards.folder(name) / "dispatcher.lock").holder()
        if holder is not None and ("-p", home.profile) in zip(holder.arguments, holder.arguments[1:], strict=False):
            raise OperatorError(
                f"process {holder.pid} serves the board {name} as {home.profile}: `hermes kanban --board {name} daemon "
                "--stop` ends it. Nothing was changed."
            )


def _follow(moved: Home, wanted: Renaming, options: GlobalOptions) -> list[str]:
    """Bring the new name to the boards of the home and to the profile's command; returns the open cards."""
    loaded = sources_in(*_root(moved, options), os.environ).loaded
    boards = open_boards(loaded.home, loaded.settings)
    cards: list[str] = []
    for name in boards.existing():
        with boards.open(name) as board:
            cards += board.rename_profile(wanted.old, wanted.new, author=wanted.new)
    if wanted.alias:
        write_alias(moved, Path(wanted.alias))
    return cards


def finish_renaming(home: Home) -> None:
    """Finish a rename that was cut off, and say so; one that cannot be finished yet is said and left for later."""
    try:
        with finishing(home) as found:
            if found is not None:
                _follow(*found, GlobalOptions())
                told = f"the rename of {found[1].old} to {found[1].new}, which was cut off, is finished"
                click.echo(f"hermes: {told}", err=True)
    except TryLater:
        return  # whoever renames is still at it
    except HermesError as error:
        click.echo(printable(f"hermes: a rename that was cut off cannot be finished yet: {error}"), err=True)
