"""`hermes kanban decompose` and `specify`: a model makes cards, or one clear task, of what stands in triage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
import msgspec

from hermes.cli.kanban_parts import OpenedBoard, changing
from hermes.cli.one_answer import CLOCK, NoAnswer, Question, answered
from hermes.cli.options import Sources, open_sources
from hermes.cli.running import run_async
from hermes.config.profiles import read_profile
from hermes.core.errors import OperatorError, TryLater, UsageError
from hermes.core.limits import Limits
from hermes.kanban.budgets import share_of
from hermes.kanban.card import Card
from hermes.kanban.errors import BudgetSpent, MoveRefused, StillRunning
from hermes.kanban.home import profile_names
from hermes.kanban.orchestrator import PLAN_SCHEMA, PLANNER, TASK_SCHEMA, Member, plan_goal, put_plan, read_plan
from hermes.kanban.planning import PLAN_FAILED, PLAN_PUT_OFF, PLANNED_BY
from hermes.kanban.reading import CardFilter

__all__ = ["decompose", "make_plan", "members_of", "orchestrator_of", "specify"]

_SYSTEM = (
    "You plan work for several agents on a shared board. You have no tools and do no work yourself. Answer with one "
    "JSON object and nothing else."
)


def members_of(sources: Sources) -> list[Member]:
    """The profiles of the home with what they are for."""
    home = sources.loaded.home
    return [Member(name=name, description=read_profile(home.of(name)).description) for name in profile_names(home)]


def orchestrator_of(sources: Sources) -> str:
    """The profile that plans: the configured one, else the one that asks."""
    return sources.loaded.settings.kanban.orchestrator_profile.lower() or sources.loaded.home.profile


def make_plan(opened: OpenedBoard, card: Card, *, fanout: bool, reviewer: str | None, check: str | None) -> list[Card]:
    """Ask the orchestrator's model for a plan and bring it onto the board; returns the cards that were made.

    What it costs is the card's, and the day's.

    Raises:
        StillRunning: somebody else plans the card now. BudgetSpent: no money is left for it.
        OperatorError: the model did not answer with a plan. No cards were made.
        UsageError: the plan cannot be used.
    """
    orchestrator = orchestrator_of(opened.sources)
    sources = opened.sources
    if orchestrator != sources.loaded.home.profile:
        sources = open_sources(msgspec.structs.replace(sources.options, profile=orchestrator))
    members = members_of(sources)
    settings = opened.sources.loaded.settings.kanban
    answers: list[object] = []
    with _paying(opened, card, orchestrator) as (limits, spend):

        async def ask() -> int:
            answers.append(await _ask(sources, plan_goal(card, members, fanout=fanout), fanout, limits, spend))
            return 0

        run_async(ask)
    plan = read_plan(
        answers[0] if fanout else {"fanout": False, **_fields(answers[0])},
        members,
        card.assignee or settings.default_assignee.lower() or orchestrator,
    )
    if not fanout:
        plan = msgspec.structs.replace(plan, assignee=card.assignee or settings.default_assignee.lower() or None)
    return put_plan(
        opened.board,
        card,
        plan,
        orchestrator=orchestrator,
        reviewer=reviewer or settings.reviewer_profile.lower() or None,
        check=check,
    )


@contextmanager
def _paying(opened: OpenedBoard, card: Card, profile: str) -> Iterator[tuple[Limits, Callable[[float, int], None]]]:
    """What planning a card may take, and what notes what it took; nobody else plans it meanwhile."""
    board, lease = opened.board, f"{PLANNED_BY}{card.id}"
    taken, held = board.lead(lease, f"process {os.getpid()}", token=None, ttl=CLOCK + 60.0)
    if not taken:
        raise StillRunning(
            f"{card.id} is being planned by {held.holder}; `hermes kanban show {card.id}` has its cards."
        )
    try:
        run = board.reserve_plan(card.id, share_of(opened.sources.loaded.settings.kanban), profile=profile)
        took = (0.0, 0)

        def spend(usd: float, tokens: int) -> None:
            nonlocal took
            took = (usd, tokens)

        try:
            usd, tokens = board.reserved(run) or (0.0, 0)
            yield Limits(cost_usd=usd or None, tokens=tokens or None), spend
        finally:
            board.spend(run, usd=took[0], tokens=took[1], final=True)
    finally:
        board.let_go(lease, held.token)


def _fields(answer: object) -> dict[str, object]:
    return dict(answer) if isinstance(answer, dict) else {}


async def _ask(
    sources: Sources, goal: str, fanout: bool, limits: Limits, spend: Callable[[float, int], None]
) -> object:
    question = Question(
        system=_SYSTEM,
        goal=goal,
        schema=PLAN_SCHEMA if fanout else TASK_SCHEMA,
        label="planning",
        source="kanban",
        limits=limits,
    )
    try:
        return await answered(sources, question, refusal="the model gave no plan", spend=spend)
    except NoAnswer as error:
        raise OperatorError(f"{error} No cards were made of it; try again.") from None


_EXAMPLES = """\b
Examples:
  hermes kanban decompose t_1a2b3c4d
  hermes kanban decompose --all
"""


def _wanted(opened: OpenedBoard, card: str | None, every: bool, tenant: str | None) -> list[Card]:
    if (card is None) == (not every):
        raise UsageError("name one card in triage, or give --all.")
    if card is not None:
        return [opened.board.find(card)]
    return opened.board.cards(CardFilter(status=("triage",), tenant=tenant))


def _each(
    context: click.Context, card: str | None, every: bool, tenant: str | None, as_json: bool, fanout: bool
) -> int:
    opened = changing(context)
    failed: list[Exception] = []
    with opened.board as board:
        cards = _wanted(opened, card, every, tenant)
        for each in cards:
            try:
                made = make_plan(opened, each, fanout=fanout, reviewer=None, check=None)
            except (OperatorError, UsageError) as error:
                failed.append(error)
                _note_failure(opened, each, error)
                _tell(each, error=str(error), as_json=as_json)
                continue
            _tell(board.find(each.id), made, as_json=as_json)
        if not cards and not as_json:
            click.echo("nothing is in triage")
    later = all(isinstance(error, TryLater) for error in failed)
    return 0 if not failed else TryLater.exit_code if later else 1


def _note_failure(opened: OpenedBoard, card: Card, error: OperatorError | UsageError) -> None:
    """Whoever serves the board reads from it whether to try again, and when."""
    said = str(error)[:400]
    if isinstance(error, TryLater | StillRunning):
        reason = (
            "planning" if isinstance(error, StillRunning)
            else "budget" if isinstance(error, BudgetSpent)
            else "cooldown"
        )  # fmt: skip
        opened.board.note(PLAN_PUT_OFF, author=PLANNER, card=card.id, reason=reason, error=said)
    elif not isinstance(error, MoveRefused):
        opened.board.note(PLAN_FAILED, author=PLANNER, card=card.id, error=said)


def _tell(card: Card, made: Sequence[Card] = (), *, as_json: bool, error: str = "") -> None:
    if as_json:
        answer = {
            "task_id": card.id, "ok": not error, "reason": error or None, "fanout": bool(made),
            "child_ids": [each.id for each in made], "new_title": card.title, "status": card.status,
        }  # fmt: skip
        click.echo(msgspec.json.encode(answer).decode())
        return
    if error:
        click.echo(f"{card.id}: {error}", err=True)
        return
    click.echo(f"{card.id} is {card.status}: {card.title}" + (f" (for {card.assignee})" if card.assignee else ""))
    for each in made:
        click.echo(f"  {each.id}  {each.assignee or 'nobody'}: {each.title}")


@click.command(epilog=_EXAMPLES)
@click.argument("card", required=False)
@click.option("--all", "every", is_flag=True, help="Every card in triage.")
@click.option("--tenant", default=None, metavar="NAME", help="With --all: only this tenant's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each card.")
@click.pass_context
def decompose(context: click.Context, /, card: str | None, every: bool, tenant: str | None, as_json: bool) -> int:
    """Let the orchestrator's model split a card in triage into cards for the profiles that there are."""
    return _each(context, card, every, tenant, as_json, fanout=True)


@click.command(epilog=_EXAMPLES.replace("decompose", "specify"))
@click.argument("card", required=False)
@click.option("--all", "every", is_flag=True, help="Every card in triage.")
@click.option("--tenant", default=None, metavar="NAME", help="With --all: only this tenant's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each card.")
@click.pass_context
def specify(context: click.Context, /, card: str | None, every: bool, tenant: str | None, as_json: bool) -> int:
    """Let a model make one clear task of a card in triage: title, body, acceptance line."""
    return _each(context, card, every, tenant, as_json, fanout=False)
