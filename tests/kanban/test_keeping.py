"""Keeping a board in order: what goes with time, what contradicts itself, and what a person is told."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa

from hermes.kanban import tables as t
from hermes.kanban.board import Board, open_board
from hermes.kanban.budgets import Reserve
from hermes.kanban.card import Card, NewCard, Proof
from hermes.kanban.cleaning import clean
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import MoveRefused
from hermes.kanban.launching import open_log
from hermes.kanban.leading import Reason
from hermes.kanban.store import Location
from hermes.kanban.telling import session_tidings, tidings
from tests.kanban.conftest import HERE, StandingClock

DAY = 86_400.0


def make(board: Board, title: str, *parents: Card, **more: object) -> Card:
    order = NewCard(title=title, assignee="coder", parents=tuple(each.id for each in parents), **more)  # type: ignore[arg-type]
    return board.create(order, author="me").card


def test_what_is_left_of_old_cards_goes_and_the_cards_stay(board: Board, clock: StandingClock, tmp_path: Path) -> None:
    old, living = make(board, "old"), make(board, "living")
    board.complete(old.id, Completion(summary="x"), Authority(author="me"))
    for card in (old, living):
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / f"{card.id}.log").write_text("words\n")
        os.utime(tmp_path / "logs" / f"{card.id}.log", (0, 0))
        (tmp_path / "workspaces" / card.id).mkdir(parents=True)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "r_gone.exit").write_text("{}")
    os.utime(tmp_path / "runs" / "r_gone.exit", (0, 0))
    nothing = clean(board, tmp_path, event_days=30, log_days=None)
    assert (nothing.rows, nothing.logs, nothing.folders) == (0, 0, [])
    clock.at += 40 * DAY
    newest = board.last_event()
    found = clean(board, tmp_path, event_days=30, log_days=30)
    assert found.rows >= 1 and (found.logs, found.log_bytes, found.folders) == (1, 6, [old.id])
    assert board.find(old.id).summary == "x" and board.last_event() == newest
    assert board.events(card=living.id) and (tmp_path / "logs" / f"{living.id}.log").exists()
    assert (tmp_path / "workspaces" / living.id).is_dir() and not (tmp_path / "runs" / "r_gone.exit").exists()


def test_rows_that_contradict_each_other_are_put_right(board: Board) -> None:
    lost, early, late, parent, paid = (make(board, name) for name in ("lost", "early", "late", "parent", "paid"))
    board.link(parent.id, early.id, author="me")
    claimed = board.claim(profiles=["coder"], card=paid.id, money=Reserve(usd=1.0))
    assert claimed is not None
    run = claimed.claim.run_id
    board.release(run, "reclaimed", Proof(kind="ended", host_id=HERE.host_id))
    (money,) = board.repair()
    assert money.card == paid.id and "$1 and 0 tokens were set aside" in money.what and board.repair() == []
    with board.database.write() as tx:
        c = t.cards.c
        tx.run(t.cards.update().where(c.id == lost.id).values(status="running", current_run_id="r_none"))
        tx.run(t.cards.update().where(c.id == early.id).values(status="ready"))
        tx.run(t.cards.update().where(c.id == late.id).values(status="todo"))
        tx.run(t.cards.update().where(c.id == paid.id).values(busy_run=run))
        tx.run(t.reservations.update().values(settled=False))
    before = board.last_event()
    told = {(each.card, each.what.split()[0]) for each in board.repair(dry_run=True)}
    assert {card for card, _ in told} == {lost.id, early.id, late.id, paid.id} and board.last_event() == before
    assert len(board.repair()) == 5
    assert [board.find(each.id).status for each in (lost, early, late, paid)] == ["ready", "todo", "ready", "ready"]
    assert board.claim(profiles=["coder"], card=paid.id) is not None, "no process is waited for any more"
    assert board.repair() == []
    kinds = {event.kind for event in board.events(before)}
    assert "reconciled" in kinds


def test_a_damaged_file_is_told_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "kanban-board.db"
    with open_board(Location(slug="default", path=path), HERE) as board:
        card = make(board, "x")
        with sqlite3.connect(path) as other:  # keys are not enforced for whoever does not ask for it
            other.execute("INSERT INTO comments (card_id, author, body, created_at) VALUES ('t_none', 'x', 'y', 0)")
        other.close()
        (found,) = board.repair()
        assert not found.mended and "comments names a row of cards that is not there" in found.what
        assert board.find(card.id).status == "ready"


def test_a_person_says_that_they_still_work_on_a_card(board: Board, clock: StandingClock) -> None:
    card = make(board, "by hand")
    with pytest.raises(MoveRefused, match="nobody works on it"):
        board.heartbeat_by_hand(card.id, author="me")
    board.claim_by_hand(card.id, author="me")
    clock.at += 100
    board.heartbeat_by_hand(card.id, author="me", note="half")
    (run,) = board.runs(card.id)
    assert (run.heartbeat_at, run.expires) == (clock.at, None)
    assert board.events(card=card.id, kinds=("heartbeat",))[0].payload == {"note": "half"}
    other = make(board, "a worker's")
    assert board.claim(profiles=["coder"], card=other.id) is not None
    with pytest.raises(MoveRefused, match="sends its own signs of life"):
        board.heartbeat_by_hand(other.id, author="me")


def told(board: Board, *left: Reason) -> list[tuple[str, str | None, bool]]:
    return [(each.occasion, each.card, each.wished) for each in tidings(board, left)]


def run_of(board: Board, card: Card) -> Authority:
    claimed = board.claim(profiles=["coder"], card=card.id)
    assert claimed is not None
    return Authority(author="coder", claim=claimed.claim)


def test_what_workers_did_is_told_once_and_never_what_a_person_did(board: Board) -> None:
    before = make(board, "before")
    board.complete(before.id, Completion(summary="x"), Authority(author="me"))
    assert told(board) == [], "a board that was never told of begins now"
    first, by_hand = make(board, "first"), make(board, "by hand")
    goal = make(board, "goal", first)
    board.complete(by_hand.id, Completion(summary="x"), Authority(author="me"))
    board.complete(first.id, Completion(summary="x"), run_of(board, first))
    assert told(board) == [], "a step on the way, and a person's own doing"
    board.complete(goal.id, Completion(summary="all of it"), run_of(board, goal))
    (news,) = tidings(board, [])
    assert (news.occasion, news.card, news.text) == ("done", goal.id, "all of it")
    assert told(board) == []


def test_cards_that_wait_for_a_person_or_gave_up_are_told(board: Board) -> None:
    assert told(board) == []
    stuck, asks, broken, judged = (make(board, name) for name in ("stuck", "asks", "broken", "judged"))
    board.block(stuck.id, "no access", run_of(board, stuck), kind="capability")
    board.block(asks.id, "which?", run_of(board, asks), kind="needs_input")
    claimed = board.claim(profiles=["coder"], card=broken.id)
    assert claimed is not None
    ended = Proof(kind="ended", host_id=HERE.host_id)
    board.release(claimed.claim.run_id, "crashed", ended, error="boom", failure_limit=1)
    board.request_review(judged.id, "look", run_of(board, judged))
    found = {each.card: each for each in tidings(board, [], reviewer="")}
    assert [found[each.id].occasion for each in (stuck, asks, broken, judged)] == [
        "needs_answer", "needs_answer", "failed", "needs_answer",
    ]  # fmt: skip
    assert found[asks.id].cure == f"hermes kanban answer {asks.id} TEXT" and "boom" in found[broken.id].text


def test_what_is_put_right_afterwards_hides_nothing_from_a_conversation(board: Board) -> None:
    broken, ended = (make(board, name, session_id="s") for name in ("broken", "ended"))
    claimed = board.claim(profiles=["coder"], card=broken.id)
    assert claimed is not None
    gone = Proof(kind="ended", host_id=HERE.host_id)
    board.release(claimed.claim.run_id, "crashed", gone, error="503 everywhere", failure_limit=1)
    board.complete(ended.id, Completion(summary="x"), run_of(board, ended))
    board.forgive([claimed.claim.run_id], author="dispatcher")
    with board.database.write() as tx:
        tx.run(t.cards.update().where(t.cards.c.id == ended.id).values(current_run_id=claimed.claim.run_id))
    assert {each.card for each in board.repair()} == {ended.id}
    news = session_tidings(board, "s", 0, profile="default")
    assert [(each.occasion, each.card) for each in news] == [("failed", broken.id), ("done", ended.id)]


def test_a_card_that_somebody_asked_for_is_told_whatever_it_is(board: Board) -> None:
    assert told(board) == []
    step = make(board, "step")
    make(board, "goal", step)
    board.notify(step.id, ["done"], author="me")
    assert [(each.card_id, each.occasions) for each in board.notifications()] == [(step.id, ["done"])]
    board.complete(step.id, Completion(summary="x"), Authority(author="somebody else"))
    assert told(board) == [("done", step.id, True)]
    board.notify(step.id, None, author="me")
    assert board.notifications() == []


def test_the_days_money_is_told_once_a_day(board: Board, clock: StandingClock) -> None:
    left = Reason(card_id="t_1", reason="budget", detail="the board today has spent it")
    assert told(board, left) == [("budget", "t_1", False)] and told(board, left) == []
    clock.at += DAY
    assert told(board, left) == [("budget", "t_1", False)]


def test_other_rows_stay_as_they_are_when_a_wish_is_repeated(board: Board) -> None:
    card = make(board, "x")
    board.notify(card.id, ["done", "failed"], author="me")
    board.notify(card.id, ["failed", "done"], author="other")
    with board.database.read() as tx:
        assert tx.value(sa.select(t.notifications.c.author)) == "me"


def test_logs_are_for_this_user_alone_also_the_one_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "dispatcher.log"
    for text in (b"one\n", b"two two\n", b"three\n"):
        with open_log(log, 10) as out:
            out.write(text)
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        log.chmod(0o644)
    aside = tmp_path / "logs" / "dispatcher.log.1"
    assert log.read_bytes() == b"three\n" and aside.read_bytes() == b"e\ntwo two\n"
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
