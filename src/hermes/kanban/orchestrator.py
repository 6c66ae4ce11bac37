"""Making cards of a goal: what a model is asked, how its answer is read, and how it comes onto the board.

The model sees the goal and the profiles with what each is for; it answers with cards, who does each, and which wait for
which. The goal's own card stays, waits for them all, and goes to the orchestrator, who sums up once they are done. All
of it is one transaction: a plan is on the board whole or not at all. Nothing here asks a model itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hermes.core.errors import UsageError
from hermes.kanban.board import Board
from hermes.kanban.card import Card, NewCard
from hermes.kanban.creating import Part

__all__ = ["PLAN_SCHEMA", "PLANNER", "TASK_SCHEMA", "Member", "Plan", "plan_goal", "put_plan", "read_plan"]

#: Who is named as author of cards that were planned.
PLANNER = "auto-decomposer"
#: Cards that one plan may make.
MOST = 40
#: Characters of a goal that are told.
TITLE, BODY = 400, 4_000


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A profile that work may go to, and what it is for."""

    name: str
    description: str = ""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One card of a plan; `parents` are numbers of cards of the plan, from 0, that have to be done first."""

    title: str
    body: str = ""
    assignee: str | None = None
    acceptance: str = ""
    parents: tuple[int, ...] = ()
    review: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a goal: cards (`fanout`), or one clear task for `assignee`."""

    fanout: bool
    rationale: str = ""
    title: str = ""
    body: str = ""
    assignee: str | None = None
    acceptance: str = ""
    tasks: tuple[Planned, ...] = ()


_CARD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 120},
        "body": {"type": "string"},
        "assignee": {"type": ["string", "null"]},
        "acceptance": {"type": "string"},
        "parents": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "review": {"type": "boolean"},
    },
    "required": ["title", "body", "assignee", "acceptance"],
}
PLAN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "fanout": {"type": "boolean"},
        "rationale": {"type": "string"},
        "title": {"type": "string"},
        "body": {"type": "string"},
        "assignee": {"type": ["string", "null"]},
        "acceptance": {"type": "string"},
        "tasks": {"type": "array", "items": _CARD, "maxItems": MOST},
    },
    "required": ["fanout"],
}
TASK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "body": {"type": "string"}, "acceptance": {"type": "string"}},
    "required": ["title", "body", "acceptance"],
}


def plan_goal(card: Card, members: Sequence[Member], *, fanout: bool = True) -> str:
    """What the planner is asked; without `fanout` only to make one clear task of the card."""
    roster = "\n".join(f"- {each.name}: {each.description or '(no description)'}" for each in members)
    head = f"Goal: {card.title[:TITLE]}\n\n{card.body[:BODY] or '(nothing more was said)'}"
    if not fanout:
        return (
            f"{head}\n\nMake one clear task of this for a worker who knows nothing else: a title of one line, a body "
            "with all it needs to know, and an acceptance line that says how one can see that it is done. Do not do "
            "the work, and invent no facts."
        )
    return (
        f"{head}\n\nProfiles that work can go to:\n{roster}\n\n"
        "Plan this goal as cards on a shared board; do not do the work. Split only what is worth a worker of its own: "
        "each costs tokens. A worker sees its own card and the results of the cards it builds on, and nothing else, so "
        "a body has to hold all it needs. Name for each card the profile whose description fits, the numbers of the "
        "cards of your list (from 0) that have to be done first as parents, and an acceptance line that says how one "
        "can see that it is done. Cards without parents run at the same time. review: true sends a card's result to a "
        "reviewer. If one worker does it best, answer with fanout false, and title, body, assignee and acceptance."
    )


def read_plan(value: Any, members: Sequence[Member], default: str | None) -> Plan:
    """Read a planner's answer; a name that is no profile becomes `default`.

    Raises:
        UsageError: it is no plan: no cards, a parent that is none of them.
    """
    try:
        plan = msgspec.convert(value, Plan, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"the plan cannot be used: {error}. No cards were made of it; try again.") from None
    known = {each.name for each in members}

    def who(name: str | None) -> str | None:
        wanted = (name or "").strip().lower()
        return wanted if wanted in known else default

    tasks = []
    for number, each in enumerate(plan.tasks):
        wrong = [index for index in each.parents if index >= len(plan.tasks) or index == number]
        if wrong:
            raise UsageError(
                f"the plan cannot be used: its card {number} needs card {wrong[0]}, which is "
                f"{'itself' if wrong[0] == number else 'not in it'}. No cards were made of it; try again."
            )
        tasks.append(msgspec.structs.replace(each, assignee=who(each.assignee)))
    if plan.fanout and not tasks:
        raise UsageError("the plan has no cards. No cards were made of it; try again.")
    return msgspec.structs.replace(plan, tasks=tuple(tasks), assignee=who(plan.assignee))


def put_plan(
    board: Board, card: Card, plan: Plan, *, orchestrator: str, reviewer: str | None = None, check: str | None = None
) -> list[Card]:
    """Bring a plan onto the board; returns its cards, none where the goal became one task.

    Cards work where the goal's card does. `check` is run by each card that leaves something in a worktree.

    Raises:
        BoardError: the cards wait for each other in a circle, or the goal is no longer in triage.
    """
    if not plan.fanout:
        title, body = plan.title or card.title, plan.body or card.body
        board.split(
            card.id, (), author=PLANNER, assignee=plan.assignee, title=title, body=body, acceptance=plan.acceptance
        )
        return []
    parts = [
        Part(
            order=NewCard(
                title=each.title,
                body=each.body,
                assignee=each.assignee,
                acceptance=each.acceptance or None,
                reviewer=reviewer if each.review else None,
                workspace_kind=card.workspace_kind,
                workspace_path=card.workspace_path,
                tenant=card.tenant,
                priority=card.priority,
                budget_usd=card.budget_usd,
                budget_tokens=card.budget_tokens,
                check_command=check if card.workspace_kind != "scratch" else None,
            ),
            needs=each.parents,
        )
        for each in plan.tasks
    ]
    return board.split(card.id, parts, author=PLANNER, assignee=orchestrator)
