"""`hermes kanban import|export`: cards from another program's board, and the work of a board as training rows.

A row is one conversation: of a run's own task, or of a child it delegated to. `tree_id` is the same for all cards that
hang together, `card_id` and `needs` say how they do, `parent_id` is the task above within a run; so the whole work can
be put together again. What stands in no journal of this home (runs of other hosts, removed sessions) is counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec

from hermes.batch.export.conversation import messages
from hermes.batch.export.openai import chat_message
from hermes.chat.render import printable
from hermes.chat.sessions_export import write_document
from hermes.chat.sessions_read import NotFound, Whole, read_whole
from hermes.cli.kanban_parts import OpenedBoard, changing, open_named
from hermes.cli.screens import print_json
from hermes.config import Home
from hermes.core.codec import encode_json
from hermes.credentials.redact import Redactor
from hermes.kanban.card import Card, Link, Run
from hermes.kanban.foreign import import_foreign
from hermes.kanban.reading import CardFilter

__all__ = ["export", "groups", "import_"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command(
    "import", epilog="\b\nExamples:\n  hermes kanban import ~/.hermes/kanban.db\n  hermes kanban import old.db --json"
)
@click.argument("path")
@_json
@click.pass_context
def import_(context: click.Context, /, path: str, as_json: bool) -> None:
    """Copy cards, links, comments and ended runs of another program's board. Its file is only read.

    Ids stay, and cards that are here already are left alone, so it can be done again.
    """
    opened = changing(context)
    with opened.board as board:
        found = import_foreign(board, Path(os.path.expanduser(path)), author=opened.author)
    if as_json:
        print_json(found)
        return
    click.echo(
        f"{found.cards} cards copied ({found.known} were here), {found.links} links, {found.comments} comments, "
        f"{found.runs} runs"
    )
    for note in found.notes:
        click.echo(f"hermes: {printable(note)}", err=True)


class _Exported(msgspec.Struct, frozen=True, kw_only=True):
    """How much was written, and what was left out, by reason."""

    path: str
    rows: int
    cards: int
    trees: int
    left_out: dict[str, int]


@click.command(
    epilog="\b\nExamples:\n  hermes kanban export board.jsonl\n  hermes kanban export board.jsonl --root t_1a2b3c4d\n"
    "  hermes kanban export - --all"
)
@click.argument("path")
@click.option("--root", default=None, metavar="CARD", help="Only that card and all it needs.")
@click.option("--all", "everything", is_flag=True, help="Cards that are not done too, and runs that failed.")
@_json
@click.pass_context
def export(context: click.Context, /, path: str, root: str | None, everything: bool, as_json: bool) -> None:
    """Write the conversations of finished cards as linked rows (JSON lines); - is stdout."""
    opened = open_named(context)
    with opened.board as board:
        cards = {card.id: card for card in board.cards(CardFilter(archived=True, sort="created"))}
        links = board.all_links()
        top = board.find(root).id if root else None
        trees = groups(cards, links, top)
        runs = {card_id: board.runs(card_id) for card_id in trees if everything or cards[card_id].status == "done"}
    left: Counter[str] = Counter()
    redactor = Redactor(opened.sources.secrets())
    rows = list(_rows(opened, cards, links, trees, runs, left, everything=everything))
    text = "".join(redactor.text(encode_json(row).decode()) + "\n" for row in rows)
    if path == "-":
        click.echo(text, nl=False)
        return
    write_document(Path(path), text)
    told = _Exported(
        path=path,
        rows=len(rows),
        cards=len({row["card_id"] for row in rows}),
        trees=len({row["tree_id"] for row in rows}),
        left_out=dict(left),
    )
    if as_json:
        print_json(told)
        return
    click.echo(f"{told.rows} rows of {told.cards} cards in {path}")
    for reason, count in left.items():
        click.echo(f"  {count} × {reason}")


def groups(cards: Mapping[str, Card], links: Iterable[Link], top: str | None = None) -> dict[str, str]:
    """The tree each card belongs to, named by its last card (which needs the others); with `top` only that one's."""
    above: dict[str, list[str]] = {}
    near: dict[str, list[str]] = {}
    for link in links:
        above.setdefault(link.child_id, []).append(link.parent_id)
        near.setdefault(link.child_id, []).append(link.parent_id)
        near.setdefault(link.parent_id, []).append(link.child_id)
    if top is not None:
        return dict.fromkeys(_reached(top, above), top)
    needed = {link.parent_id for link in links if link.kind == "needs"}
    found: dict[str, str] = {}
    for card_id in cards:
        if card_id not in found:
            together = _reached(card_id, near)
            name = next((each for each in together if each not in needed), card_id)
            found.update(dict.fromkeys(together, name))
    return found


def _reached(start: str, edges: Mapping[str, Sequence[str]]) -> list[str]:
    found, waiting = {start: None}, [start]
    for each in waiting:
        fresh = [other for other in edges.get(each, ()) if other not in found]
        found.update(dict.fromkeys(fresh))
        waiting += dict.fromkeys(fresh)
    return list(found)


def _rows(
    opened: OpenedBoard, cards: Mapping[str, Card], links: Sequence[Link], trees: Mapping[str, str],
    runs: Mapping[str, Sequence[Run]], left: Counter[str], *, everything: bool,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    home, here = opened.sources.loaded.home, opened.board.here
    for card_id, attempts in runs.items():
        card = cards[card_id]
        done: set[str] = set()
        for run in reversed(attempts):  # a session that was gone on with is written once, with the run that ended it
            if run.session_id is None or run.profile is None:
                left["runs without a session (done by hand, or never begun)"] += 1
            elif run.home_id != here.home_id:
                left["runs of another host or home: export them there"] += 1
            elif run.session_id not in done and (everything or run.outcome in ("completed", "review_requested")):
                done.add(run.session_id)
                whole = _whole(home.of(run.profile), run.session_id)
                if whole is None:
                    left["runs whose session was removed"] += 1
                else:
                    yield from _conversations(card, run, whole, trees[card_id], links)


def _whole(home: Home, session_id: str) -> Whole | None:
    try:
        return anyio.run(read_whole, home, session_id)
    except NotFound:
        return None


def _conversations(card: Card, run: Run, whole: Whole, tree_id: str, links: Sequence[Link]) -> Iterator[dict[str, Any]]:
    needs = [link.parent_id for link in links if link.child_id == card.id and link.kind == "needs"]
    for task in whole.tasks:
        said = [chat_message(message) for message in messages(whole.entries[task.task_id])]
        if not said:
            continue
        yield {
            "tree_id": tree_id,
            "card_id": card.id,
            "needs": needs,
            "run_id": run.id,
            "step": run.step,
            "profile": run.profile,
            "outcome": run.outcome,
            "task_id": task.task_id,
            "parent_id": task.parent_id,
            "depth": task.depth,
            "goal": card.title if task.parent_id is None else task.goal,
            "completed": task.state == "completed",
            "messages": said,
            "model": whole.row.model,
        }
