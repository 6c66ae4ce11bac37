"""Making cards of a goal: the plan that a model gives, how it comes onto the board, and how a goal stands."""

from __future__ import annotations

import pytest

from hermes.core.errors import UsageError
from hermes.kanban.board import Board
from hermes.kanban.card import Card, NewCard
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import BoardError, MoveRefused
from hermes.kanban.leading import Reason
from hermes.kanban.orchestrator import PLANNER, Member, Plan, plan_goal, put_plan, read_plan
from hermes.kanban.tree import read_tree, standing

TEAM = [Member(name="coder", description="writes programs"), Member(name="tester")]


def goal(board: Board, **more: object) -> Card:
    order = NewCard(title="Ship it", body="soon", triage=True, **more)  # type: ignore[arg-type]
    return board.create(order, author="me").card


def plan(*tasks: dict[str, object], **more: object) -> Plan:
    return read_plan({"fanout": True, "tasks": list(tasks), **more}, TEAM, "tester")


def test_the_planner_is_told_the_goal_and_what_each_profile_is_for(board: Board) -> None:
    text = plan_goal(goal(board), TEAM)
    assert "Goal: Ship it" in text and "- coder: writes programs" in text and "- tester: (no description)" in text


def test_a_plan_becomes_cards_that_the_goal_waits_for(board: Board) -> None:
    root = goal(board, priority=3, budget_usd=2.0)
    tasks = (
        {"title": "a", "body": "do a", "assignee": "Coder", "acceptance": "a is there"},
        {"title": "b", "assignee": "nobody at all", "parents": [0], "review": True},
    )
    first, second = put_plan(board, root, plan(*tasks), orchestrator="lead", reviewer="tester")
    assert (first.assignee, first.status, first.acceptance, first.created_by) == (
        "coder",
        "ready",
        "a is there",
        PLANNER,
    )
    assert (second.assignee, second.status, second.reviewer) == ("tester", "todo", "tester")
    assert (first.priority, first.budget_usd) == (3, 2.0)
    found = board.find(root.id)
    assert (found.status, found.assignee) == ("todo", "lead")
    assert [each.id for each in board.show(root.id).parents] == [first.id, second.id]
    with pytest.raises(MoveRefused):
        put_plan(board, root, plan(*tasks), orchestrator="lead")


def test_a_plan_that_cannot_be_leaves_the_board_as_it_was(board: Board) -> None:
    root = goal(board)
    before = board.last_event()
    with pytest.raises(UsageError, match="needs card 5, which is not in it"):
        plan({"title": "a", "parents": [5]})
    with pytest.raises(UsageError, match="needs card 0, which is itself"):
        plan({"title": "a", "parents": [0]})
    with pytest.raises(UsageError, match="no cards"):
        plan()
    circle = plan({"title": "a", "parents": [1]}, {"title": "b", "parents": [0]})
    with pytest.raises(BoardError, match="cycle"):
        put_plan(board, root, circle, orchestrator="lead")
    assert board.last_event() == before and [card.id for card in board.cards()] == [root.id]


def test_a_goal_that_one_worker_does_best_becomes_one_task(board: Board) -> None:
    root = goal(board)
    one = read_plan(
        {"fanout": False, "title": "Ship it well", "assignee": "coder", "acceptance": "shipped"}, TEAM, None
    )
    assert put_plan(board, root, one, orchestrator="lead") == []
    found = board.find(root.id)
    assert (found.status, found.title, found.assignee, found.acceptance) == (
        "ready",
        "Ship it well",
        "coder",
        "shipped",
    )


def test_how_a_goal_stands(board: Board) -> None:
    root = goal(board)
    (first,) = put_plan(board, root, plan({"title": "a", "assignee": "coder"}), orchestrator="lead")
    assert standing(read_tree(board, root.id)).state == "going"
    board.block(first.id, "red or blue?", Authority(author="coder"), kind="needs_input")
    asked = standing(read_tree(board, root.id))
    assert asked.state == "person" and asked.person[0].cure == f"hermes kanban answer {first.id} TEXT"
    board.answer(first.id, "red", author="me")
    board.note_reasons([Reason(card_id=first.id, reason="cap")])
    assert standing(read_tree(board, root.id)).state == "going", "that passes by itself"
    board.note_reasons([Reason(card_id=first.id, reason="no_profile", detail="there is none")])
    assert standing(read_tree(board, root.id)).person[0].detail == "there is none"
    board.complete(first.id, Completion(summary="x"), Authority(author="me"))
    board.complete(root.id, Completion(summary="x"), Authority(author="me"))
    assert standing(read_tree(board, root.id)).state == "done"
