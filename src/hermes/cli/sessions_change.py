"""`hermes sessions export|rename|delete|prune`: the commands that write or remove.

A session of a living process is never deleted; whether it lives is told by its lock, not by its age.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import click

from hermes.chat.render import printable, size_text, when
from hermes.chat.sessions_export import FORMATS, copy_files, files_of, rendered, write_document
from hermes.chat.sessions_read import NotFound, journal, pick, read_whole, renamed
from hermes.cli.options import home_of, open_sources, options_of
from hermes.cli.screens import print_json
from hermes.config import Home
from hermes.core.errors import HermesError, UsageError
from hermes.observe.retention import Keep, Pruned, Retention
from hermes.store.ops import SessionRow, TaskRow
from hermes.store.owner import is_gone

__all__ = ["delete", "export", "prune", "rename"]


class _StillRuns(HermesError):
    """The session belongs to a process that lives."""


class _Doomed(HermesError):
    """Something could not be removed."""


@click.command(
    epilog="\b\nExamples:\n  hermes sessions export latest\n  hermes sessions export 20260225_14 -o talk.md\n"
    "  hermes sessions export latest --format jsonl -o talk.jsonl --files"
)
@click.argument("session_id")
@click.option("-o", "--output", default="-", metavar="FILE", help="Where to write; `-` is stdout.  [default: -]")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default=None, help="By the ending of FILE, else Markdown."
)
@click.option("--files", is_flag=True, help="Copy the files of the tasks to FILE.files/ as well.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.pass_context
def export(
    context: click.Context, /, session_id: str, output: str, form: str | None, files: bool, as_json: bool
) -> None:
    """Write a session with its children as one document."""
    home = home_of(context)
    if files and output == "-":
        raise UsageError("--files needs -o FILE: the files are copied beside it.")
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} exclude each other. Give one of them.")
    whole = anyio.run(read_whole, home, session_id)
    found = files_of(home.tasks_dir, whole.row.session_id)
    ending = Path(output).suffix[1:].lower()
    chosen = "json" if as_json else form or (ending if ending in FORMATS else "md")
    text = rendered(whole, found, chosen)
    if output == "-":
        # what a tool brought back must not act on the terminal; a pipe gets it as it is
        click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
        return
    write_document(Path(output), text)
    if files:
        copy_files(home.tasks_dir, whole.row.session_id, Path(output + ".files"), found)
    more = f" and {len(found)} files in {output}.files" if files else ""
    click.echo(f"{whole.row.session_id}: {len(whole.tasks)} tasks in {output}{more}", err=True)


@click.command(epilog='\b\nExamples:\n  hermes sessions rename latest "Audit of the parser"')
@click.argument("session_id")
@click.argument("title")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def rename(context: click.Context, /, session_id: str, title: str, as_json: bool) -> None:
    """Give a session another title."""
    row = anyio.run(_rename, home_of(context), session_id, title)
    if as_json:
        print_json(row)
    else:
        click.echo(printable(f"{row.session_id}  {row.title}"))


@click.command(epilog="\b\nExamples:\n  hermes sessions delete 20260225_14\n  hermes sessions delete latest -y")
@click.argument("session_id")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, also where work is unfinished or a result was not seen.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; needs -y.")
@click.pass_context
def delete(context: click.Context, /, session_id: str, yes: bool, as_json: bool) -> None:
    """Delete a session with its children and their files. This cannot be undone."""
    home = home_of(context)
    row, facts = anyio.run(_facts, home, session_id)
    what = f"{row.session_id}  {when(row.updated_at)}  {row.title}".rstrip()
    details = f"{facts['tasks']} tasks, {size_text(facts['bytes'])} of files"
    for word, text in (("unfinished", "not ended"), ("unseen", "with a result nobody saw")):
        details += f", {facts[word]} {text}" if facts[word] else ""
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise UsageError(f"{what} ({details}) would be deleted for good. Add -y to do it.")
        click.echo(printable(f"{what}\n{details}"), err=True)
        if not click.confirm("Delete it for good?", err=True):
            click.echo("nothing was deleted", err=True)
            context.exit(1)
    size, failed = anyio.run(_delete, home, row.session_id)
    if as_json:
        print_json({"session_id": row.session_id, "tasks": facts["tasks"], "bytes": size, "failed": failed})
    else:
        click.echo(f"deleted {row.session_id}: {details}")
    if failed:
        raise _Doomed(f"these folders could not be removed: {', '.join(failed)}. Remove them by hand.")


@click.command(
    epilog="\b\nExamples:\n  hermes sessions prune --dry-run\n  hermes sessions prune --days 7\n"
    "  hermes sessions prune --json"
)
@click.option("--days", type=click.FloatRange(min=0), default=None, help="Age that goes; else store.keep_days.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def prune(context: click.Context, /, days: float | None, dry_run: bool, as_json: bool) -> None:
    """Remove sessions that were not used for a while, and old transcripts.

    Unfinished work and results nobody saw stay, however old. The same happens once a day when a run starts.
    """
    settings = open_sources(options_of(context)).loaded.require().store
    keep = Keep(sessions=settings.keep_days if days is None else days, transcripts=settings.transcript_days)
    done: Pruned = anyio.run(_prune, home_of(context), keep, dry_run)
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "sessions": [row.session_id for row in done.sessions],
                "transcripts": done.transcripts,
                "folders": done.folders,
                "failed": done.failed,
                "bytes": done.bytes,
                "kept": {"unfinished": done.unfinished, "unseen": done.unseen},
            }
        )
    else:
        _tell(done, keep, dry_run)
    if done.failed:
        raise _Doomed(f"these folders could not be removed: {', '.join(done.failed)}. Remove them by hand.")


def _tell(done: Pruned, keep: Keep, dry_run: bool) -> None:
    verb = "would remove" if dry_run else "removed"
    for row in done.sessions:
        click.echo(printable(f"{row.session_id}  {when(row.updated_at)}  {row.title}".rstrip()))
    others = len(done.transcripts) + len(done.folders)
    age = "sessions stay for ever (store.keep_days)" if keep.sessions is None else f"unused for {keep.sessions:g} days"
    click.echo(
        f"{verb} {len(done.sessions)} sessions ({age}), {others} other folders, {size_text(done.bytes)} of files"
    )
    if done.unfinished or done.unseen:
        click.echo(f"kept whatever their age: {done.unfinished} unfinished tasks, {done.unseen} results nobody saw")


async def _rename(home: Home, wanted: str, title: str) -> SessionRow:
    async with journal(home) as store:
        row = await pick(store, wanted)
        await renamed(store, row.session_id, title)
        return await pick(store, row.session_id)


async def _facts(home: Home, wanted: str) -> tuple[SessionRow, dict[str, int]]:
    """A session and what hangs on it. Raises _StillRuns where a living process has it."""
    async with journal(home) as store:
        row = await pick(store, wanted)
        tasks = await store.tasks(row.session_id)
        open_ = await _refuse_living(home, row.session_id, tasks)
        unseen = await store.unseen(row.session_id)
        size = await Retention(store, home, now=time.time).size(row.session_id)
        return row, {"tasks": len(tasks), "unfinished": open_, "unseen": len(unseen), "bytes": size}


async def _refuse_living(home: Home, session_id: str, tasks: Sequence[TaskRow]) -> int:
    """The number of tasks that have not ended. Raises _StillRuns where one belongs to a process that lives."""
    going = [task for task in tasks if task.ended_at is None]
    for owner in sorted({task.owner for task in going}):
        if not await anyio.to_thread.run_sync(is_gone, home.path, owner):
            raise _StillRuns(
                f"session {session_id} is not deleted: a process that works on it lives "
                f"({len(going)} tasks not ended). End it first."
            )
    return len(going)


async def _delete(home: Home, session_id: str) -> tuple[int, list[str]]:
    async with journal(home) as store:
        # Looked at again: a person may have thought about the question for long.
        await _refuse_living(home, session_id, await store.tasks(session_id))
        return await Retention(store, home, now=time.time).delete(session_id, unfinished=True)


async def _prune(home: Home, keep: Keep, dry_run: bool) -> Pruned:
    try:
        async with journal(home) as store:
            return await Retention(store, home, now=time.time).prune(keep, dry_run=dry_run)
    except NotFound:
        return Pruned()
