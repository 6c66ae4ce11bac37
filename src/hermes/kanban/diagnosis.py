"""Everything that could hold a board up, looked for at once. Changes nothing and ends no process."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from hermes.kanban.board import Board
from hermes.kanban.card import Card, Run
from hermes.kanban.moves import OPEN
from hermes.kanban.reading import CardFilter
from hermes.kanban.run_process import RunFiles

__all__ = ["Finding", "examine"]

#: Cards of a kind that are named one by one.
_NAMED = 10


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was found: `bad` holds work up. `cure` is a command."""

    what: str
    cure: str = ""
    card: str | None = None
    bad: bool = True


def examine(board: Board, *, profiles: Collection[str], folder: Path, served: bool) -> list[Finding]:
    """Look at a board; `folder` is its own here, `served` whether a dispatcher is there."""
    cards = {card.id: card for card in board.cards(CardFilter(status=OPEN))}
    found: list[Finding] = []
    waiting = [card for card in cards.values() if card.status in ("ready", "review")]
    if waiting and not served:
        found.append(
            Finding(
                what=f"{len(waiting)} cards are ready and no dispatcher serves the board",
                cure="hermes kanban daemon --detach",
            )
        )
    meta = board.meta()
    if meta.get("paused"):
        found.append(Finding(what=f"the board is paused: {meta['paused']}", cure="hermes kanban pause --off"))
    found += _nobody(cards, profiles)
    found += _parked_parents(board, cards)
    found += [each for run in board.live_runs() if (each := _of_run(board, run, folder)) is not None]
    questions = board.questions()
    for question in questions:
        found.append(
            Finding(
                what=f"{question.card_id} asks: {question.question[:200]}",
                cure=f"hermes kanban answer {question.card_id} TEXT",
                card=question.card_id,
            )
        )
    asked = {question.card_id for question in questions}
    for card in cards.values():
        if card.status == "blocked" and card.id not in asked:
            why = card.block_reason or card.last_failure_error or "set aside"
            found.append(
                Finding(
                    what=f"{card.id} is blocked: {why[:200]}", cure=f"hermes kanban unblock {card.id}", card=card.id
                )
            )
    return found


def _nobody(cards: dict[str, Card], profiles: Collection[str]) -> list[Finding]:
    found = []
    for card in cards.values():
        if card.status not in ("ready", "todo"):
            continue
        if card.assignee is None:
            what = f"{card.id} is nobody's: {card.title[:80]}"
        elif card.assignee not in profiles:
            what = f"{card.id} is for the profile {card.assignee!r}, which is not here"
        else:
            continue
        found.append(Finding(what=what, cure=f"hermes kanban assign {card.id} PROFILE", card=card.id))
    more = len(found) - _NAMED
    return found[:_NAMED] + ([Finding(what=f"… {more} more are nobody's")] if more > 0 else [])


def _parked_parents(board: Board, cards: dict[str, Card]) -> list[Finding]:
    """Cards that wait for one which does not end by itself."""
    found = []
    for card in cards.values():
        if card.status != "todo":
            continue
        for parent in board.show(card.id).parents:
            if parent.kind == "needs" and parent.status in ("blocked", "triage", "scheduled"):
                found.append(
                    Finding(
                        what=f"{card.id} waits for {parent.id}, which is {parent.status} and does not end by itself",
                        cure=f"hermes kanban why {parent.id}",
                        card=card.id,
                    )
                )
    return found


def _of_run(board: Board, run: Run, folder: Path) -> Finding | None:
    if run.manual:
        return None
    state = RunFiles(folder / "runs").state(run, board.here)
    if state == "gone":
        return Finding(
            what=f"the worker of {run.card_id} is gone and nobody has noticed",
            cure="hermes kanban dispatch",
            card=run.card_id,
        )
    if state == "unknown":
        return Finding(
            what=f"whether the worker of {run.card_id} (process {run.pid}) lives cannot be told from here: it ran in "
            "another container of this machine",
            cure=f"hermes kanban reclaim {run.card_id}",
            card=run.card_id,
        )
    if state == "alive" and run.workspace and not os.path.isdir(run.workspace):
        return Finding(what=f"the folder of {run.card_id} is gone: {run.workspace}", cure="hermes kanban dispatch")
    return None
