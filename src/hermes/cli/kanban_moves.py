"""`hermes kanban complete|block|unblock|archive|…`: a person moves cards from state to state.

A card that a worker has is not taken out of its hands: the worker is asked to stop, and the card moves once its process
is gone, which the dispatcher finds out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from hermes.chat.card_text import read_moment, read_span
from hermes.cli.kanban_parts import NOBODY, changing
from hermes.cli.screens import print_json
from hermes.core.codec import decode_json
from hermes.core.errors import UsageError
from hermes.kanban.board import Board
from hermes.kanban.by_hand import archive as put_away
from hermes.kanban.by_hand import or_stop, told
from hermes.kanban.by_hand import promote as let_start
from hermes.kanban.by_hand import reclaim as take_back
from hermes.kanban.card import BLOCK_KINDS, Card
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import BoardError
from hermes.kanban.reasons import serving

__all__ = [
    "archive", "block", "claim", "complete", "promote", "reassign", "reclaim", "reopen",
    "request_changes", "request_review", "schedule", "unblock",
]  # fmt: skip

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_cards = click.argument("cards", nargs=-1, required=True, metavar="CARD...")


def _each(
    context: click.Context, names: Sequence[str], as_json: bool, move: Callable[[Board, str, str], Card], word: str = ""
) -> None:
    """Move several cards, each for itself; what was refused is said at the end. Raises the first refusal."""
    opened = changing(context)
    moved: list[Card] = []
    refused: list[BoardError] = []
    with opened.board as board:
        for name in dict.fromkeys(names):
            try:
                moved.append(move(board, name, opened.author))
            except BoardError as error:
                if len(names) == 1:
                    raise
                refused.append(error)
        served = bool(serving(board))
    if as_json:
        print_json({"cards": moved, "refused": [str(error) for error in refused]})
    else:
        for card in moved:
            click.echo(told(card, word))
    if any(card.stop_requested for card in moved) and not served:
        click.echo("hermes: no dispatcher serves this board to see the worker gone: hermes kanban dispatch", err=True)
    if refused:
        for each in refused[:-1]:
            click.echo(f"hermes: {each}", err=True)
        raise refused[-1]


@click.command(
    epilog='\b\nExamples:\n  hermes kanban complete t_1a2b3c4d --summary "Done by hand"\n'
    "  hermes kanban complete t_a t_b t_c\n  hermes kanban complete t_1a2b3c4d --override"
)
@_cards
@click.option("--result", default="", metavar="TEXT", help="What comes of it; cards that need it are given this.")
@click.option("--summary", default="", metavar="TEXT", help="What was done, in a line or two.")
@click.option("--metadata", default=None, metavar="JSON", help="An object to keep with it.")
@click.option("--override", is_flag=True, help="It is done although its check was not run, or fails.")
@_json
@click.pass_context
def complete(
    context: click.Context, /, cards: tuple[str, ...], result: str, summary: str, metadata: str | None, override: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Finish cards. Those that wait for them become ready."""
    if len(cards) > 1 and (summary or metadata):
        raise UsageError("--summary and --metadata are for one card: complete several without them, or one by one.")
    kept = _object(metadata) if metadata else None
    done = Completion(summary=summary, result=result, metadata=kept, override=override)
    _each(context, cards, as_json, lambda board, name, who: board.complete(name, done, Authority(author=who)))


def _object(text: str) -> dict[str, Any]:
    try:
        found = decode_json(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f'--metadata {text!r} is no JSON object: write {{"name": "value"}}')
    return found


@click.command(
    epilog='\b\nExamples:\n  hermes kanban block t_1a2b3c4d "Waits for the contract"\n'
    '  hermes kanban block t_1a2b3c4d "Which database?" --kind needs_input'
)
@click.argument("card")
@click.argument("reason")
@click.option("--kind", type=click.Choice(BLOCK_KINDS), default=None, help="needs_input asks a question.")
@click.option("--ids", default="", metavar="CSV", help="More cards, for the same reason.")
@_json
@click.pass_context
def block(context: click.Context, /, card: str, reason: str, kind: Any, ids: str, as_json: bool) -> None:
    """Set a card aside until a person lets it go on. A worker at it is asked to stop."""
    names = [card, *(each.strip() for each in ids.split(",") if each.strip())]

    def move(board: Board, name: str, who: str) -> Card:
        by = Authority(author=who)
        return or_stop(lambda: board.block(name, reason, by, kind=kind), board, name, "blocked", who, reason)

    _each(context, names, as_json, move)


@click.command(epilog="\b\nExamples:\n  hermes kanban unblock t_1a2b3c4d\n  hermes kanban unblock t_a t_b --json")
@_cards
@_json
@click.pass_context
def unblock(context: click.Context, /, cards: tuple[str, ...], as_json: bool) -> None:
    """Let blocked or parked cards go on; their failures count from zero."""
    _each(context, cards, as_json, lambda board, name, who: board.unblock(name, author=who))


@click.command(epilog="\b\nExamples:\n  hermes kanban archive t_1a2b3c4d\n  hermes kanban archive t_a t_b")
@_cards
@_json
@click.pass_context
def archive(context: click.Context, /, cards: tuple[str, ...], as_json: bool) -> None:
    """Put cards away for good. A worker at one is asked to stop; what waited for it waits no longer."""
    _each(context, cards, as_json, put_away)


@click.command(epilog="\b\nExamples:\n  hermes kanban promote t_1a2b3c4d\n  hermes kanban promote t_a t_b")
@_cards
@_json
@click.pass_context
def promote(context: click.Context, /, cards: tuple[str, ...], as_json: bool) -> None:
    """Make cards ready that nothing holds back: ideas, parked ones, those whose parents have ended."""
    _each(context, cards, as_json, let_start)


@click.command(
    epilog="\b\nExamples:\n  hermes kanban schedule t_1a2b3c4d 2h\n  hermes kanban schedule t_1a2b3c4d 2026-03-01"
)
@click.argument("card")
@click.argument("moment", default="", required=False, metavar="[WHEN]")
@_json
@click.pass_context
def schedule(context: click.Context, /, card: str, moment: str, as_json: bool) -> None:
    """Park a card until a time (2026-03-01 09:00, or 2h from now), or for good."""
    at = read_moment(moment, time.time()) if moment else None

    def move(board: Board, name: str, who: str) -> Card:
        return or_stop(lambda: board.schedule(name, at, Authority(author=who)), board, name, "scheduled", who)

    _each(context, [card], as_json, move)


@click.command(epilog="\b\nExamples:\n  hermes kanban claim t_1a2b3c4d\n  hermes kanban claim t_1a2b3c4d --ttl 2h")
@click.argument("card")
@click.option("--ttl", default="", metavar="SPAN", help="For 30m, 2h, 1d; a heartbeat prolongs it. Else for good.")
@_json
@click.pass_context
def claim(context: click.Context, /, card: str, ttl: str, as_json: bool) -> None:
    """Take a card yourself: no worker gets it until you complete, block or reclaim it."""
    span = read_span(ttl) if ttl else None
    _each(
        context, [card], as_json, lambda board, name, who: board.claim_by_hand(name, author=who, ttl=span).card, "yours"
    )


@click.command(
    epilog='\b\nExamples:\n  hermes kanban reclaim t_1a2b3c4d\n  hermes kanban reclaim t_1a --reason "wrong way"'
)
@_cards
@click.option("--reason", default="", metavar="TEXT", help="Why; it stands in the events.")
@_json
@click.pass_context
def reclaim(context: click.Context, /, cards: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Take running cards from their workers, which are asked to stop; then they are ready again."""
    _each(context, cards, as_json, lambda board, name, who: take_back(board, name, who, reason))


@click.command(epilog="\b\nExamples:\n  hermes kanban reopen t_1a2b3c4d\n  hermes kanban reopen t_1a2b3c4d --work")
@_cards
@click.option("--work", is_flag=True, help="To be worked on again, not only judged.")
@_json
@click.pass_context
def reopen(context: click.Context, /, cards: tuple[str, ...], work: bool, as_json: bool) -> None:
    """Take finished cards up again, to be judged or (--work) worked on. Also called reopen-review."""
    _each(context, cards, as_json, lambda board, name, who: board.reopen(name, author=who, review=not work))


@click.command(
    epilog='\b\nExamples:\n  hermes kanban reassign t_1a2b3c4d coder\n'
    '  hermes kanban reassign t_1a2b3c4d coder --reclaim --reason "needs another eye"'
)  # fmt: skip
@click.argument("card")
@click.argument("profile")
@click.option("--reclaim", "stop", is_flag=True, help="Also while it is worked on: its worker is asked to stop.")
@click.option("--reason", default="", metavar="TEXT", help="Why; it stands in the events.")
@_json
@click.pass_context
def reassign(context: click.Context, /, card: str, profile: str, stop: bool, reason: str, as_json: bool) -> None:
    """Give a card to another profile, or to nobody (none); its failures count from zero."""
    if reason and not stop:
        raise UsageError("--reason goes with --reclaim: it says why the worker is stopped.")
    wanted = None if profile in NOBODY else profile
    opened = changing(context)
    with opened.board as board:
        if stop:
            found = board.reassign(card, wanted, author=opened.author, reason=reason)
        else:
            found = board.assign(card, wanted, author=opened.author)
        served = bool(serving(board))
    if as_json:
        print_json({"card": found})
        return
    click.echo(
        f"{found.id} is for {found.assignee or 'nobody'} now"
        + (f": its worker is asked to stop, then it is {found.stop_requested}" if found.stop_requested else "")
    )
    if found.stop_requested and not served:
        click.echo("hermes: no dispatcher serves this board to see the worker gone: hermes kanban dispatch", err=True)


@click.command("request-review", epilog="\b\nExample:\n  hermes kanban request-review t_1a2b3c4d --reviewer reviewer")
@click.argument("card")
@click.option("--summary", default="", metavar="TEXT", help="What there is to judge.")
@click.option("--reviewer", default=None, metavar="PROFILE", help="Who judges; else as configured.")
@_json
@click.pass_context
def request_review(context: click.Context, /, card: str, summary: str, reviewer: str | None, as_json: bool) -> None:
    """Hand a card to a reviewer."""
    _each(
        context, [card], as_json,
        lambda board, name, who: board.request_review(name, summary, Authority(author=who), reviewer=reviewer),
    )  # fmt: skip


@click.command("request-changes", epilog='\b\nExample:\n  hermes kanban request-changes t_1a2b3c4d "Tests are missing"')
@click.argument("card")
@click.argument("reason")
@_json
@click.pass_context
def request_changes(context: click.Context, /, card: str, reason: str, as_json: bool) -> None:
    """Send a card that waits for a review back to whoever did it."""
    _each(
        context, [card], as_json,
        lambda board, name, who: board.request_changes(name, reason, Authority(author=who)),
    )  # fmt: skip
