"""`hermes kanban gc`, `repair` and `heartbeat`: keeping a board in order by hand."""

from __future__ import annotations

import click

from hermes.chat.render import printable
from hermes.cli.kanban_parts import changing
from hermes.cli.screens import print_json
from hermes.kanban.cleaning import clean
from hermes.store.copying import copies

__all__ = ["gc", "heartbeat", "repair"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_days = click.IntRange(min=1)


@click.command(
    epilog="\b\nExamples:\n  hermes kanban gc\n"
    "  hermes kanban gc --event-retention-days 7 --log-retention-days 7 --json"
)
@click.option("--event-retention-days", "event_days", type=_days, default=30, show_default=True, metavar="N",
              help="Keep events of ended cards so long.")  # fmt: skip
@click.option("--log-retention-days", "log_days", type=_days, default=30, show_default=True, metavar="N",
              help="Keep logs of ended cards so long.")  # fmt: skip
@_json
@click.pass_context
def gc(context: click.Context, /, event_days: int, log_days: int, as_json: bool) -> None:
    """Remove what is left of cards that ended long ago: events, logs, scratch folders. Cards and results stay.

    A dispatcher does it by itself, by `kanban.keep_days`.
    """
    opened = changing(context)
    with opened.board as board:
        found = clean(board, opened.folder, event_days=event_days, log_days=log_days)
    if as_json:
        print_json(found)
        return
    click.echo(
        f"removed {found.rows} events and answers, {found.logs} logs ({found.log_bytes:,} bytes), "
        f"{len(found.folders)} scratch folders, {found.run_files} files of runs"
    )


@click.command(epilog="\b\nExamples:\n  hermes kanban repair --dry-run\n  hermes kanban repair --json")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be.")
@_json
@click.pass_context
def repair(context: click.Context, /, dry_run: bool, as_json: bool) -> int:
    """Put right what contradicts itself in a board: claims without a run, cards that wait for nothing, money set aside.

    Exit code 1: the file itself is damaged; nothing was changed, and the copies of it are named.
    """
    opened = changing(context)
    with opened.board as board:
        found = board.repair(dry_run=dry_run)
        path = board.location.path
    damaged = any(not each.mended for each in found)
    kept = [str(each.path) for each in copies(path)] if damaged and path is not None else []
    if as_json:
        print_json({"found": found, "damaged": damaged, "dry_run": dry_run, "copies": kept})
        return int(damaged)
    for each in found:
        click.echo(printable(f"{each.card or 'board'}: {each.what}"))
    if damaged:
        click.echo(f"hermes: nothing was changed. Move {path} aside and put a copy in its place:", err=True)
        for copy in kept:
            click.echo(f"  {copy}", err=True)
        if not kept:
            click.echo("  there is none beside it", err=True)
    elif not found:
        click.echo("nothing contradicts itself")
    elif dry_run:
        click.echo("nothing was changed; without --dry-run it is")
    return int(damaged)


@click.command(
    epilog="\b\nExamples:\n  hermes kanban heartbeat t_1a2b3c4d\n"
    '  hermes kanban heartbeat t_1a2b3c4d --note "half of it is done"'
)
@click.argument("card")
@click.option("--note", default="", metavar="TEXT", help="Where it stands, in a line.")
@_json
@click.pass_context
def heartbeat(context: click.Context, /, card: str, note: str, as_json: bool) -> None:
    """Say that you still work on a card you claimed. Workers send their own signs of life."""
    opened = changing(context)
    with opened.board as board:
        found = board.heartbeat_by_hand(card, author=opened.author, note=note)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found.id} is {found.status}: noted")
