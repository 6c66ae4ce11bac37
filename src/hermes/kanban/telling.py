"""What a board has to tell a person who looks elsewhere: found among its newest events, each once. Sends nothing.

Told is what workers and dispatchers do, never what a person just did: a card that waits for a person, one that gave up,
the end of a goal (a card that nothing waits for), the day's money. Of a card that somebody asked to be told of, all of
that on the occasions asked for. Where nobody who serves the board can tell, workers tell their questions themselves.

A conversation is told of the cards that it made, and of what was made of them, by itself: whoever holds it asks for
what is newer than what its history has, so that nothing is told twice and nothing is lost with a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec
import sqlalchemy as sa

from hermes.kanban import tables as t
from hermes.kanban.board import Board
from hermes.kanban.budgets import day_of
from hermes.kanban.card import CardEvent
from hermes.kanban.leading import Reason
from hermes.kanban.reading import CardView
from hermes.kanban.store import values_of

__all__ = ["OCCASIONS", "Occasion", "Tiding", "session_tidings", "tidings"]

Occasion = Literal["needs_answer", "failed", "budget", "done"]
OCCASIONS: tuple[Occasion, ...] = get_args(Occasion)
_OF_CARDS = ("blocked", "block_loop_detected", "review_requested", "gave_up", "completed")
_KINDS = (*_OF_CARDS, "reconciled")
#: In which states of its card an occasion still holds.
_HOLDS: dict[str, tuple[str, ...]] = {
    "needs_answer": ("blocked", "triage", "review"), "failed": ("blocked",), "done": ("done", "archived")
}  # fmt: skip


class Tiding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell. `cure` is a command; `wished`: somebody asked to be told of this card's occasions; `number` is
    that of the event, where a conversation is told."""

    occasion: Occasion
    title: str
    at: float
    text: str = ""
    card: str | None = None
    cure: str = ""
    wished: bool = False
    number: int = 0


def session_tidings(board: Board, session_id: str, after: int, *, profile: str, reviewer: str = "") -> list[Tiding]:
    """What a conversation of `profile` has to hear of its cards, oldest first: of each the newest that still holds, if
    its event is newer than number `after`. What it did itself is not told; ends of steps that others made are not."""
    found = []
    for event in _events_of(board, session_id, after):
        view = board.show(event.card_id or "")
        told = _told(event, view, reviewer)
        if told is None or view.task.status not in _HOLDS[told[0]]:
            continue
        own = view.task.created_by == profile and view.task.created_card is None
        if (_by_hand(event, view) and event.author == profile) or (not own and _on_its_way(told[0], view)):
            continue
        made = _made(event, view, *told, wished=False)
        found.append(msgspec.structs.replace(made, number=event.id))
    return found


def _events_of(board: Board, session_id: str, after: int) -> list[CardEvent]:
    """Of each card of a conversation the newest event that could be told, if it is newer than `after`."""
    e, c = t.events.c, t.cards.c
    columns = [e[name] for name in CardEvent.__struct_fields__]
    mine = (c.session_id == session_id, e.id > after, e.kind.in_(_OF_CARDS))
    with board.database.read() as tx:
        rows = tx.rows(sa.select(*columns).join(t.cards, c.id == e.card_id).where(*mine).order_by(e.id))
    newest = {event.card_id: event for event in values_of(CardEvent, rows)}
    return sorted(newest.values(), key=lambda event: event.id)


def tidings(board: Board, left: Sequence[Reason], *, reviewer: str = "") -> list[Tiding]:
    """What is new since anybody asked, on any machine; `left` are the cards that the last pass left alone.

    `reviewer` is the profile that judges where a card names none, empty for a person.
    """
    news = board.take_news(_KINDS)
    wishes = {each.card_id: each.occasions for each in board.notifications()} if news else {}
    found = []
    for event in news:
        tiding = _of_board(event) if event.card_id is None else _of_card(board, event, wishes, reviewer)
        if tiding is not None:
            found.append(tiding)
    spent = next((each for each in left if each.reason == "budget"), None)
    if spent is not None and board.once_a_day("told_budget", day_of(board.clock())):
        found.append(
            Tiding(
                occasion="budget", title=f"no money is left for {spent.card_id}", at=board.clock(), text=spent.detail,
                card=spent.card_id, cure="hermes kanban stats",
            )
        )  # fmt: skip
    return found


def _of_board(event: CardEvent) -> Tiding | None:
    why = event.payload.get("paused")
    if event.kind != "reconciled" or not why:
        return None
    return Tiding(
        occasion="failed", title="the board rests", at=event.created_at, text=str(why), cure="hermes kanban doctor"
    )


def _of_card(board: Board, event: CardEvent, wishes: dict[str, list[str]], reviewer: str) -> Tiding | None:
    view = board.show(event.card_id or "")
    card = view.task
    wished = wishes.get(card.id, ())
    told = _told(event, view, reviewer)
    if told is None:
        return None
    occasion, title, text, cure = told
    if occasion in wished:
        return _made(event, view, occasion, title, text, cure, wished=True)
    if _by_hand(event, view) or _on_its_way(occasion, view):
        return None
    return _made(event, view, occasion, title, text, cure, wished=False)


def _by_hand(event: CardEvent, view: CardView) -> bool:
    """Whether a person or a conversation did it, and neither a worker nor a dispatcher."""
    run = next((each for each in view.runs if each.id == event.run_id), None)
    return event.author != "dispatcher" and (run is None or run.manual)


def _on_its_way(occasion: Occasion, view: CardView) -> bool:
    """Whether the end of a card is only a step: something else builds on it."""
    return occasion == "done" and any(each.kind == "needs" for each in view.children)


def _told(event: CardEvent, view: CardView, reviewer: str) -> tuple[Occasion, str, str, str] | None:
    """Occasion, title, text and cure of an event; None where nobody has to know."""
    card, said = view.task, event.payload
    if event.kind == "completed":
        return "done", f"done: {card.title}", str(said.get("summary") or ""), f"hermes kanban show {card.id}"
    if event.kind == "gave_up":
        times = f"failed {said.get('failures')} times: {said.get('error') or 'without a word'}"
        return "failed", f"gave up: {card.title}", times, f"hermes kanban unblock {card.id}"
    if event.kind == "blocked":
        asked = said.get("kind") == "needs_input"
        cure = f"hermes kanban answer {card.id} TEXT" if asked else f"hermes kanban unblock {card.id}"
        return "needs_answer", f"waits for you: {card.title}", str(said.get("reason") or ""), cure
    if event.kind == "block_loop_detected":
        text = f"set aside {said.get('times')} times for the same kind of reason"
        return "needs_answer", f"goes in circles: {card.title}", text, f"hermes kanban specify {card.id}"
    if event.kind == "review_requested" and not (said.get("reviewer") or reviewer):
        return (
            "needs_answer",
            f"to be judged: {card.title}",
            str(said.get("summary") or ""),
            (f"hermes kanban complete {card.id}"),
        )
    return None


def _made(
    event: CardEvent, view: CardView, occasion: Occasion, title: str, text: str, cure: str, *, wished: bool
) -> Tiding:
    return Tiding(
        occasion=occasion, title=title, at=event.created_at, text=text, card=view.task.id, cure=cure, wished=wished
    )
