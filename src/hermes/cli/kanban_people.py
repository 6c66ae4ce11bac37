"""`hermes kanban questions`, `answer` and `merge`: what a person does between the runs of workers."""

from __future__ import annotations

import os
from functools import partial

import anyio.from_thread
import anyio.to_thread
import click
import msgspec

from hermes.chat.render import printable
from hermes.cli.kanban_parts import changing, open_named
from hermes.cli.opening import parts_without_model
from hermes.cli.options import Sources
from hermes.cli.running import run_async
from hermes.compose.judging import judge
from hermes.core.errors import UsageError
from hermes.kanban.card import Card, Check
from hermes.kanban.merging import Merged, RunCheck, merge_tree
from hermes.kanban.reasons import serving, when
from hermes.kanban.tree import read_tree
from hermes.runtime.isolation import Isolation

__all__ = ["answer", "merge", "questions"]


@click.command(epilog="\b\nExamples:\n  hermes kanban questions\n  hermes kanban questions --json")
@click.option("--all", "every", is_flag=True, help="Answered ones too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_context
def questions(context: click.Context, /, every: bool, as_json: bool) -> int:
    """Show what workers ask; their cards wait."""
    opened = open_named(context)
    with opened.board as board:
        found = board.questions(answered=every)
        titles = {each.card_id: board.find(each.card_id).title for each in found}
    for each in found:
        if as_json:
            answer_ = {**msgspec.to_builtins(each), "title": titles[each.card_id]}
            click.echo(msgspec.json.encode(answer_).decode())
            continue
        click.echo(printable(f"{each.card_id}  {titles[each.card_id]}"))
        click.echo(printable(f"  {each.asked_by}, {when(each.asked_at)}: {each.question}"))
        if each.choices:
            click.echo(printable(f"  possible: {' · '.join(each.choices)}"))
        if each.answer:
            click.echo(printable(f"  answered by {each.answered_by}: {each.answer}"))
        else:
            click.echo(f"  hermes kanban answer {each.card_id} TEXT")
    if not found and not as_json:
        click.echo("nobody asks anything")
    return 0


@click.command(epilog="\b\nExamples:\n  hermes kanban answer t_1a2b3c4d 'On staging'\n  hermes kanban answer 3 yes")
@click.argument("card")
@click.argument("text", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def answer(context: click.Context, /, card: str, text: tuple[str, ...], as_json: bool) -> int:
    """Answer what a card asks (by the card, or the number of the question); its work goes on where it stood."""
    opened = changing(context)
    with opened.board as board:
        done = board.answer(card, " ".join(text), author=opened.author)
        found = board.find(done.card_id)
        served = bool(serving(board))
    if as_json:
        click.echo(msgspec.json.encode({**msgspec.to_builtins(done), "status": found.status}).decode())
        return 0
    click.echo(f"{found.id} is {found.status}")
    if not served and found.status in ("ready", "review"):
        click.echo("no dispatcher serves the board: hermes kanban daemon --detach", err=True)
    return 0


@click.command(epilog="\b\nExamples:\n  hermes kanban merge t_1a2b3c4d\n  hermes kanban merge t_1a2b3c4d --into main")
@click.argument("root")
@click.option("--into", default=None, metavar="BRANCH", help="The branch; merge/ROOT, begun at HEAD, if not given.")
@click.option("--repository", default=None, metavar="DIR", help="The repository, if the cards do not say.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each card.")
@click.pass_context
def merge(context: click.Context, /, root: str, into: str | None, repository: str | None, as_json: bool) -> int:
    """Join the branches of finished cards in the order of their dependencies; the check of each is run after it, held
    and judged as a worker's commands are.

    Stops at the first that conflicts or fails, with the branch as it was before. Pushes nothing, deletes nothing.
    """
    opened = changing(context)
    with opened.board as board:
        tree = read_tree(board, root)
    named = [card.workspace_path for card in tree.cards if card.workspace_kind == "worktree" and card.workspace_path]
    where = repository or (named[0] if named else opened.repository)
    if not where:
        raise UsageError("the cards name no repository: give --repository DIR.")

    def tell(merged: Merged) -> None:
        if as_json:
            click.echo(msgspec.json.encode(merged).decode())
        else:
            click.echo(printable(_line(merged)))

    found: list[Merged] = []

    async def join() -> int:
        repository = os.path.abspath(os.path.expanduser(where))
        check = _checking(opened.sources)
        work = partial(merge_tree, tree, repository, into=into, check=check, tell=tell)
        found.extend(await anyio.to_thread.run_sync(work))
        return 0

    run_async(join)
    stopped = found[-1].outcome in ("conflict", "check")
    if not as_json:
        target = into or f"merge/{tree.root}"
        click.echo(f"{target} is as it was before {found[-1].card}" if stopped else f"all of it is on {target}")
    return 1 if stopped else 0


def _checking(sources: Sources) -> RunCheck:
    """What runs a card's check from the thread of a join."""
    parts = parts_without_model(sources)

    def check(card: Card, place: str, isolation: Isolation | None) -> Check:
        run = partial(judge, parts, place, card.check_command or "", isolation=isolation)
        found = anyio.from_thread.run(run)
        return Check(passed=found.passed, output=found.output, exit_code=found.exit_code)

    return check


def _line(merged: Merged) -> str:
    words = {
        "joined": f"joined as {merged.commit[:12]}", "there": "is there already",
        "conflict": f"stopped: {merged.detail}", "check": f"stopped, its check fails: {merged.detail}",
    }  # fmt: skip
    return f"{merged.card}  {merged.branch}: {words[merged.outcome]}"
