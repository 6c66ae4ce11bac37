"""Planning beside the dispatcher: ideas in triage are split into cards by a process of their own, a few at a time.

The process asks the model and pays from the board's money; here is only decided for which cards one starts. A card that
a person has to look at (it went in circles, or its plan failed before) is left alone, and one that there was no money
for is for a while. One process plans a card.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes.config.kanban import KanbanSettings
from hermes.core.errors import OperatorError
from hermes.kanban.board import Board
from hermes.kanban.card import Card
from hermes.kanban.launching import Started
from hermes.kanban.leading import Reason
from hermes.kanban.reading import CardFilter
from hermes.kanban.reasons import noted

__all__ = ["PLANNED_BY", "PLAN_FAILED", "PLAN_PUT_OFF", "Planning"]

#: How the leases of planners begin; a card's id follows.
PLANNED_BY = "plan:"
#: The event of a plan that could not be made.
PLAN_FAILED = "decompose_failed"
#: The event of one that only had to wait: `reason` is that of the card, as in `leading.Reason`.
PLAN_PUT_OFF = "decompose_put_off"
#: Plans that are made at once.
_AT_ONCE = 3
#: Seconds before a plan that had to wait is tried again.
_LATER = 600.0


class Planning:
    """Plans the ideas of one board; `start` begins the process that plans a card and raises `OperatorError`."""

    def __init__(
        self, board: Board, start: Callable[[Card], Started], settings: KanbanSettings, say: Callable[[str], None]
    ) -> None:
        self._board = board
        self._start = start
        self._settings = settings
        self._say = say
        self._running: dict[str, Started] = {}
        self._since: dict[str, int] = {}  # the newest event when each began

    def ended(self) -> bool:
        """Whether a plan was finished since the last pass."""
        return any(process.poll() is not None for process in self._running.values())

    def look(self, *, rest: bool, most: int | None = None) -> tuple[list[str], list[Reason]]:
        """Start plans, none with `rest` and at most `most`; returns the cards they are for, and why others in triage
        stay there."""
        for card_id, process in list(self._running.items()):
            if process.poll() is not None:
                del self._running[card_id]
                self._board.settle_plans(card_id)
                self._see_end(card_id, process.poll() or 0, self._since.pop(card_id))
        ideas = self._board.cards(CardFilter(status=("triage",)))
        begun: list[str] = []
        left: list[Reason] = []
        room = min(self._settings.auto_decompose_per_tick, _AT_ONCE - len(self._running))
        most = room if most is None else min(room, most)
        for card in ideas:
            reason = self._obstacle(card)
            if reason is not None:
                left.append(reason)
            elif not rest and len(begun) < most:
                found = self._begin(card)
                begun += [card.id] if found is None else []
                left += [found or _planning(card)]
        return begun, left

    def _see_end(self, card_id: str, code: int, since: int) -> None:
        """Note a failure of which the process itself said nothing, or it would be tried again and again."""
        if not code or self._board.find(card_id).status != "triage":
            return
        told = self._board.newest_events(card=card_id, kinds=(PLAN_FAILED, PLAN_PUT_OFF))
        if not any(event.id > since for event in told):
            error = f"the process that planned it ended with code {code}; hermes kanban log {card_id}"
            self._board.note(PLAN_FAILED, author="dispatcher", card=card_id, error=error)

    def _begin(self, card: Card) -> Reason | None:
        since = self._board.last_event()
        try:
            self._running[card.id] = self._start(card)
        except OperatorError as error:
            return Reason(card_id=card.id, reason="plan_failed", detail=str(error), cure="hermes kanban doctor")
        self._since[card.id] = since
        self._say(f"{card.id}: a model plans it (process {self._running[card.id].pid})")
        return None

    def _obstacle(self, card: Card) -> Reason | None:
        """Why a card in triage is not planned now; None where it may be."""
        if card.block_reason or card.block_recurrences:
            return Reason(
                card_id=card.id, reason="triage", detail=card.block_reason or "it went in circles",
                cure=f"hermes kanban specify {card.id}   or   hermes kanban edit {card.id}",
            )  # fmt: skip
        if card.id in self._running or self._board.leader(f"{PLANNED_BY}{card.id}") is not None:
            return _planning(card)
        failed = [
            event
            for event in self._board.newest_events(card=card.id, kinds=(PLAN_FAILED,))
            if event.created_at >= card.updated_at
        ]
        if len(failed) >= self._settings.failure_limit:
            why = str(failed[-1].payload.get("error") or "without a word")
            return Reason(
                card_id=card.id, reason="plan_failed", detail=f"no plan after {len(failed)} tries: {why}",
                cure=f"hermes kanban decompose {card.id}   or   hermes kanban edit {card.id} --body TEXT",
            )  # fmt: skip
        put_off = self._board.newest_events(card=card.id, kinds=(PLAN_PUT_OFF,), limit=1)
        if put_off and put_off[0].created_at >= max(card.updated_at, self._board.clock() - _LATER):
            return noted(card, str(put_off[0].payload.get("reason")), str(put_off[0].payload.get("error")))
        return None


def _planning(card: Card) -> Reason:
    return Reason(card_id=card.id, reason="planning", detail="a model plans it", cure=f"hermes kanban log {card.id}")
