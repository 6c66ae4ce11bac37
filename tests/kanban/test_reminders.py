"""What a worker hears that stops before its card has ended."""

from __future__ import annotations

import msgspec

from hermes.kanban.board import Board
from hermes.kanban.card import NewCard
from hermes.kanban.worker import reminders, system_text


def test_who_judges_a_goal_is_not_sent_on_to_reach_it(board: Board) -> None:
    order = NewCard(title="Ship it", assignee="coder", goal_mode=True, goal_max_turns=7)
    card = board.create(order, author="me").card
    most, text = reminders(card)
    assert (
        most == 7 and "is not reached" in text.format(card=card.id, left=most) and "up to 7 times" in system_text(card)
    )
    most, text = reminders(msgspec.structs.replace(card, step="review"))
    assert most == 2 and "goal" not in text.format(card=card.id, left=most)
    assert reminders(msgspec.structs.replace(card, goal_max_turns=None))[0] == 20
