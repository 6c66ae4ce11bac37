"""`hermes sessions list|show|stats`: what earlier conversations were, read from the journal. Nothing is changed here;
`sessions_change.py` has the commands that export, rename and remove."""

from __future__ import annotations

import anyio
import click
import msgspec

from hermes.chat.render import fitted, one_line, printable, size_text, when
from hermes.chat.sessions_read import journal, plain_task, read_whole, said
from hermes.cli.options import home_of
from hermes.cli.screens import print_json, rows, terminal_width
from hermes.cli.sessions_change import delete, export, prune, rename
from hermes.config import Home
from hermes.core.messages import Entry
from hermes.observe.retention import disk_size
from hermes.observe.transcript import LIVE
from hermes.store.ops import SessionRow, StoreCounts

__all__ = ["listed", "sessions"]

#: Columns of a terminal below which the list leaves these out.
_NEED = {"last used": 50, "source": 70, "model": 70}


@click.group(
    epilog="\b\nExamples:\n  hermes sessions list\n  hermes sessions show latest\n"
    "  hermes sessions export latest -o it.md"
)
def sessions() -> None:
    """Look at earlier conversations, export and remove them."""


for _command in (export, rename, delete, prune):
    sessions.add_command(_command)


@sessions.command("list", epilog="\b\nExamples:\n  hermes sessions list --limit 5\n  hermes sessions list --json")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many, newest first.")
@click.option("--source", default=None, metavar="TAG", help="Only those of this source, such as cli.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def list_(context: click.Context, /, limit: int, source: str | None, as_json: bool) -> None:
    """List sessions, newest first."""
    found: list[SessionRow] = anyio.run(_sessions, home_of(context), limit, source)
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no sessions yet")
        return
    click.echo(listed(found, terminal_width()))


@sessions.command(
    "show", epilog="\b\nExamples:\n  hermes sessions show latest\n  hermes sessions show 20260225_14 --json"
)
@click.argument("session_id")
@click.option("--full", is_flag=True, help="Print tool results whole.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the session, its tasks, the entries of each.")
@click.pass_context
def show(context: click.Context, /, session_id: str, full: bool, as_json: bool) -> None:
    """Print a session: its tasks and what was said. The id may be shortened; `latest` is the newest."""
    whole = anyio.run(read_whole, home_of(context), session_id)
    row = whole.row
    if as_json:
        print_json(
            {
                "session": row,
                "tasks": [{**plain_task(task), "unseen": task.task_id in whole.unseen} for task in whole.tasks],
                "entries": {
                    task: [msgspec.to_builtins(entry) for entry in history] for task, history in whole.entries.items()
                },
            }
        )
        return
    click.echo(printable(f"{row.session_id}  {when(row.created_at)}  {row.model}  {row.title}".rstrip()))
    for task in whole.tasks:
        goal = one_line(task.goal, 100)
        mark = "  ● nobody saw this result" if task.task_id in whole.unseen else ""
        click.echo(f"\n{'  ' * task.depth}── {task.task_id} ({task.kind}, {task.state}) {goal}".rstrip() + mark)
        for entry in whole.entries[task.task_id]:
            for line in _lines(entry, full):
                click.echo(printable(f"{'  ' * task.depth}{line}"))


@sessions.command("stats", epilog="\b\nExamples:\n  hermes sessions stats\n  hermes sessions stats --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def stats(context: click.Context, /, as_json: bool) -> None:
    """Say how many sessions and tasks there are and what they take on the disk."""
    home = home_of(context)
    counts: StoreCounts = anyio.run(_counts, home)
    sizes = {
        "journal": sum(disk_size(home.database.with_name(home.database.name + end)) for end in ("", "-wal", "-shm")),
        "task_files": disk_size(home.tasks_dir),
        "transcripts": disk_size(home.path.joinpath(*LIVE)),
    }
    if as_json:
        print_json({**msgspec.structs.asdict(counts), "bytes": sizes})
        return
    used = f"{when(counts.oldest)} to {when(counts.newest)}" if counts.oldest and counts.newest else "never"
    click.echo(
        rows(
            [
                ["sessions", f"{counts.sessions}, last used {used}"],
                ["tasks", f"{counts.tasks}, {counts.unfinished} not ended, {counts.unseen} results nobody saw"],
                ["recorded", f"{counts.entries} messages, {counts.calls} tool calls, {counts.events} events"],
                ["on disk", ", ".join(f"{name.replace('_', ' ')} {size_text(size)}" for name, size in sizes.items())],
            ],
            indent="",
        )
    )


def listed(found: list[SessionRow], width: int | None) -> str:
    """A line for each session; what does not fit is cut off its end, never off an id. None for `width`: all fits."""
    names = ["session", "last used", "source", "model", "title"]
    table = [names]
    for row in found:
        model = row.model if width is None else one_line(row.model, 18)
        table.append([row.session_id, when(row.updated_at), row.source, model, one_line(row.title, 200)])
    left_out = [names.index(name) for name, need in _NEED.items() if width is not None and width < need]
    table = [[cell for number, cell in enumerate(line) if number not in left_out] for line in table]
    lines = rows(table, indent="").splitlines()
    return "\n".join(lines if width is None else [fitted(line, width) for line in lines])


async def _sessions(home: Home, limit: int, source: str | None) -> list[SessionRow]:
    if not home.database.exists():
        return []
    async with journal(home) as store:
        return await store.sessions(limit, source)


async def _counts(home: Home) -> StoreCounts:
    if not home.database.exists():
        return StoreCounts(sessions=0, tasks=0, unfinished=0, unseen=0, entries=0, calls=0, events=0)
    async with journal(home) as store:
        return await store.counts()


def _lines(entry: Entry, full: bool) -> list[str]:
    return [line for who, text in said(entry, full) for line in _marked(who, text)]


def _marked(who: str, text: str) -> list[str]:
    if not text:
        return []
    lines = printable(text).splitlines() or [""]
    gap = " " if who.endswith("→") else ": "
    return [f"{who}{gap}{lines[0]}", *(f"{' ' * (len(who) + len(gap))}{line}" for line in lines[1:])]
