"""What a person may do with a card, whichever face asks: the moves from its state, and the same for one that runs.

A card that a worker has is not taken out of its hands: the worker is asked to stop, and the card moves once its process
is gone, which the dispatcher finds out. Reads no text of a command line and prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hermes.kanban.board import Board
from hermes.kanban.card import Card, Proof
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import StillRunning
from hermes.kanban.moves import OPEN, Status, allowed

__all__ = ["ByHand", "archive", "by_hand", "or_stop", "promote", "reclaim", "told"]


class ByHand(NamedTuple):
    """One move: what it is called, what is asked for first (empty: nothing), whether that must be answered, and the
    move itself: board, card, who, answer."""

    name: str
    asks: str
    needed: bool
    do: Callable[[Board, str, str, str], Card]


def or_stop(move: Callable[[], Card], board: Board, name: str, then: Status, author: str, reason: str = "") -> Card:
    """Do a move; where a worker has the card, ask it to stop so that the card goes to `then`."""
    try:
        return move()
    except StillRunning:
        return board.request_stop(name, then, author=author, reason=reason)


def reclaim(board: Board, name: str, author: str, reason: str = "") -> Card:
    """Take a running card from its worker, which is asked to stop; from a person at once."""
    card = board.find(name)
    run = board.run(card.current_run_id) if card.current_run_id is not None else None
    if run is None or not run.manual:
        return board.request_stop(name, "ready", author=author, reason=reason)
    proof = Proof(kind="ended", host_id=board.here.host_id, detail=reason or "given back by hand")
    return board.release(run.id, "reclaimed", proof, author=author).card


def told(card: Card, word: str = "") -> str:
    """What became of a card that was moved, as a sentence; `word` stands for its state."""
    if card.stop_requested is not None:
        return f"{card.id}: its worker is asked to stop; then it is {card.stop_requested}"
    return f"{card.id} is {word or card.status}" + (
        f", for {card.assignee or 'nobody'}" if card.status == "ready" else ""
    )


def promote(board: Board, name: str, who: str, text: str = "") -> Card:
    """Let a card start that nothing holds back."""
    board.promote(name, author=who)
    return board.find(name)


def _block(board: Board, name: str, who: str, text: str) -> Card:
    return or_stop(lambda: board.block(name, text, Authority(author=who)), board, name, "blocked", who, text)


def _park(board: Board, name: str, who: str, text: str) -> Card:
    return or_stop(lambda: board.schedule(name, None, Authority(author=who)), board, name, "scheduled", who)


def archive(board: Board, name: str, who: str, text: str = "") -> Card:
    """Put a card away; a worker at it is asked to stop."""
    return or_stop(lambda: board.archive(name, Authority(author=who)), board, name, "archived", who)


def _complete(board: Board, name: str, who: str, text: str) -> Card:
    return board.complete(name, Completion(summary=text), Authority(author=who))


_MOVES: dict[str, tuple[ByHand, ...]] = {
    "specify": (ByHand("make a task of it", "", False, lambda board, name, who, _: board.specify(name, author=who)),),
    "promote": (ByHand("let it start", "", False, promote),),
    "unblock": (ByHand("let it go on", "", False, lambda board, name, who, _: board.unblock(name, author=who)),),
    "release": (ByHand("take it from its worker", "why", False, reclaim),),
    "claim": (
        ByHand("take it yourself", "", False, lambda board, name, who, _: board.claim_by_hand(name, author=who).card),
    ),
    "complete": (ByHand("finish it", "what was done", False, _complete),),
    "request_review": (
        ByHand(
            "hand it to a reviewer",
            "what there is to judge",
            False,
            lambda board, name, who, text: board.request_review(name, text, Authority(author=who)),
        ),
    ),
    "request_changes": (
        ByHand(
            "send it back",
            "what is missing",
            True,
            lambda board, name, who, text: board.request_changes(name, text, Authority(author=who)),
        ),
    ),
    "reopen": (
        ByHand("judge it again", "", False, lambda board, name, who, _: board.reopen(name, author=who)),
        ByHand("work on it again", "", False, lambda board, name, who, _: board.reopen(name, author=who, review=False)),
    ),
    "block": (ByHand("set it aside", "why, and who can help", True, _block),),
    "schedule": (ByHand("park it", "", False, _park),),
    "archive": (ByHand("put it away", "", False, archive),),
}


_GIVE = ByHand(
    "give it to somebody", "profile", True, lambda board, name, who, text: board.assign(name, text, author=who)
)


def by_hand(status: Status) -> list[ByHand]:
    """The moves of a person from a state, the likely ones first."""
    verbs = allowed(status)
    found = [move for verb, moves in _MOVES.items() if verb in verbs for move in moves]
    return [*found, _GIVE] if status in OPEN and status != "running" else found
