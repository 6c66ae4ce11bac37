"""What a board refuses, sorted by what the caller can do about it. Faults of the database itself are `StoreError`s."""

from __future__ import annotations

from hermes.core.errors import OperatorError, TryLater

__all__ = ["BoardError", "BudgetSpent", "CardNotFound", "ClaimLost", "MoveRefused", "StillRunning"]


class BoardError(OperatorError):
    """The board refused; nothing was changed. With `keep` what was written about the refusal (an event) stays."""

    def __init__(self, message: str, *, keep: bool = False) -> None:
        super().__init__(message)
        self.keep = keep


class CardNotFound(BoardError):
    """No card, comment, question or attachment of that id."""


class MoveRefused(BoardError):
    """A card cannot go from its state by that verb; the text names those that are possible."""


class StillRunning(MoveRefused):
    """A worker holds the card and nothing proves that it is gone."""


class ClaimLost(BoardError):
    """The claim is another's now, or the card has ended: this worker must write nothing more."""


class BudgetSpent(TryLater):
    """No money or tokens are left for a card or for the day; nothing was claimed. Exit code 75."""
