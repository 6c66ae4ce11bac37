"""What one pass over a board may start and has to read: no more than was said, and nothing of work long past."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes.config.kanban import KanbanSettings
from hermes.core.errors import OperatorError
from hermes.kanban.board import Board
from hermes.kanban.card import Card, NewCard, Proof
from hermes.kanban.claiming import Claimed
from hermes.kanban.cleaning import clean
from hermes.kanban.dispatcher import Dispatcher
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import StillRunning
from hermes.kanban.launching import Started
from hermes.kanban.reading import CardFilter
from hermes.kanban.run_process import RunFiles
from tests.kanban.conftest import HERE, StandingClock

DAY = 86_400.0


class Process:
    """One that goes on; its number is nobody's."""

    pid, started = 4_194_304, "1"

    def poll(self) -> int | None:
        return None

    def wait(self, timeout: float) -> int:
        raise OperatorError("it goes on")


class Launcher:
    """Starts nothing and says so."""

    def start(self, claimed: Claimed, profile: str, files: RunFiles) -> Started:
        return Process()


def dispatcher(board: Board, folder: Path) -> Dispatcher:
    return Dispatcher(
        board,
        Launcher(),  # type: ignore[arg-type]
        folder=folder,
        settings=KanbanSettings(max_in_progress=8),
        profiles=lambda: ["coder"],
        memory=lambda: None,
        plan=lambda card: Process(),
    )


def make(board: Board, title: str, *, triage: bool = False) -> Card:
    return board.create(NewCard(title=title, assignee="coder", triage=triage), author="me").card


@pytest.mark.parametrize(("most", "workers", "plans"), [(0, 0, 0), (1, 1, 0), (3, 2, 1), (None, 2, 3)])
def test_plans_count_with_the_workers_of_a_pass(
    board: Board, tmp_path: Path, most: int | None, workers: int, plans: int
) -> None:
    for number in range(4):
        make(board, f"idea {number}", triage=True)
    for number in range(2):
        make(board, f"card {number}")
    passed = dispatcher(board, tmp_path).pass_once(most=most, sign=False)
    assert (len(passed.spawned), len(passed.planned)) == (workers, plans)


def test_a_persons_claim_is_given_back_when_its_time_has_run_out(
    board: Board, tmp_path: Path, clock: StandingClock
) -> None:
    card, kept = make(board, "for an hour"), make(board, "for good")
    board.claim_by_hand(card.id, author="me", ttl=3600.0)
    board.claim_by_hand(kept.id, author="me")
    clock.at += 3000.0
    board.heartbeat_by_hand(card.id, author="me")
    clock.at += 3000.0
    served = dispatcher(board, tmp_path)
    assert served.pass_once(most=0, sign=False).released == {}
    run = board.run(str(board.find(card.id).current_run_id))
    with pytest.raises(StillRunning, match="has not run out"):
        board.release(run.id, "reclaimed", Proof(kind="lease", host_id=HERE.host_id))
    clock.at += 601.0
    assert served.pass_once(most=0, sign=False).released == {card.id: "ready"}
    assert "took it until then" in (board.run(run.id).error or "") and board.find(kept.id).status == "running"
    assert board.find(card.id).consecutive_failures == 0


class Watched(Board):
    """A board that says how many ended cards were asked for, and refuses to list them all."""

    asked: set[str] = set()

    def cards(self, wanted: CardFilter | None = None) -> list[Card]:
        raise AssertionError("all cards were read")

    def ended(self, ids: object) -> dict[str, float]:
        self.asked = set(ids)  # type: ignore[call-overload]
        return super().ended(self.asked)


def test_cleaning_asks_only_for_cards_of_which_something_is_left(
    board: Board, clock: StandingClock, tmp_path: Path
) -> None:
    old, fresh, living, past = (make(board, name) for name in ("old", "fresh", "living", "past"))
    for card in (old, fresh, past):
        board.complete(card.id, Completion(summary="x"), Authority(author="me"))
    (tmp_path / "logs").mkdir()
    for card, age in ((old, 0.0), (fresh, None), (living, 0.0)):
        log = tmp_path / "logs" / f"{card.id}.log"
        log.write_text("words\n")
        if age is not None:
            os.utime(log, (age, age))
    (tmp_path / "workspaces" / old.id).mkdir(parents=True)
    clock.at += 2 * DAY
    watched = Watched(board.database, board.here)
    found = clean(watched, tmp_path, event_days=30, log_days=30)
    assert watched.asked == {old.id, living.id}
    assert (found.logs, found.folders) == (1, [old.id])
    assert sorted(path.stem for path in (tmp_path / "logs").iterdir()) == sorted([fresh.id, living.id])


def test_many_ended_cards_are_asked_for_in_parts(board: Board) -> None:
    card = make(board, "one")
    board.complete(card.id, Completion(summary="x"), Authority(author="me"))
    names = [f"t_{number:08x}" for number in range(1200)]
    assert list(board.ended([*names, card.id])) == [card.id]
