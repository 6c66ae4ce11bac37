"""`hermes kanban init|boards|attach|attachments|attachment|detach`: the boards of a home, and files of cards."""

from __future__ import annotations

import mimetypes
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import click
import msgspec

from hermes.chat.render import size_text
from hermes.cli.agreeing import agree
from hermes.cli.kanban_parts import changing, open_named, refuse_worker
from hermes.cli.options import open_sources, options_of
from hermes.cli.screens import print_json, rows
from hermes.core.errors import OperatorError
from hermes.kanban.boards import Boards
from hermes.kanban.home import open_boards

__all__ = ["attach", "attach_rm", "attachments", "boards", "init"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _boards(context: click.Context) -> Boards:
    loaded = open_sources(options_of(context)).loaded
    return open_boards(loaded.home, loaded.settings)


def _own_name(name: str, slug: str) -> str:
    return "" if name == slug else name


def _place(found: Boards, slug: str) -> str:
    location = found.location(slug)
    return str(location.path) if location.path is not None else "PostgreSQL"


@click.command(epilog="\b\nExample:\n  hermes kanban init")
@_json
@click.pass_context
def init(context: click.Context, /, as_json: bool) -> None:
    """Make the board that is meant, if it is not there, and say where it is."""
    opened = open_named(context)
    opened.board.close()
    where = _place(opened.boards, opened.slug)
    limits = opened.sources.loaded.settings.kanban.limits
    if as_json:
        print_json({"board": opened.slug, "place": where, "folder": opened.folder, "limits": limits})
    else:
        click.echo(f"the board {opened.slug} is {where}; {limits}")


class _Boards(click.Group):
    """The commands, also by the other names that people know them by."""

    other_names: ClassVar = {"ls": "list", "use": "switch", "current": "show"}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.other_names.get(cmd_name, cmd_name))


@click.group(cls=_Boards,
             epilog="\b\nExamples:\n  hermes kanban boards list\n  hermes kanban boards create web --workdir /src/web\n"
             "  hermes kanban boards switch web")  # fmt: skip
def boards() -> None:
    """The boards of this home, one a project. All profiles share them."""


@boards.command("list", epilog="\b\nExamples:\n  hermes kanban boards list\n  hermes kanban boards list --json")
@_json
@click.pass_context
def list_(context: click.Context, /, as_json: bool) -> None:
    """List the boards with their cards; `*` marks the one that is meant here."""
    found = _boards(context)
    current = found.current(context.meta.get("hermes.kanban.board"))
    existing = set(found.existing())
    table: list[dict[str, Any]] = []
    for slug in found.names():
        counts: dict[str, int] = {}
        if slug in existing:
            with found.open(slug) as board:
                counts = {name: count for name, count in board.stats().by_status.items() if count}
        info = found.info(slug)
        table.append(
            {**msgspec.to_builtins(info), "current": slug == current, "place": _place(found, slug), "cards": counts}
        )
    if as_json:
        print_json({"boards": table})
        return
    lines = [
        (
            "*" if each["current"] else "",
            each["slug"],
            ", ".join(f"{count} {name}" for name, count in each["cards"].items()) or "empty",
            ": ".join(text for text in (_own_name(each["name"], each["slug"]), each["description"]) if text),
        )
        for each in table
    ]
    click.echo(rows(lines, indent=""))


@boards.command("create", epilog='\b\nExamples:\n  hermes kanban boards create web\n'
                '  hermes kanban boards create web --workdir /src/web --switch')  # fmt: skip
@click.argument("slug")
@click.option("--name", default="", metavar="TEXT", help="How people call it.")
@click.option("--description", default="", metavar="TEXT")
@click.option("--workdir", default=None, metavar="DIR", help="Repository of worktree cards that name none.")
@click.option("--switch", "use", is_flag=True, help="Use it from now on.")
@_json
@click.pass_context
def create(
    context: click.Context, /, slug: str, name: str, description: str, workdir: str | None, use: bool, as_json: bool
) -> None:
    """Make a board."""
    refuse_worker()
    found = _boards(context)
    folder = os.path.abspath(os.path.expanduser(workdir)) if workdir else None
    with found.create(slug, name=name, description=description, default_workdir=folder) as board:
        slug = board.location.slug
    if use:
        found.switch(slug)
    if as_json:
        print_json(found.info(slug))
        return
    click.echo(f"the board {slug} is {_place(found, slug)}")
    if not use:
        click.echo(f"  use it: hermes kanban boards switch {slug}, or --board {slug} for one command")


@boards.command("switch", epilog="\b\nExample:\n  hermes kanban boards switch web")
@click.argument("slug")
@_json
@click.pass_context
def switch(context: click.Context, /, slug: str, as_json: bool) -> None:
    """Use a board from now on wherever none is named."""
    refuse_worker()
    found = _boards(context)
    chosen = found.switch(slug)
    now = found.current()
    if as_json:
        print_json({"board": chosen, "current": now})
        return
    click.echo(f"{chosen} is used from now on; --board names another one for a single command")
    if now != chosen:
        click.echo(f"hermes: here {now} is used all the same: HERMES_KANBAN_BOARD or kanban.board says so", err=True)


@boards.command("show", epilog="\b\nExample:\n  hermes kanban boards show")
@click.argument("slug", required=False)
@_json
@click.pass_context
def show(context: click.Context, /, slug: str | None, as_json: bool) -> None:
    """Show the board that is meant, and where it is."""
    found = _boards(context)
    name = found.current(slug or context.meta.get("hermes.kanban.board"))
    info = found.info(name)
    if as_json:
        print_json({**msgspec.to_builtins(info), "place": _place(found, name), "folder": found.folder(name)})
        return
    called = _own_name(info.name, name)
    table = [("board", f"{name}: {called}" if called else name), ("description", info.description or "-"),
             ("rows", _place(found, name)),
             ("folder", str(found.folder(name))), ("repository", info.default_workdir or "none named")]  # fmt: skip
    click.echo(rows(table, indent=""))


@boards.command("rename", epilog='\b\nExample:\n  hermes kanban boards rename web "The web shop"')
@click.argument("slug")
@click.argument("name")
@_json
@click.pass_context
def rename(context: click.Context, /, slug: str, name: str, as_json: bool) -> None:
    """Change how people call a board. What commands call it stays: cards and workers hang on it."""
    refuse_worker()
    found = _boards(context)
    info = found.change(found.current(slug), name=name.strip() or found.current(slug))
    if as_json:
        print_json(info)
    else:
        click.echo(f"the board {info.slug} is called {info.name}")


@boards.command("set-default-workdir", epilog="\b\nExample:\n  hermes kanban boards set-default-workdir web /src/web")
@click.argument("slug")
@click.argument("folder")
@_json
@click.pass_context
def workdir(context: click.Context, /, slug: str, folder: str, as_json: bool) -> None:
    """Say in which repository worktree cards of a board work if they name none; `none` forgets it."""
    refuse_worker()
    found = _boards(context)
    path = None if folder == "none" else os.path.abspath(os.path.expanduser(folder))
    info = found.change(found.current(slug), default_workdir=path)
    if as_json:
        print_json(info)
        return
    click.echo(f"worktree cards of {info.slug} work in {info.default_workdir or 'the repository that each names'}")


@boards.command("rm", epilog="\b\nExamples:\n  hermes kanban boards rm web\n  hermes kanban boards rm web --delete -y")
@click.argument("slug")
@click.option("--delete", is_flag=True, help="For good; else it is put away under boards/_archived.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_json
@click.pass_context
def remove(context: click.Context, /, slug: str, delete: bool, yes: bool, as_json: bool) -> None:
    """Put a board away, or delete it. Refused while its workers run."""
    refuse_worker()
    found = _boards(context)
    name = found.current(slug)
    if delete:
        agree(f"Delete the board {name} with all its cards?", "Nothing was deleted", yes=yes, as_json=as_json)
    target = found.remove(name, delete=delete)
    if as_json:
        print_json({"board": name, "deleted": delete, "archived": target})
        return
    click.echo(f"deleted {name}" if target is None else f"{name} is put away in {target}")


@click.command(
    epilog="\b\nExamples:\n  hermes kanban attach t_1a2b3c4d spec.pdf\n  hermes kanban attach t_1a - --name log.txt"
)
@click.argument("card")
@click.argument("file")
@click.option("--name", default="", metavar="NAME", help="Under this name; that of the file.")
@_json
@click.pass_context
def attach(context: click.Context, /, card: str, file: str, name: str, as_json: bool) -> None:
    """Keep a file (up to 25 MB; - is stdin) with a card, where its workers find it."""
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    name = name or (Path(file).name if file != "-" else "stdin")
    opened = changing(context)
    with opened.board as board:
        media = mimetypes.guess_type(name)[0] or ""
        found = board.attach(card, name, data, author=opened.author, media_type=media)
    if as_json:
        print_json(found)
    else:
        click.echo(f"attachment {found.id}: {found.name}, {size_text(found.size)}")


@click.command("attach-rm", epilog="\b\nExample:\n  hermes kanban attach-rm t_1a2b3c4d spec.pdf")
@click.argument("card")
@click.argument("name")
@_json
@click.pass_context
def attach_rm(context: click.Context, /, card: str, name: str, as_json: bool) -> None:
    """Remove a file of a card, by its name or number."""
    opened = changing(context)
    with opened.board as board:
        board.detach(card, name, author=opened.author)
        found = board.attachments(card)
    if as_json:
        print_json({"attachments": found})
    else:
        click.echo(f"removed {name}; {len(found)} files are left")


@click.command(
    epilog="\b\nExamples:\n  hermes kanban attachments t_1a2b3c4d\n"
    "  hermes kanban attachments t_1a --get spec.pdf\n  hermes kanban attachments t_1a --remove spec.pdf"
)
@click.argument("card")
@click.option("--get", "wanted", default=None, metavar="NAME", help="Write that one (by name or number).")
@click.option("--remove", "unwanted", default=None, metavar="NAME", help="Remove that one.")
@click.option("-o", "--output", default=None, metavar="PATH", help="Where --get writes; - is stdout.")
@_json
@click.pass_context
def attachments(
    context: click.Context, /, card: str, wanted: str | None, unwanted: str | None, output: str | None, as_json: bool
) -> None:
    """List the files of a card; --get writes one, --remove removes one."""
    opened = changing(context) if unwanted is not None else open_named(context)
    with opened.board as board:
        if unwanted is not None:
            board.detach(card, unwanted, author=opened.author)
        data = board.attachment(card, wanted) if wanted is not None else None
        found = board.attachments(card)
    if wanted is not None and data is not None:
        name = next((each.name for each in found if wanted in (each.name, str(each.id))), wanted)
        _write(output or name, data)
    elif as_json:
        print_json({"attachments": found})
    else:
        table = [(str(each.id), size_text(each.size), each.created_by, each.name) for each in found]
        click.echo(rows(table, indent="") or "no attachments")


def _write(path: str, data: bytes) -> None:
    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    if target.exists():
        raise OperatorError(f"{target} exists; name another place with -o. Nothing was written.")
    target.write_bytes(data)
    click.echo(f"{target}, {size_text(len(data))}")
