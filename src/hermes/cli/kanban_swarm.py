"""`hermes kanban swarm`: one goal for several workers at once, a check of what they found, and one result of it."""

from __future__ import annotations

import click

from hermes.chat.render import printable
from hermes.cli.kanban_parts import changing
from hermes.cli.kanban_planning import orchestrator_of
from hermes.cli.options import Names
from hermes.cli.screens import print_json
from hermes.kanban.card import NewCard, parse_workspace
from hermes.kanban.reasons import serving
from hermes.kanban.swarm import put_swarm

__all__ = ["swarm"]


@click.command(
    epilog='\b\nExamples:\n  hermes kanban swarm "Find the leak" --workers coder,coder,researcher --verifier reviewer\n'
    '  hermes kanban swarm "Name the product" --workers a,b --verifier v --synthesizer s --json'
)
@click.argument("goal")
@click.option("--workers", type=Names(), required=True, metavar="CSV", help="Profiles that work on it at once.")
@click.option("--verifier", default=None, metavar="PROFILE", help="Who checks what they found; nobody if not given.")
@click.option("--synthesizer", default=None, metavar="PROFILE", help="Who makes one result of it; who plans otherwise.")
@click.option("--body", default="", metavar="TEXT", help="What all of them need to know.")
@click.option("--workspace", default="scratch", metavar="W", help="Of each: scratch, dir:/PATH, worktree:/PATH.")
@click.option("--check", default=None, metavar="COMMAND", help="Has to succeed in each worker's workspace.")
@click.option("--priority", default=0, metavar="N", help="Higher is taken first.")
@click.option("--tenant", default=None, metavar="NAME", help="Whose it is.")
@click.option("--budget-usd", type=float, default=None, metavar="USD", help="What each card may cost.")
@click.option("-q", "--quiet", is_flag=True, help="Print the id of the goal's card alone.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def swarm(
    context: click.Context, /, goal: str, workers: tuple[str, ...], verifier: str | None, synthesizer: str | None,
    body: str, workspace: str, check: str | None, priority: int, tenant: str | None, budget_usd: float | None,
    quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Give a goal to several workers at once, have their results checked, and one made of them."""
    kind, path = parse_workspace(workspace)
    order = NewCard(
        title=goal, body=body, workspace_kind=kind, workspace_path=path, check_command=check, priority=priority,
        tenant=tenant, budget_usd=budget_usd,
    )  # fmt: skip
    opened = changing(context)
    with opened.board as board:
        made = put_swarm(
            board, order, workers=[name.lower() for name in workers], verifier=verifier,
            synthesizer=synthesizer or orchestrator_of(opened.sources), author=opened.author,
        )  # fmt: skip
        served = bool(serving(board))
    if as_json:
        print_json({"goal": made.goal, "workers": made.workers, "check": made.check, "dispatcher": served})
        return
    if quiet:
        click.echo(made.goal.id)
        return
    for card in (*made.workers, *([made.check] if made.check is not None else []), made.goal):
        click.echo(printable(f"{card.id}  {card.status:7}  {card.assignee}: {card.title}"))
    if not served:
        click.echo("hermes: no dispatcher serves this board: hermes kanban daemon --detach, or dispatch once", err=True)
