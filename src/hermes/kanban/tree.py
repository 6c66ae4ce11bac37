"""A goal and everything it waits for: the cards under a root in the order of their dependencies, and how they stand.

Reads only. `standing` says whether work on the goal goes on by itself, is over, or waits for a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from hermes.kanban import reading
from hermes.kanban.board import Board
from hermes.kanban.card import Card, Question
from hermes.kanban.leading import Reason

__all__ = ["Standing", "Tree", "read_tree", "standing"]

State = Literal["done", "going", "person"]


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """The cards of a goal: parents stand before what needs them, the root last. `needs` are ids by card."""

    root: str
    cards: tuple[Card, ...]
    needs: Mapping[str, tuple[str, ...]]
    questions: tuple[Question, ...] = ()
    reasons: Mapping[str, Reason] = {}

    def card(self, card_id: str) -> Card:
        """One of them."""
        return next(each for each in self.cards if each.id == card_id)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a goal stands; `person` names the cards that wait for one, with why and the command."""

    state: State
    person: tuple[Reason, ...] = ()


def read_tree(board: Board, name: str) -> Tree:
    """Read the tree of a card. Raises `CardNotFound`."""
    with board.database.read() as tx:
        root = reading.resolve(tx, name)
        above: dict[str, list[str]] = {}
        for link in reading.all_links(tx, ("needs",)):
            above.setdefault(link.child_id, []).append(link.parent_id)
        order: list[str] = []
        seen: set[str] = set()
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            card_id, ready = stack.pop()
            if ready:
                order.append(card_id)
                continue
            if card_id in seen:
                continue
            seen.add(card_id)
            stack.append((card_id, True))
            stack.extend((each, False) for each in reversed(above.get(card_id, [])) if each not in seen)
        cards = tuple(reading.card_by_id(tx, card_id) for card_id in order)
        questions = tuple(each for each in reading.questions_open(tx) if each.card_id in seen)
    reasons = {each.card_id: each for each in board.reasons() if each.card_id in seen}
    needs = {card_id: tuple(above.get(card_id, ())) for card_id in order}
    return Tree(root=root, cards=cards, needs=needs, questions=questions, reasons=reasons)


#: Reasons of the dispatcher that pass by themselves.
_PASSING = frozenset({"cap", "profile_cap", "memory", "cooldown", "still_running", "taken", "failing", "planning"})


def standing(tree: Tree) -> Standing:
    """How a goal stands: `going` while a worker runs or a card waits for something that passes by itself."""
    root = tree.card(tree.root)
    if root.status in ("done", "archived"):
        return Standing(state="done")
    person = [_person(card, tree) for card in tree.cards]
    waiting = tuple(each for each in person if each is not None)
    going = any(
        card.status == "running"
        or card.status in ("ready", "review", "triage")
        and person[number] is None
        or card.status == "scheduled"
        and card.scheduled_at is not None
        for number, card in enumerate(tree.cards)
    )
    return Standing(state="going" if going or not waiting else "person", person=waiting)


def _person(card: Card, tree: Tree) -> Reason | None:
    """Why a card waits for a person, None if it does not."""

    def reason(word: str, detail: str, cure: str) -> Reason:
        return Reason(card_id=card.id, reason=word, detail=detail, cure=cure)

    if card.status == "blocked":
        asked: Sequence[Question] = [each for each in tree.questions if each.card_id == card.id]
        if asked:
            return reason("question", asked[-1].question, f"hermes kanban answer {card.id} TEXT")
        why = card.block_reason or card.last_failure_error or "set aside"
        return reason("blocked", why, f"hermes kanban unblock {card.id}")
    noted = tree.reasons.get(card.id)
    if card.status == "triage":
        if noted is not None:
            return noted if noted.reason not in _PASSING else None
        return reason("triage", card.block_reason or "an idea", f"hermes kanban decompose {card.id}")
    if card.status == "scheduled" and card.scheduled_at is None:
        return reason("scheduled", "parked for good", f"hermes kanban unblock {card.id}")
    if card.status in ("ready", "review") and noted is not None and noted.reason not in _PASSING:
        return noted
    return None
