"""What a worker is told of its card, however much has happened to it."""

from __future__ import annotations

from hermes.kanban.board import Board
from hermes.kanban.card import NewCard, Proof
from hermes.kanban.context import worker_context
from tests.kanban.conftest import HERE

ENDED = Proof(kind="ended", host_id=HERE.host_id)


def test_a_long_history_is_cut_to_what_helps(board: Board) -> None:
    parent = board.create(NewCard(title="before", assignee="coder"), author="lead").card
    card = board.create(
        NewCard(title="now", body="ü" * 9000, assignee="coder", parents=(parent.id,), max_retries=99), author="lead"
    ).card
    taken = board.claim(profiles=["coder"], card=parent.id)
    assert taken is not None
    board.release(taken.claim.run_id, "reclaimed", ENDED)
    board.unlink(parent.id, card.id, author="lead")
    for number in range(12):
        taken = board.claim(profiles=["coder"], card=card.id)
        assert taken is not None
        board.release(taken.claim.run_id, "crashed", ENDED, error=f"error number {number}\n" + "e" * 6000)
    for number in range(33):
        board.comment(card.id, f"remark {number} " + "r" * 3000, author="lead")
    text = worker_context(board.show(card.id))
    assert "error number 1\n" not in text and "error number 2\n" in text and "error number 11\n" in text
    assert "(3 older ones are not shown)" in text and "remark 2 " not in text and "remark 3 " in text
    assert "[… 9808 bytes more]" in text and len(text.encode()) < 8192 + 10 * 4400 + 30 * 2300 + 2000
    assert text.startswith(f"# Card {card.id}: now\n\nüü")
