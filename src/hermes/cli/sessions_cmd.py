"""`hermes sessions`: what earlier conversations were, read from the journal. Nothing is changed."""

from __future__ import annotations

from typing import Any

import anyio
import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text as Cell

from hermes.cli.options import home_of
from hermes.cli.screens import print_json, when
from hermes.config import Home
from hermes.core.codec import decode_entry
from hermes.core.errors import HermesError, UsageError
from hermes.core.messages import Assistant, Entry, Interrupted, Notice, Steer, Summary, Text, ToolResult, User
from hermes.store.ops import SessionRow, Store, TaskRow
from hermes.store.sqlite import open_store

__all__ = ["sessions"]

#: How far back a session is looked for by a part of its id.
_SEARCHED = 10_000


class _NotFound(HermesError):
    """There is no such session."""


@click.group(epilog="\b\nExamples:\n  hermes sessions list\n  hermes sessions show latest")
def sessions() -> None:
    """Look at earlier conversations."""


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
    table = Table("session", "last used", "source", "model", "title", box=None, pad_edge=False)
    for row in found:
        table.add_row(
            *(Cell(text) for text in (row.session_id, when(row.updated_at), row.source, row.model, row.title))
        )
    Console().print(table)


@sessions.command(
    "show", epilog="\b\nExamples:\n  hermes sessions show latest\n  hermes sessions show 20260225_14 --json"
)
@click.argument("session_id")
@click.option("--full", is_flag=True, help="Print tool results whole.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the session, its tasks, the entries of each.")
@click.pass_context
def show(context: click.Context, /, session_id: str, full: bool, as_json: bool) -> None:
    """Print a session: its tasks and what was said. The id may be shortened; `latest` is the newest."""
    row, tasks, histories = anyio.run(_session, home_of(context), session_id)
    if as_json:
        entries = {task: [msgspec.to_builtins(entry) for entry in history] for task, history in histories.items()}
        print_json({"session": row, "tasks": [_plain(task) for task in tasks], "entries": entries})
        return
    click.echo(f"{row.session_id}  {when(row.created_at)}  {row.model}  {row.title}".rstrip())
    for task in tasks:
        goal = " ".join(task.goal.split())[:100]
        click.echo(f"\n{'  ' * task.depth}── {task.task_id} ({task.kind}, {task.state}) {goal}".rstrip())
        for entry in histories[task.task_id]:
            for line in _said(entry, full):
                click.echo(f"{'  ' * task.depth}{line}")


async def _sessions(home: Home, limit: int, source: str | None) -> list[SessionRow]:
    # a listing must not make a journal where there is none
    if not home.database.exists():
        return []
    store = await open_store(home.database)
    try:
        return await store.sessions(limit, source)
    finally:
        await store.close()


async def _session(home: Home, wanted: str) -> tuple[SessionRow, list[TaskRow], dict[str, list[Entry]]]:
    if not home.database.exists():
        raise _NotFound(f"there are no sessions yet ({home.database} is missing).")
    store = await open_store(home.database)
    try:
        row = await _pick(store, wanted)
        tasks = await store.tasks(row.session_id)
        histories = {
            task.task_id: [decode_entry(body) for _, body in await store.entries(task.task_id)] for task in tasks
        }
        return row, tasks, histories
    finally:
        await store.close()


async def _pick(store: Store, wanted: str) -> SessionRow:
    exact = await store.session(wanted)
    if exact is not None:
        return exact
    rows = await store.sessions(1 if wanted == "latest" else _SEARCHED)
    found = rows if wanted == "latest" else [row for row in rows if row.session_id.startswith(wanted)]
    if not found:
        raise _NotFound(f"there is no session {wanted!r}. `hermes sessions list` shows them.")
    if len(found) > 1:
        names = ", ".join(row.session_id for row in found[:5])
        raise UsageError(f"{wanted!r} fits {len(found)} sessions: {names}. Write more of the id.")
    return found[0]


def _plain(task: TaskRow) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(task)
    row.pop("spec")
    end = row.pop("end")
    row["end"] = msgspec.json.decode(end) if end else None
    return row


def _said(entry: Entry, full: bool) -> list[str]:
    if isinstance(entry, Assistant):
        calls = [f"  → {call.name} {call.raw[:200]}" for call in entry.calls]
        return [*_marked("model", entry.text), *calls]
    if isinstance(entry, ToolResult):
        text = _text(entry.content)
        return _marked(f"  {entry.name}", text if full or len(text) <= 400 else text[:400] + " … (--full)")
    if isinstance(entry, User):
        return _marked("you" if entry.source == "user" else entry.source, _text(entry.content))
    if isinstance(entry, Steer):
        return _marked(f"steer from {entry.sender}", entry.text)
    if isinstance(entry, (Notice, Summary)):
        return _marked("notice" if isinstance(entry, Notice) else "summary", entry.text)
    assert isinstance(entry, Interrupted)
    return _marked("interrupted", entry.reason)


def _text(content: Any) -> str:
    return "".join(part.text if isinstance(part, Text) else "[image]" for part in content)


def _marked(who: str, text: str) -> list[str]:
    lines = _printable(text).splitlines() or [""]
    return [f"{who}: {lines[0]}", *(f"{' ' * (len(who) + 2)}{line}" for line in lines[1:])] if text else []


def _printable(text: str) -> str:
    # escape sequences in a stored tool result must not reach the terminal
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")
