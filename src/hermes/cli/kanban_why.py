"""`hermes kanban why`, `doctor` and `pause`: what holds a card or the board up, and the command that cures it."""

from __future__ import annotations

import click
import msgspec

from hermes.cli.kanban_parts import OpenedBoard, changing, open_named
from hermes.kanban.board_lock import BoardLock
from hermes.kanban.diagnosis import Finding, examine
from hermes.kanban.home import profile_names
from hermes.kanban.reasons import serving, when
from hermes.kanban.reasons import why as reason_of
from hermes.kanban.run_process import RunFiles

__all__ = ["doctor", "pause", "why"]


@click.command(epilog="\b\nExamples:\n  hermes kanban why t_1a2b\n  hermes kanban why t_1a2b --json")
@click.argument("card")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def why(context: click.Context, /, card: str, as_json: bool) -> int:
    """Say why a card is not worked on, and the command that cures it."""
    opened = open_named(context)
    with opened.board as board:
        view = board.show(card)
        reason = reason_of(board, view, profile_names(opened.sources.loaded.home), RunFiles(opened.folder / "runs"))
    if as_json:
        click.echo(msgspec.json.encode({"status": view.task.status, **msgspec.to_builtins(reason)}).decode())
        return 0
    click.echo(f"{view.task.id} is {view.task.status}: {reason.detail}")
    if reason.since:
        click.echo(f"since {when(reason.since)}")
    if reason.cure:
        click.echo(f"cure: {reason.cure}")
    return 0


@click.command(epilog="\b\nExamples:\n  hermes kanban doctor\n  hermes kanban doctor --json")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def doctor(context: click.Context, /, as_json: bool) -> int:
    """Look at everything that could hold the board up. Exit code 1 where something does."""
    opened = open_named(context)
    with opened.board as board:
        holder = BoardLock(opened.folder / "dispatcher.lock").holder()
        found = examine(
            board,
            profiles=profile_names(opened.sources.loaded.home),
            folder=opened.folder,
            served=bool(serving(board)) or holder is not None,
        )
    for each in found:
        click.echo(msgspec.json.encode(each).decode() if as_json else _line(each))
    if not found and not as_json:
        click.echo(f"the board {opened.slug} is in order: {_limits(opened)}")
    return 1 if any(each.bad for each in found) else 0


def _line(found: Finding) -> str:
    mark = "✗" if found.bad else "·"
    return f"{mark} {found.what}" + (f"\n    {found.cure}" if found.cure else "")


def _limits(opened: OpenedBoard) -> str:
    return opened.sources.loaded.settings.kanban.limits


@click.command(
    epilog="\b\nExamples:\n  hermes kanban pause --reason 'the provider is down'\n  hermes kanban pause --off"
)
@click.option("--off", is_flag=True, help="Start workers again.")
@click.option("--reason", default="", metavar="TEXT", help="What `why` says meanwhile.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def pause(context: click.Context, /, off: bool, reason: str, as_json: bool) -> int:
    """Start no more workers on the board; those that run go on."""
    opened = changing(context)
    with opened.board as board:
        if off:
            board.set_meta({"paused": None, "resting": None})
            board.note("reconciled", author=opened.author, paused=None)
        else:
            board.set_meta({"paused": f"paused by {opened.author}" + (f": {reason}" if reason else "")})
    if as_json:
        click.echo(msgspec.json.encode({"board": opened.slug, "paused": not off}).decode())
        return 0
    click.echo("workers are started again" if off else "paused; `hermes kanban pause --off` goes on")
    return 0
