"""Whether starting more workers would only burn attempts: a person's pause, or the same failure on card after card.

Where several cards fail in the same way within minutes the fault is not theirs: a provider is down, a key is gone. The
board then rests for a while, once said, and the cards' own counts are given back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from hermes.kanban.board import Board
from hermes.kanban.leading import Failure
from hermes.kanban.tending import SILENT

__all__ = ["Outages"]

#: Cards that fail alike, within how many seconds, and for how many the board then rests.
ALIKE, WITHIN, REST = 3, 600.0, 300.0


class Outages:
    """Looks at the failures of one board."""

    def __init__(self, board: Board, say: Callable[[str], None]) -> None:
        self._board = board
        self._say = say

    def paused(self, dry_run: bool = False) -> tuple[str, str] | None:
        """Why nothing is to be started, as a word and a sentence; None when work goes on."""
        meta = self._board.meta()
        now = self._board.clock()
        by_hand = meta.get("paused")
        if by_hand:
            return "paused", str(by_hand) if isinstance(by_hand, str) else "the board is paused"
        resting = meta.get("resting")
        if isinstance(resting, dict) and float(resting["until"]) > now:
            return "failing", f"{resting['why']}; it goes on in {float(resting['until']) - now:.0f} s"
        since = max(now - WITHIN, float(resting["until"]) if isinstance(resting, dict) else 0.0)
        alike = _alike(self._board.failures(since))
        if not alike or dry_run:
            return None
        count = len({failure.card_id for failure in alike})
        why = f"{count} cards failed in the same way: {alike[-1].error[:200]}"
        self._board.forgive([failure.run_id for failure in alike], author="dispatcher")
        self._board.set_meta({"resting": {"until": now + REST, "why": why}})
        self._board.note("reconciled", author="dispatcher", paused=why, seconds=REST)
        self._say(f"the board rests for {REST:.0f} s: {why}")
        return "failing", why


def _alike(failures: list[Failure]) -> list[Failure]:
    """The failures of the error that most cards share, if enough do."""
    groups: dict[str, list[Failure]] = defaultdict(list)
    for failure in failures:
        # A kill, a restart of the machine, a worker that only stops: what becomes of processes names no cause.
        if not failure.error.startswith(SILENT):
            groups[failure.error_fingerprint].append(failure)
    largest = max(groups.values(), key=lambda group: len({each.card_id for each in group}), default=[])
    return largest if len({each.card_id for each in largest}) >= ALIKE else []
