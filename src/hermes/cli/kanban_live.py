"""A goal's cards as they change: a live tree on a terminal, plain lines or JSON elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hermes.chat.card_text import MARKS
from hermes.chat.render import printable
from hermes.kanban.card import Card
from hermes.kanban.tree import Tree

__all__ = ["LiveBoard", "plain_lines"]

_STYLES = {"running": "bold cyan", "done": "green", "blocked": "bold red", "triage": "red", "review": "magenta"}
#: Cards that a live board shows at once.
ROWS = 30


class LiveBoard:
    """Shows a goal on stderr, as a tree that changes where `live`. Enter it."""

    def __init__(self, *, live: bool) -> None:
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=False) if live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, tree: Tree) -> None:
        """Draw the tree anew."""
        if self._live is not None:
            self._live.update(_table(tree), refresh=True)

    def line(self, text: str) -> None:
        """A change, where no tree is drawn."""
        if self._live is None:
            click.echo(text)

    def note(self, text: str) -> None:
        """A remark of the dispatcher."""
        if self._live is not None:
            self._console.print(Text(printable(text), style="dim"))
        else:
            click.echo(printable(text), err=True)


def _table(tree: Tree) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, expand=False)
    for _ in range(4):
        table.add_column(no_wrap=True, overflow="ellipsis")
    shown = tree.cards if len(tree.cards) <= ROWS else [c for c in tree.cards if c.status != "done"][-ROWS:]
    for card in shown:
        style = _STYLES.get(card.status, "")
        why = _why(card, tree)
        table.add_row(
            Text(f"{MARKS.get(card.status, ' ')} {card.status}", style=style),
            Text(card.id, style="dim"),
            Text(printable(card.title)[:70] + (f"   {printable(why)[:80]}" if why else "")),
            Text(card.assignee or "nobody", style="dim"),
        )
    done = sum(card.status in ("done", "archived") for card in tree.cards)
    table.add_row(Text(f"{done} of {len(tree.cards)} done", style="dim"))
    return table


def _why(card: Card, tree: Tree) -> str:
    if card.status == "blocked":
        return card.block_reason or card.last_failure_error or ""
    noted = tree.reasons.get(card.id)
    return noted.detail if noted is not None and card.status in ("ready", "review") else ""


def plain_lines(tree: Tree, seen: dict[str, str], as_json: bool) -> Iterator[str]:
    """A line for each card whose state changed since the last call; `seen` holds the states."""
    for card in tree.cards:
        if seen.get(card.id) == card.status:
            continue
        before = seen.get(card.id)
        seen[card.id] = card.status
        if as_json:
            change = {
                "type": "card", "task_id": card.id, "title": card.title, "assignee": card.assignee,
                "from": before, "status": card.status, "summary": card.summary if card.status == "done" else None,
            }  # fmt: skip
            yield msgspec.json.encode(change).decode()
            continue
        why = _why(card, tree) or (card.summary or "" if card.status == "done" else "")
        first = (why.splitlines() or [""])[0][:200]
        who = card.assignee or "nobody"
        yield printable(f"{card.id}  {card.status:9} {who}: {card.title}{f'  ({first})' if first else ''}")
