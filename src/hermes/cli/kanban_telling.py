"""What a board tells a person by the ways of `notify`, and `hermes kanban notify-subscribe|-list|-unsubscribe`.

Telling goes on beside the dispatcher, which waits for nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import anyio
import click

from hermes.chat.render import printable
from hermes.cli.kanban_parts import OpenedBoard, changing, open_named
from hermes.cli.opening import parts_without_model
from hermes.cli.options import Sources
from hermes.cli.screens import print_json, rows
from hermes.compose.observing import tell
from hermes.compose.opening import redactor_of
from hermes.kanban.telling import OCCASIONS, Tiding
from hermes.observe.occasions import TEXT, Occasion

__all__ = ["notify_list", "notify_subscribe", "notify_unsubscribe", "teller_of"]

#: Tidings of one pass that are told one by one.
_MOST = 20
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def teller_of(sources: Sources, slug: str) -> Callable[[Sequence[Tiding]], None] | None:
    """What tells a person the tidings of a board; None where no way of telling is configured."""
    notify = sources.loaded.settings.notify
    return _Teller(sources, slug) if notify.command or notify.webhook or notify.bell else None


class _Teller:
    def __init__(self, sources: Sources, slug: str) -> None:
        self._parts = parts_without_model(sources)
        self._on = frozenset(sources.loaded.settings.notify.on)
        self._slug = slug

    def __call__(self, news: Sequence[Tiding]) -> None:
        told = [self._occasion(each) for each in news if each.wished or each.occasion in self._on]
        if len(told) > _MOST:
            more = f"and {len(told) - _MOST} more on the board {self._slug}"
            last = Occasion(
                event=told[-1].event, at=told[-1].at, session_id="", task_id="", title=f"Hermes {more}",
                show=f"hermes kanban --board {self._slug} events",
            )  # fmt: skip
            told = [*told[:_MOST], last]
        if told:
            send = partial(anyio.run, tell, self._parts, redactor_of(self._parts), told)
            threading.Thread(target=send, name="telling").start()

    def _occasion(self, tiding: Tiding) -> Occasion:
        board = f" --board {self._slug}" if self._slug != "default" else ""
        cure = tiding.cure.replace("hermes kanban", f"hermes kanban{board}", 1)
        where = f" (board {self._slug})" if board else ""
        return Occasion(
            event=tiding.occasion,
            at=tiding.at,
            session_id="",
            task_id=tiding.card or "",
            title=f"Hermes {tiding.title}{where}",
            text=tiding.text[:TEXT],
            details={"board": self._slug, "card": tiding.card, "do": cure},
            show=f"hermes kanban{board} show {tiding.card}" if tiding.card else f"hermes kanban{board} doctor",
        )


def _ways(opened: OpenedBoard) -> str:
    """The ways of telling that are configured, in words."""
    notify = opened.sources.loaded.settings.notify
    ways = (("a command", notify.command), ("a webhook", notify.webhook), ("the bell", notify.bell))
    return " and ".join(name for name, there in ways if there)


@click.command(
    epilog="\b\nExamples:\n  hermes kanban notify-subscribe t_1a2b3c4d\n"
    "  hermes kanban notify-subscribe t_1a2b3c4d --on done --on failed"
)
@click.argument("card")
@click.option(
    "--on", "occasions", type=click.Choice(OCCASIONS), multiple=True, help="Only then (repeatable); all if not given."
)
@_json
@click.pass_context
def notify_subscribe(context: click.Context, /, card: str, occasions: tuple[str, ...], as_json: bool) -> None:
    """Be told of a card: when it is done, fails for good, or waits for you.

    Told is by the ways of `notify` of the profile that serves the board. Without this, questions, cards that gave up,
    the day's money, and the ends of cards that nothing waits for are told.
    """
    wanted = occasions or OCCASIONS
    opened = changing(context)
    with opened.board as board:
        found = board.notify(card, wanted, author=opened.author)
    if as_json:
        print_json({"card": found.id, "occasions": sorted(wanted), "ways": _ways(opened) or None})
        return
    click.echo(printable(f"{found.id} ({found.title}) is told: {', '.join(wanted)}"))
    if not _ways(opened):
        click.echo("hermes: no way of telling is configured: hermes config set notify.command COMMAND", err=True)


@click.command(epilog="\b\nExamples:\n  hermes kanban notify-list\n  hermes kanban notify-list --json")
@_json
@click.pass_context
def notify_list(context: click.Context, /, as_json: bool) -> None:
    """List the cards that somebody wants to be told of."""
    opened = open_named(context)
    with opened.board as board:
        found = board.notifications()
        titles = {each.card_id: board.find(each.card_id) for each in found}
    if as_json:
        print_json({"notifications": found, "ways": _ways(opened) or None})
        return
    table = [
        (each.card_id, titles[each.card_id].status, ", ".join(each.occasions), titles[each.card_id].title)
        for each in found
    ]
    click.echo(
        printable(rows([("CARD", "STATE", "TOLD", "TITLE"), *table], indent="")) if found else "none is asked for"
    )
    click.echo(f"told by {_ways(opened)}" if _ways(opened) else "no way of telling is configured", err=True)


@click.command(epilog="\b\nExamples:\n  hermes kanban notify-unsubscribe t_1a2b3c4d")
@click.argument("card")
@_json
@click.pass_context
def notify_unsubscribe(context: click.Context, /, card: str, as_json: bool) -> None:
    """Be told of a card only what is told of every card."""
    opened = changing(context)
    with opened.board as board:
        found = board.notify(card, None, author=opened.author)
    if as_json:
        print_json({"card": found.id, "occasions": []})
    else:
        click.echo(f"{found.id} is told as every card")
