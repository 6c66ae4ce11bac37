"""`hermes kanban run "GOAL"`: from a goal to a result in one command; the board does the work.

Makes a card, lets the orchestrator split it, serves the board unless somebody does already, and shows how it goes until
the goal is done or nothing goes on without a person. Ctrl+C leaves the cards as they are; workers go on.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from hermes.chat.render import printable
from hermes.cli.kanban_live import LiveBoard, plain_lines
from hermes.cli.kanban_parts import OpenedBoard, changing, dispatcher_of, refuse_in_task, stop_on_signals
from hermes.cli.kanban_planning import make_plan, orchestrator_of
from hermes.cli.kanban_telling import teller_of
from hermes.core.errors import HermesError, OperatorError, UsageError
from hermes.kanban.card import Card, NewCard, parse_workspace
from hermes.kanban.reasons import serving
from hermes.kanban.tree import Standing, Tree, read_tree, standing

__all__ = ["run"]

#: Seconds between two looks at the board.
LOOK = 0.5
#: Looks for which a goal that is done waits for its last worker to leave.
LAST_WORDS = 20
EXIT_PERSON, EXIT_INTERRUPTED = 75, 130


@click.command(
    epilog='\b\nExamples:\n  hermes kanban run "Compare the three queues and recommend one"\n'
    '  hermes kanban run "Add OAuth" --workspace worktree:/src/app --check "make test" --reviewer reviewer\n'
    "  hermes kanban run --card t_1a2b3c4d"
)
@click.argument("goal", required=False)
@click.option("--card", default=None, metavar="CARD", help="Go on with a goal that is on the board.")
@click.option("--workspace", default="scratch", metavar="W", help="scratch, dir:/PATH, worktree or worktree:/PATH.")
@click.option("--check", default=None, metavar="COMMAND", help="Has to succeed in the workspace of each card.")
@click.option("--reviewer", default=None, metavar="PROFILE", help="Who judges the cards that the plan wants judged.")
@click.option("--assignee", default=None, metavar="PROFILE", help="No plan: this profile does it as one card.")
@click.option("--workers", type=click.IntRange(min=1), default=None, metavar="N", help="Workers at once.")
@click.option("--budget-usd", type=click.FloatRange(min=0), default=None, metavar="USD", help="Of each card.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each change, the result last.")
@click.pass_context
def run(
    context: click.Context, /, goal: str | None, card: str | None, workspace: str, check: str | None,
    reviewer: str | None, assignee: str | None, workers: int | None, budget_usd: float | None, as_json: bool,
) -> int:  # fmt: skip
    """Reach a goal with several agents: plan it as cards, work on them, show the board until it is done.

    Exit code: 0 done, 75 a person has to do something first (what is printed), 130 after Ctrl+C; the cards stay.
    """
    refuse_in_task("hermes kanban run")
    if (goal is None) == (card is None):
        raise UsageError("give a goal, or --card with one that is on the board.")
    opened = changing(context)
    with opened.board as board:
        if goal is not None:
            root = _goal(opened, goal, workspace, assignee, budget_usd, check)
            if not as_json:
                click.echo(printable(f"{root.id}  {root.title}"), err=True)
        else:
            root = board.find(card or "")
        if root.status == "triage":
            try:
                make_plan(opened, root, fanout=True, reviewer=reviewer, check=check)
            except (OperatorError, UsageError) as error:
                again = f"The goal waits on the board: hermes kanban run --card {root.id} plans it again."
                gap = "\n\n" if "\n" in str(error) else " "
                error.args = (f"{error}{gap}{again}",)
                raise
        return _watch(opened, root.id, workers, as_json)


def _goal(
    opened: OpenedBoard, goal: str, workspace: str, assignee: str | None, usd: float | None, check: str | None
) -> Card:
    kind, path = parse_workspace(workspace)
    lines = goal.strip().splitlines()
    order = NewCard(
        title=lines[0][:200] if lines else "",
        body=goal.strip() if len(lines) > 1 or len(goal) > 200 else "",
        assignee=assignee or orchestrator_of(opened.sources),
        triage=assignee is None,
        workspace_kind=kind,
        workspace_path=path,
        check_command=check if assignee is not None else None,
        budget_usd=usd,
    )
    return opened.board.create(order, author=opened.author).card


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl+C and SIGTERM set for the length of a block."""
    asked = threading.Event()
    before = stop_on_signals(asked)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _served(opened: OpenedBoard, workers: int | None, notes: list[str]) -> Iterator[threading.Event]:
    """Serve the board for the length of a block, unless another process does. The event says that serving failed."""
    stop, failed = threading.Event(), threading.Event()
    dispatcher = dispatcher_of(opened, notes.append, workers, tell=teller_of(opened.sources, opened.slug))
    if not dispatcher.lock.take():
        notes.append("another process serves the board: " + (", ".join(serving(opened.board)) or "it is starting"))
        yield failed
        return

    def serve() -> None:
        try:
            dispatcher.serve(stop)
        except HermesError as error:
            notes.append(str(error))
            failed.set()

    thread = threading.Thread(target=serve, name="dispatcher")
    thread.start()
    try:
        yield failed
    finally:
        stop.set()
        thread.join()
        dispatcher.lock.release()


def _watch(opened: OpenedBoard, root: str, workers: int | None, as_json: bool) -> int:
    """Show the goal until it is over or waits for a person."""
    notes: list[str] = []
    live_board = LiveBoard(live=sys.stderr.isatty() and not as_json)
    with _interruptible() as interrupted, _served(opened, workers, notes) as failed, live_board as live:
        seen: dict[str, str] = {}
        quiet = 0
        while True:
            tree = read_tree(opened.board, root)
            now = standing(tree)
            for line in plain_lines(tree, seen, as_json):
                live.line(line)
            while notes:
                if not as_json:
                    live.note(notes.pop(0))
                else:
                    notes.pop(0)
            live.show(tree)
            # The dispatcher may be about to move a card: what holds for two looks holds.
            quiet = quiet + 1 if now.state != "going" else 0
            over = now.state == "done" and (quiet > LAST_WORDS or not _working(opened, tree))
            if over or (quiet > 3 and now.state != "done") or failed.is_set() or interrupted.wait(LOOK):
                break
    return _end(opened, tree, now, as_json, interrupted=interrupted.is_set() and now.state != "done")


def _working(opened: OpenedBoard, tree: Tree) -> bool:
    """Whether a worker of the goal is still about to leave; the dispatcher has to see it go."""
    ids = {card.id for card in tree.cards}
    return any(run.card_id in ids and not run.manual for run in opened.board.live_runs())


def _end(opened: OpenedBoard, tree: Tree, now: Standing, as_json: bool, *, interrupted: bool) -> int:
    root = opened.board.find(tree.root)
    code = 0 if now.state == "done" else EXIT_INTERRUPTED if interrupted else EXIT_PERSON if now.person else 1
    if as_json:
        answer = {
            "type": "result", "task_id": root.id, "status": root.status, "result": root.result, "exit_code": code,
            "needs": [msgspec.to_builtins(each) for each in now.person],
        }  # fmt: skip
        click.echo(msgspec.json.encode(answer).decode())
        return code
    if now.state == "done":
        click.echo(printable(root.result or root.summary or f"{root.id} is {root.status}"))
        return code
    if interrupted:
        click.echo(f"left as it is; workers go on. Go on with it: hermes kanban run --card {root.id}", err=True)
        return code
    click.echo("it waits for you:", err=True)
    for each in now.person:
        click.echo(printable(f"  {each.card_id}: {each.detail}\n    {each.cure}"), err=True)
    click.echo(f"then go on with it: hermes kanban run --card {root.id}", err=True)
    return code
