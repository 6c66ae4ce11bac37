"""`hermes kanban watch`: the board as it moves. Columns in a terminal, one line a change elsewhere.

It only looks: closing it stops nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hermes.chat.card_text import MARKS, age, event_line
from hermes.chat.render import one_line
from hermes.cli.kanban_figures import LOOK, follow, money_line, today
from hermes.cli.kanban_parts import OpenedBoard, open_named
from hermes.core.codec import encode_json
from hermes.kanban.board import Board
from hermes.kanban.card import Card, CardEvent
from hermes.kanban.moves import Status
from hermes.kanban.reading import CardFilter
from hermes.kanban.reasons import serving

__all__ = ["Snapshot", "board_screen", "snapshot", "watch"]


class _Column(NamedTuple):
    title: str
    states: tuple[Status, ...]
    style: str


_COLUMNS = (
    _Column("waiting", ("todo", "scheduled", "triage"), "dim"),
    _Column("ready", ("ready",), "cyan"),
    _Column("running", ("running",), "yellow"),
    _Column("needs you", ("blocked", "review"), "magenta"),
    _Column("done", ("done",), "green"),
)
#: Columns below which waiting and ready cards stand together.
_WIDE = 100
#: Cards of a column that are read at most; the rest is counted.
_DEEP = 40


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A board at one moment: cards by state, the newest first among the done; counts of all; money of today."""

    board: str
    cards: dict[Status, list[Card]]
    counts: dict[str, int]
    money: str
    served: bool
    questions: int
    events: list[CardEvent]
    now: float


def snapshot(opened: OpenedBoard, wanted: CardFilter) -> Snapshot:
    """Look at a board once; `wanted` may narrow it."""
    board = opened.board
    cards: dict[Status, list[Card]] = {}
    for column in _COLUMNS:
        for status in column.states:
            sort = "updated" if status == "done" else wanted.sort
            cards[status] = board.cards(msgspec.structs.replace(wanted, status=(status,), sort=sort, limit=_DEEP))
    counted = board.stats()
    return Snapshot(
        board=opened.slug,
        cards=cards,
        counts=counted.by_status,
        money=money_line(opened, today(board, counted.now)),
        served=bool(serving(board)),
        questions=counted.open_questions,
        events=board.newest_events(limit=5),
        now=counted.now,
    )


def board_screen(seen: Snapshot, width: int, height: int) -> RenderableType:
    """A board as columns that fit a terminal of so many columns and lines."""
    columns: Sequence[_Column] = _COLUMNS
    if width < _WIDE:
        together = _Column("ready, waiting", (*_COLUMNS[1].states, *_COLUMNS[0].states), "cyan")
        columns = (together, *_COLUMNS[2:])
    table = Table(expand=True, box=None, padding=(0, 1), show_header=True, pad_edge=False)
    counts = [sum(seen.counts.get(status, 0) for status in column.states) for column in columns]
    empty = sum(len(column.title) + 2 for column, count in zip(columns, counts, strict=True) if not count)
    room = max(12, (width - empty) // max(1, sum(map(bool, counts))) - 2)
    lines = max(4, height - len(seen.events) - 6)
    cells: list[Text] = []
    for column, count in zip(columns, counts, strict=True):
        title = Text(f"{column.title} {count or ''}".rstrip(), style=f"bold {column.style}")
        if count:
            table.add_column(title, ratio=1)
        else:  # nothing is in it: its room is given to the others
            table.add_column(title, width=len(column.title))
        cells.append(_cell([card for status in column.states for card in seen.cards[status]], room, lines, seen, count))
    table.add_row(*cells)
    return Group(table, Text(""), *_foot(seen, width))


def _cell(cards: Sequence[Card], room: int, lines: int, seen: Snapshot, count: int) -> Text:
    text = Text(overflow="crop", no_wrap=True)
    shown = 0
    for card in cards:
        block = _block(card, room, seen.now)
        last = shown + 1 == count
        if shown and len(block) > lines - (0 if last else 1):
            break
        for number, line in enumerate(block):
            text.append(line + "\n", style="" if number == 1 else "bold" if number == 0 else "dim")
        lines -= len(block)
        shown += 1
    if count > shown:
        text.append(f"… {count - shown} more\n", style="dim")
    return text


def _block(card: Card, room: int, now: float) -> list[str]:
    """A card within a column: what it is and whose, what it is about, and why it waits for a person."""
    who = card.assignee or "nobody"
    if card.status == "running":
        who += f" {age(now - (card.started_at or card.updated_at))}" + (" review" if card.step == "review" else "")
    lines = [one_line(f"{MARKS[card.status]} {card.id} {who}", room), one_line(card.title, room)]
    if card.status == "blocked" and card.block_reason:
        lines.append(one_line(card.block_reason, room))
    return lines


def _foot(seen: Snapshot, width: int) -> list[Text]:
    served = "a dispatcher serves it" if seen.served else "no dispatcher: hermes kanban daemon --detach"
    many = "" if seen.questions == 1 else "s"
    asked = f" · {seen.questions} question{many}: hermes kanban questions" if seen.questions else ""
    lines = [
        Text(one_line(f"board {seen.board} · {served}{asked}", width), style="" if seen.served else "yellow"),
        Text(one_line(seen.money, width), style="dim"),
    ]
    return [*lines, *(Text(event_line(event, width), style="dim") for event in seen.events)]


@click.command(
    epilog="\b\nExamples:\n  hermes kanban watch\n  hermes kanban watch --assignee coder\n"
    "  hermes kanban watch --kinds completed,blocked | tee log\n  hermes kanban watch --once"
)
@click.option("--assignee", default=None, metavar="PROFILE", help="Only this profile's cards.")
@click.option("--tenant", default=None, metavar="NAME", help="Only cards of this tenant.")
@click.option("--kinds", default="", metavar="CSV", help="As lines: only such changes.")
@click.option("--interval", default=LOOK, type=click.FloatRange(min=0.1), metavar="SECONDS", help="Between two looks.")
@click.option("--once", is_flag=True, help="Show the board as it is now and end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a change.")
@click.pass_context
def watch(
    context: click.Context, /, assignee: str | None, tenant: str | None, kinds: str, interval: float, once: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show the board as it moves: columns in a terminal, lines elsewhere. Ctrl+C ends the view and stops nothing."""
    console = Console(highlight=False, markup=False)
    opened = open_named(context)
    wanted = CardFilter(assignee=assignee, tenant=tenant)
    only = tuple(each.strip() for each in kinds.split(",") if each.strip())
    with opened.board as board:
        if once:
            height = console.height if console.is_terminal else 200
            console.print(board_screen(snapshot(opened, wanted), console.width, height))
        elif console.is_terminal and not as_json and not only:
            _live(console, opened, wanted, interval)
        else:
            _lines(board, only, as_json, interval)


def _lines(board: Board, only: Sequence[str], as_json: bool, interval: float) -> None:
    def show(event: CardEvent) -> None:
        click.echo(encode_json(event).decode() if as_json else event_line(event))

    follow(board, board.last_event(), show, kinds=only, sleep=lambda _: time.sleep(interval))


def _live(console: Console, opened: OpenedBoard, wanted: CardFilter, interval: float) -> None:
    """Draw the board anew when it changed, when the terminal did, and each 5 s for the ages in it."""
    drawn: tuple[int, int, int] | None = None
    at = 0.0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                now = (opened.board.last_event(), console.width, console.height)
                if now != drawn or time.monotonic() - at >= 5.0:
                    seen = snapshot(opened, wanted)
                    live.update(board_screen(seen, console.width, console.height), refresh=True)
                    drawn, at = now, time.monotonic()
                time.sleep(interval)
        except KeyboardInterrupt:
            return
