"""`hermes kanban stats|assignees|runs|log|events|tail`: what a board costs and does, in figures and as it happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from hermes.chat.card_text import age, event_line
from hermes.chat.render import printable, when
from hermes.cli.kanban_parts import OpenedBoard, open_named
from hermes.cli.screens import print_json, rows, terminal_width
from hermes.config.profiles import read_profile
from hermes.core.codec import encode_json
from hermes.core.errors import UsageError
from hermes.kanban.board import Board
from hermes.kanban.budgets import Spending, day_of
from hermes.kanban.card import CardEvent
from hermes.kanban.context import uncommitted
from hermes.kanban.home import profile_names
from hermes.kanban.leading import Stats
from hermes.kanban.reasons import why as reason_of
from hermes.kanban.run_process import RunFiles

__all__ = ["assignees", "events", "follow", "log", "money_line", "runs", "stats", "tail", "today"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
#: Days of which the figures are shown.
_DAYS = 7
#: States in which only a person brings a card on.
_WAITING = ("blocked", "triage")
#: Seconds between two looks at a board that is followed.
LOOK = 0.5
#: Of so many looks one asks why nothing happens.
_SELDOM = 10


def today(board: Board, now: float) -> Spending | None:
    """What the board took today (UTC)."""
    day = day_of(now)
    return next((each for each in board.spending("day", day) if each.name == day), None)


def money_line(opened: OpenedBoard, spent: Spending | None) -> str:
    """What was spent today, against the limits in force."""
    settings = opened.sources.loaded.settings.kanban
    usd, tokens = (spent.usd, spent.tokens) if spent is not None else (0.0, 0)
    of_usd = f" of ${settings.day_usd:g}" if settings.day_usd else ""
    of_tokens = f" of {settings.day_tokens:,}" if settings.day_tokens else ""
    aside = f", ${spent.reserved_usd:.2f} set aside" if spent is not None and spent.reserved_usd else ""
    return f"today ${usd:.2f}{of_usd}, {tokens:,}{of_tokens} tokens{aside}"


@click.command(epilog="\b\nExamples:\n  hermes kanban stats\n  hermes kanban stats --json")
@_json
@click.pass_context
def stats(context: click.Context, /, as_json: bool) -> None:
    """Count the cards by state and profile; money by card, profile and day against the limits."""
    opened = open_named(context)
    with opened.board as board:
        counted = board.stats()
        since = day_of(counted.now - (_DAYS - 1) * 86_400)
        spent = {
            "card": board.spending("card"),
            "profile": board.spending("profile"),
            "day": sorted(board.spending("day", since), key=lambda each: each.name, reverse=True),
        }
        titles = {each.name: board.find(each.name).title for each in spent["card"][:10]}
        of_today = today(board, counted.now)
    if as_json:
        settings = msgspec.to_builtins(opened.sources.loaded.settings.kanban)
        limits = {name: settings[name] for name in ("card_usd", "day_usd", "card_tokens", "day_tokens")}
        print_json({"board": opened.slug, **msgspec.to_builtins(counted), "spent": spent, "limits": limits})
        return
    for line in _counts(counted):
        click.echo(line)
    click.echo(f"\n{money_line(opened, of_today)}")
    click.echo(f"limits: {opened.sources.loaded.settings.kanban.limits}")
    for name, table in spent.items():
        if table:
            click.echo(f"\nby {name}")
            lines = [(each.name, *_figures(each), titles.get(each.name, "")[:50]) for each in table[:10]]
            click.echo(rows(lines))


def _figures(each: Spending) -> tuple[str, str, str]:
    return f"${each.usd:.4f}", f"{each.tokens:,} tokens", f"{each.runs} run{'s' if each.runs != 1 else ''}"


def _counts(counted: Stats) -> list[str]:
    found = [f"{count} {name}" for name, count in counted.by_status.items() if count]
    lines = [", ".join(found) or "no cards yet"]
    if counted.oldest_ready_age_seconds is not None:
        lines.append(f"the oldest ready card has waited for {age(counted.oldest_ready_age_seconds)}")
    if counted.open_questions:
        waiting = "1 question waits" if counted.open_questions == 1 else f"{counted.open_questions} questions wait"
        lines.append(f"{waiting} for a person: hermes kanban questions")
    table = [
        (name or "nobody", ", ".join(f"{count} {status}" for status, count in states.items()))
        for name, states in sorted(counted.by_assignee.items())
    ]
    return [*lines, *([""] if table else []), *rows(table).splitlines()]


@click.command(epilog="\b\nExamples:\n  hermes kanban assignees\n  hermes kanban assignees --json")
@_json
@click.pass_context
def assignees(context: click.Context, /, as_json: bool) -> None:
    """List who can be given cards, what each is good at, and what each has."""
    opened = open_named(context)
    home = opened.sources.loaded.home
    with opened.board as board:
        by_assignee = board.stats().by_assignee
    known = profile_names(home)
    names = [*known, *sorted(name for name in by_assignee if name and name not in known)]
    table: list[dict[str, Any]] = [
        {
            "name": name,
            "exists": name in known,
            "description": read_profile(home.of(name)).description if name in known else "",
            "cards": by_assignee.get(name, {}),
        }
        for name in names
    ]
    if as_json:
        print_json({"assignees": table})
        return
    lines = [
        (
            each["name"],
            ", ".join(f"{count} {status}" for status, count in each["cards"].items()) or "no cards",
            each["description"] if each["exists"] else f"no such profile here: hermes profile create {each['name']}",
        )
        for each in table
    ]
    click.echo(rows(lines, indent=""))


@click.command(epilog="\b\nExamples:\n  hermes kanban runs t_1a2b3c4d\n  hermes kanban runs t_1a --json")
@click.argument("card")
@_json
@click.pass_context
def runs(context: click.Context, /, card: str, as_json: bool) -> None:
    """List the attempts at a card: who, how long, how each ended."""
    with open_named(context).board as board:
        found = board.runs(card)
        now = board.stats().now
    if as_json:
        print_json({"runs": found})
        return
    lines = [
        (
            str(run.attempt), run.profile or "-", run.step, when(run.started_at),
            age((run.ended_at or now) - run.started_at), run.outcome or "runs",
            " ".join((run.error or run.summary or "").split())[:100]
            + (f" (uncommitted: {left[:60]})" if (left := uncommitted(run)) else ""),
        )
        for run in found
    ]  # fmt: skip
    click.echo(rows(lines, indent="") or "nobody has worked on it yet")


@click.command(epilog="\b\nExamples:\n  hermes kanban log t_1a2b3c4d\n  hermes kanban log t_1a2b3c4d --tail 0")
@click.argument("card")
@click.option("--tail", default=16_384, show_default=True, metavar="BYTES", help="The last so many; 0: all.")
@_json
@click.pass_context
def log(context: click.Context, /, card: str, tail: int, as_json: bool) -> None:
    """Print the end of the log that the workers of a card wrote on this machine."""
    opened = open_named(context)
    with opened.board as board:
        card_id = board.find(card).id
    path = opened.folder / "logs" / f"{card_id}.log"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        click.echo(f"hermes: {card_id} has no log on this machine ({path}); no worker wrote here", err=True)
        data = b""
    part = data[-tail:] if tail > 0 else data
    if len(part) < len(data):
        click.echo(f"… the last {tail:,} of {len(data):,} bytes of {path}", err=True)
        part = part.partition(b"\n")[2] or part
    lines = [printable(line) for line in part.decode("utf-8", "replace").splitlines()]
    if as_json:
        print_json({"card": card_id, "path": path, "bytes": len(data), "lines": lines})
        return
    for line in lines:
        click.echo(line)


@click.command(
    epilog="\b\nExamples:\n  hermes kanban events\n  hermes kanban events t_1a2b3c4d\n"
    "  hermes kanban events --kinds completed,blocked --follow --json"
)
@click.argument("card", required=False)
@click.option("--kinds", default="", metavar="CSV", help="Only such: created, claimed, completed, blocked, …")
@click.option("--after", type=click.IntRange(min=0), default=None, metavar="N", help="Only those after number N.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="The newest N.")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on as more come; Ctrl+C ends.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def events(
    context: click.Context, /, card: str | None, kinds: str, after: int | None, limit: int, following: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Print what happened on the board, or to one card."""
    wanted = tuple(each.strip() for each in kinds.split(",") if each.strip())
    _events(context, card, wanted, after, limit, following, as_json)


@click.command(epilog="\b\nExample:\n  hermes kanban tail t_1a2b3c4d")
@click.argument("card")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def tail(context: click.Context, /, card: str, as_json: bool) -> int:
    """Print what happens to a card until it has ended. Exit code 75: it waits for a person, and for what is printed."""
    _events(context, card, (), None, 50, True, as_json, idle=_standing(card))
    with open_named(context).board as board:
        view = board.show(card)
        if view.task.status not in _WAITING:
            return 0
        reason = reason_of(board, view)
    click.echo(f"{view.task.id} is {view.task.status}: {reason.detail}; {reason.cure}", err=True)
    return 75


def _standing(card: str) -> Callable[[OpenedBoard], None]:
    """Says, once, that a card stands still because nobody serves the board; looks only now and then."""
    looks, told = 0, ""

    def look(opened: OpenedBoard) -> None:
        nonlocal looks, told
        looks += 1
        if looks % _SELDOM != 1:
            return
        held = reason_of(opened.board, opened.board.show(card), files=RunFiles(opened.folder / "runs"))
        if held.reason in ("no_dispatcher", "worker_gone") and held.cure and held.reason != told:
            told = held.reason
            click.echo(f"hermes: {held.detail}: {held.cure}", err=True)

    return look


def _events(
    context: click.Context, card: str | None, kinds: Sequence[str], after: int | None, limit: int, following: bool,
    as_json: bool, idle: Callable[[OpenedBoard], None] = lambda opened: None,
) -> None:  # fmt: skip
    width = terminal_width()

    def show(event: CardEvent) -> None:
        click.echo(encode_json(event).decode() if as_json else event_line(event, width))

    opened = open_named(context)
    with opened.board as board:
        last = board.last_event()
        if after is not None and after > last:
            raise UsageError(f"--after {after}: the newest event has the number {last}")
        found = (
            board.newest_events(card=card, kinds=kinds, limit=limit)
            if after is None
            else board.events(after, card=card, kinds=kinds, limit=limit)
        )
        for event in found:
            show(event)
        if following:
            begin = found[-1].id if found and after is not None else last
            follow(board, begin, show, card=card, kinds=kinds, idle=lambda: idle(opened))


def follow(
    board: Board,
    after: int,
    show: Callable[[CardEvent], None],
    *,
    card: str | None = None,
    kinds: Sequence[str] = (),
    idle: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show events as they come: without end, or until the card has ended or waits for a person.

    `idle` is called after each look that showed nothing new.
    """
    while True:
        found = board.events(after, card=card, kinds=kinds)
        for event in found:
            show(event)
            after = event.id
        if not found:
            if card is not None and board.find(card).status in ("done", "archived", *_WAITING):
                return
            idle()
            sleep(LOOK)
