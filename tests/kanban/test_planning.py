"""Making cards of a goal: the plan that a model gives, how it comes onto the board, and how a goal stands."""

from __future__ import annotations

import pytest

from hermes.config.kanban import KanbanSettings
from hermes.core.errors import UsageError
from hermes.kanban.board import Board
from hermes.kanban.budgets import Reserve
from hermes.kanban.card import Card, NewCard
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.errors import BoardError, MoveRefused
from hermes.kanban.leading import Reason
from hermes.kanban.orchestrator import PLANNER, Member, Plan, plan_goal, put_plan, read_plan
from hermes.kanban.planning import PLAN_FAILED, PLAN_PUT_OFF, PLANNED_BY, Planning
from hermes.kanban.reasons import why
from hermes.kanban.swarm import put_swarm
from hermes.kanban.tree import read_tree, standing
from tests.kanban.conftest import StandingClock

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


def test_a_goal_is_given_to_several_workers_whose_results_are_checked_and_joined(board: Board) -> None:
    order = NewCard(title="Find the leak", body="in the pump", check_command="make test", budget_usd=1.0)
    made = put_swarm(
        board, order, workers=["coder", "coder", "tester"], verifier="tester", synthesizer="lead", author="me"
    )
    assert [(each.title, each.assignee, each.status) for each in made.workers] == [
        ("Find the leak (coder 1)", "coder", "ready"),
        ("Find the leak (coder 2)", "coder", "ready"),
        ("Find the leak (tester)", "tester", "ready"),
    ]
    assert made.check is not None and {each.check_command for each in made.workers} == {"make test"}
    workers = {each.id for each in made.workers}
    assert {each.id for each in board.show(made.check.id).parents} == workers
    assert {each.id for each in board.show(made.goal.id).parents} == {*workers, made.check.id}
    assert (made.goal.assignee, made.goal.status, made.goal.budget_usd) == ("lead", "todo", 1.0)
    assert "as the check found them" in board.find(made.goal.id).body and "in the pump" in made.check.body
    alone = put_swarm(board, order, workers=["coder"], verifier=None, synthesizer="lead", author="me")
    assert alone.check is None and [each.id for each in board.show(alone.goal.id).parents] == [alone.workers[0].id]
    before = len(board.cards())
    with pytest.raises(UsageError, match="1 to 20 workers"):
        put_swarm(board, order, workers=[], verifier=None, synthesizer="lead", author="me")
    assert len(board.cards()) == before


class Planner:
    """A process that plans until it is told to end."""

    pid, started = 4711, "1"

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float) -> int:
        return self.code or 0


def test_ideas_are_planned_beside_the_dispatcher_a_few_at_a_time(board: Board) -> None:
    ideas = [goal(board) for _ in range(5)]
    made: dict[str, Planner] = {}
    planning = Planning(board, lambda card: made.setdefault(card.id, Planner()), KanbanSettings(), lambda line: None)
    assert planning.look(rest=True) == ([], []) and not planning.ended()
    begun, left = planning.look(rest=False)
    assert begun == [card.id for card in ideas[:3]] and {each.reason for each in left} == {"planning"}
    board.note_reasons(left)
    assert standing(read_tree(board, ideas[0].id)).state == "going", "that needs no person"
    assert why(board, board.show(ideas[0].id)).detail == "a model plans it"
    assert planning.look(rest=False)[0] == []
    money = board.reserve_plan(ideas[0].id, Reserve(usd=1.0), profile="lead")
    made[ideas[0].id].code = 0
    put_plan(board, ideas[0], plan({"title": "a"}), orchestrator="lead")
    assert planning.ended() and planning.look(rest=False)[0] == [ideas[3].id]
    assert board.spend(money, usd=0.5, tokens=1) is False, "what a lost process set aside is given back"


def test_what_cannot_be_planned_waits_for_a_person_and_says_why(board: Board) -> None:
    stuck, planned = goal(board), goal(board)
    planning = Planning(board, lambda card: Planner(), KanbanSettings(failure_limit=1), lambda line: None)
    board.note(PLAN_FAILED, author="x", card=stuck.id, error="the model gave no plan")
    taken, lease = board.lead(f"{PLANNED_BY}{planned.id}", "process 1", token=None, ttl=60.0)
    begun, left = planning.look(rest=False)
    assert taken and begun == [] and [each.reason for each in left] == ["plan_failed", "planning"]
    assert "no plan after 1 tries: the model gave no plan" in left[0].detail
    board.note_reasons(left)
    assert standing(read_tree(board, stuck.id)).person[0].reason == "plan_failed"
    board.let_go(f"{PLANNED_BY}{planned.id}", lease.token)
    assert planning.look(rest=False)[0] == [planned.id]


def test_a_planner_that_dies_without_a_word_is_not_started_for_ever(board: Board) -> None:
    idea = goal(board)
    made: list[Planner] = []

    def start(card: Card) -> Planner:
        made.append(Planner())
        return made[-1]

    planning = Planning(board, start, KanbanSettings(failure_limit=2), lambda line: None)
    for code in (2, -9):
        assert planning.look(rest=False)[0] == [idea.id]
        made[-1].code = code
    begun, left = planning.look(rest=False)
    assert begun == [] and len(made) == 2
    assert left[0].reason == "plan_failed" and "ended with code -9" in left[0].detail


def test_an_idea_that_there_is_no_money_for_is_planned_later(board: Board, clock: StandingClock) -> None:
    idea = goal(board)
    made: list[Planner] = []

    def start(card: Card) -> Planner:
        made.append(Planner())
        return made[-1]

    planning = Planning(board, start, KanbanSettings(failure_limit=1), lambda line: None)
    assert planning.look(rest=False)[0] == [idea.id]
    board.note(PLAN_PUT_OFF, author=PLANNER, card=idea.id, reason="budget", error="nothing is left of today")
    made[0].code = 75
    begun, left = planning.look(rest=False)
    assert begun == [] and (left[0].reason, left[0].detail) == ("budget", "nothing is left of today")
    clock.at += 3600
    assert planning.look(rest=False)[0] == [idea.id], "that was no failed plan"


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
