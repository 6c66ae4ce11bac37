"""`hermes kanban create|list|show|edit|assign|comment|link|unlink`: cards and what hangs on them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from hermes.chat.card_text import card_lines, card_rows, read_moment, read_span
from hermes.chat.render import printable
from hermes.cli.kanban_parts import NOBODY, OpenedBoard, changing, open_named
from hermes.cli.options import refused
from hermes.cli.screens import print_json, terminal_width
from hermes.config.endpoints import EFFORTS
from hermes.core.errors import UsageError
from hermes.kanban.board import Board
from hermes.kanban.card import Card, NewCard, parse_workspace
from hermes.kanban.context import worker_context
from hermes.kanban.creating import Created
from hermes.kanban.home import SESSION
from hermes.kanban.moves import STATUSES
from hermes.kanban.placing import WorkState, work_of
from hermes.kanban.reading import CardFilter
from hermes.kanban.reasons import serving

__all__ = ["assign", "comment", "context_", "create", "edit", "link", "list_", "set_model", "show", "unlink"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _text(given: str) -> str:
    """A text of the command line: `@FILE` and `-` (stdin) are read."""
    if given == "-":
        return sys.stdin.read()
    return Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given


@click.command(
    epilog='\b\nExamples:\n  hermes kanban create "Read the API" --assignee researcher\n'
    '  hermes kanban create "Write the client" --assignee coder --parent t_1a2b3c4d \\\n'
    '      --workspace worktree:/src/app --check "make test" --reviewer reviewer\n'
    "  hermes kanban create Report --body @goal.md --max-runtime 2h --budget-usd 3 --json"
)
@click.argument("title")
@click.option("--body", default="", metavar="TEXT", help="All its worker needs to know; @FILE and - (stdin) are read.")
@click.option("--assignee", default=None, metavar="PROFILE", help="Who does it.")
@click.option("--parent", "parents", multiple=True, metavar="CARD", help="It waits for that card (repeatable).")
@click.option("--follows", multiple=True, metavar="CARD", help="It reads that card's result without waiting.")
@click.option("--workspace", default="scratch", metavar="W", help="scratch, dir:/PATH, worktree or worktree:/PATH.")
@click.option("--branch", default=None, metavar="NAME", help="Branch of a worktree.")
@click.option("--priority", default=0, metavar="N", help="Higher is taken first.")
@click.option("--acceptance", "--completion-contract", default=None, metavar="TEXT", help="When it is done, in words.")
@click.option("--check", default=None, metavar="COMMAND", help="Run in the workspace on completion; has to succeed.")
@click.option("--reviewer", default=None, metavar="PROFILE", help="Who judges it before it is done.")
@click.option("--triage", is_flag=True, help="A raw idea that has to become a task first.")
@click.option("--blocked", is_flag=True, help="It waits for a person from the start.")
@click.option("--scheduled-at", default=None, metavar="WHEN", help="Parked until then: 2026-03-01 09:00, or 2h.")
@click.option("--max-runtime", default=None, metavar="SPAN", help="Of one run: 30s, 5m, 2h, 1d.")
@click.option(
    "--max-retries", type=click.IntRange(min=0), default=None, metavar="N", help="Failures until it is put aside."
)
@click.option("--budget-usd", type=float, default=None, metavar="USD", help="What all its runs may cost.")
@click.option("--budget-tokens", type=int, default=None, metavar="N", help="Tokens of all its runs.")
@click.option("--model", default=None, metavar="MODEL", help="Model of its workers.")
@click.option("--provider", default=None, metavar="NAME", help="Provider of that model.")
@click.option("--reasoning", type=click.Choice(EFFORTS), default=None, metavar="LEVEL", help="How much they think.")
@click.option("--goal", "goal_mode", is_flag=True, help="A hard goal: its worker is sent on until it ends the card.")
@click.option("--goal-max-turns", type=click.IntRange(min=1), default=None, metavar="N",
              help="How often it is sent on at most (20).")  # fmt: skip
@click.option("--tenant", default=None, metavar="NAME", help="Whose it is; its children inherit it.")
@click.option("--idempotency-key", default=None, metavar="KEY", help="A card with this key is made once.")
@click.option("-q", "--quiet", is_flag=True, help="Print the card's id alone.")
@refused(skill="--skill")
@_json
@click.pass_context
def create(
    context: click.Context, /, as_json: bool, workspace: str, max_runtime: str | None, scheduled_at: str | None,
    triage: bool, blocked: bool, quiet: bool, body: str, **given: Any,
) -> None:  # fmt: skip
    """Make a card. It is ready at once, unless it waits for another one."""
    if triage and blocked:
        raise UsageError("--triage and --blocked exclude each other: give one of them.")
    if given["goal_max_turns"] is not None and not given["goal_mode"]:
        raise UsageError("--goal-max-turns is for cards with --goal: give both, or neither.")
    kind, path = parse_workspace(workspace)
    renamed = {
        "branch_name": "branch", "check_command": "check", "model_override": "model", "provider_override": "provider",
        "reasoning_effort": "reasoning",
    }  # fmt: skip
    values = {name: given.pop(old) for name, old in renamed.items()}
    order = NewCard(
        **values, **given, body=_text(body), triage=triage, initial_status="blocked" if blocked else None,
        workspace_kind=kind, workspace_path=path,
        max_runtime_seconds=int(read_span(max_runtime)) if max_runtime else None,
        scheduled_at=read_moment(scheduled_at, time.time()) if scheduled_at else None,
        session_id=os.environ.get(SESSION) or None,
    )  # fmt: skip
    opened = changing(context)
    with opened.board as board:
        made = board.create(order, author=opened.author)
        served = bool(serving(board))
    if as_json:
        print_json({"card": made.card, "new": made.new, "warnings": made.warnings, "dispatcher": served})
        return
    if quiet:
        click.echo(made.card.id)
    else:
        _tell(made, opened, served)


def _tell(made: Created, opened: OpenedBoard, served: bool) -> None:
    card = made.card
    where = f" on {opened.slug}" if opened.slug != "default" else ""
    known = "" if made.new else " (it was there already, with this key)"
    click.echo(f"{card.id} is {card.status}{where}, for {card.assignee or 'nobody'}{known}")
    for warning in made.warnings:
        click.echo(f"hermes: {warning}", err=True)
    if card.assignee is None and card.status != "triage" and not opened.sources.loaded.settings.kanban.default_assignee:
        click.echo(f"hermes: nobody works on it yet: hermes kanban assign {card.id} PROFILE", err=True)
    elif not served:
        click.echo("hermes: no dispatcher serves this board: hermes kanban daemon --detach, or dispatch once", err=True)


@click.command(
    "list",
    epilog="\b\nExamples:\n  hermes kanban list\n  hermes kanban list --status blocked,review\n"
    "  hermes kanban list --assignee coder --limit 0 --json",
)
@click.option("--assignee", default=None, metavar="PROFILE", help="Only this profile's; none: nobody's.")
@click.option("--mine", is_flag=True, help="Only those of the profile in use.")
@click.option("--status", default="", metavar="CSV", help=f"Only in these states: {', '.join(STATUSES)}.")
@click.option("--tenant", default=None, metavar="NAME", help="Only of this tenant.")
@click.option("--text", default=None, metavar="WORD", help="Only with this word in title or body.")
@click.option("--archived", is_flag=True, help="Those that were put away too.")
@click.option("--sort", default="priority-desc", metavar="ORDER", help="created, priority, status, assignee, title, …")
@click.option("--limit", type=click.IntRange(min=0), default=50, show_default=True, metavar="N", help="0: all.")
@_json
@click.pass_context
def list_(
    context: click.Context, /, assignee: str | None, mine: bool, status: str, limit: int, as_json: bool, **given: Any
) -> None:
    """List cards, the next to be taken first."""
    opened = open_named(context)
    if mine:
        assignee = opened.sources.loaded.home.profile
    states: Any = tuple(each.strip() for each in status.split(",") if each.strip())
    nobody = assignee in NOBODY
    wanted = CardFilter(
        assignee=None if nobody else assignee, unassigned=nobody, status=states, limit=limit + 1 if limit else None,
        **given,
    )  # fmt: skip
    with opened.board as board:
        cards = board.cards(wanted)
        stats = board.stats() if not as_json else None
    more = bool(limit) and len(cards) > limit
    cards = cards[:limit] if limit else cards
    if as_json:
        print_json({"board": opened.slug, "tasks": cards, "count": len(cards), "truncated": more})
        return
    for line in card_rows(cards, terminal_width()):
        click.echo(line)
    if not cards:
        click.echo(f"no cards on {opened.slug}" + (" that fit" if states or assignee or given["text"] else ""))
    if more and stats is not None:
        total = sum(count for name, count in stats.by_status.items() if name != "archived")
        click.echo(f"… the first {limit} of {total} cards; --limit 0 shows all")


@click.command(epilog="\b\nExamples:\n  hermes kanban show t_1a2b3c4d\n  hermes kanban show t_1a --json")
@click.argument("card")
@_json
@click.pass_context
def show(context: click.Context, /, card: str, as_json: bool) -> None:
    """Show a card with links, questions, runs, comments and attachments. The beginning of an id will do."""
    with open_named(context).board as board:
        view = board.show(card)
        spent = next((each for each in board.spending("card") if each.name == view.task.id), None)
    work = work_of(view)
    if as_json:
        print_json({**_plain(view), "spent": spent, "work": work})
        return
    for line in card_lines(view):
        click.echo(line)
    if work is not None:
        click.echo(printable(f"\n{_work_line(work)}"))
    if spent is not None:
        click.echo(
            f"\ncost  ${spent.usd:.4f}, {spent.tokens:,} tokens in {spent.runs} run{'s' if spent.runs != 1 else ''}"
        )


def _work_line(work: WorkState) -> str:
    files = ", ".join(work.files[:10]) + (f", … {len(work.files) - 10} more" if len(work.files) > 10 else "")
    commits = f"{work.commits} commit{'s' if work.commits != 1 else ''}"
    loose = f", not committed: {', '.join(work.dirty[:10])}" if work.dirty else ", nothing uncommitted"
    return (
        f"branch {work.branch} at {work.commit[:12]}, {commits}{f' ({files})' if files else ''}{loose}\n  {work.path}"
    )


def _plain(view: Any) -> dict[str, Any]:
    return {name: getattr(view, name) for name in view.__struct_fields__}


@click.command("context", epilog="\b\nExample:\n  hermes kanban context t_1a2b3c4d")
@click.argument("card")
@_json
@click.pass_context
def context_(context: click.Context, /, card: str, as_json: bool) -> None:
    """Print what the worker of a card is told."""
    with open_named(context).board as board:
        view = board.show(card)
        text = worker_context(view)
    if as_json:
        print_json({"card": view.task.id, "text": text})
    else:
        click.echo(printable(text), nl=False)


_FIELDS = {"check": "check_command", "model": "model_override", "provider": "provider_override",
           "reasoning": "reasoning_effort"}  # fmt: skip


@click.command(
    epilog="\b\nExamples:\n  hermes kanban edit t_1a2b3c4d --priority 5 --budget-usd 10\n"
    "  hermes kanban edit t_1a2b3c4d --body @goal.md --check 'make test'\n  hermes kanban edit t_1a2b3c4d --model none"
)
@click.argument("card")
@click.option("--title", default=None, metavar="TEXT")
@click.option("--body", default=None, metavar="TEXT", help="@FILE and - (stdin) are read.")
@click.option("--priority", type=int, default=None, metavar="N")
@click.option("--tenant", default=None, metavar="NAME")
@click.option("--acceptance", default=None, metavar="TEXT", help="When it is done, in words.")
@click.option("--check", default=None, metavar="COMMAND", help="Run on completion.")
@click.option("--reviewer", default=None, metavar="PROFILE")
@click.option("--max-runtime", "max_runtime_seconds", default=None, metavar="SPAN")
@click.option("--max-retries", default=None, metavar="N")
@click.option("--budget-usd", default=None, metavar="USD")
@click.option("--budget-tokens", default=None, metavar="N")
@click.option("--model", default=None, metavar="MODEL")
@click.option("--provider", default=None, metavar="NAME")
@click.option("--reasoning", default=None, metavar="LEVEL", help=f"One of {', '.join(EFFORTS)}.")
@_json
@click.pass_context
def edit(context: click.Context, /, card: str, as_json: bool, **given: Any) -> None:
    """Change fields of a card; `none` empties one. Its worker sees the change with its next run."""
    changes = {_FIELDS.get(name, name): _value(name, value) for name, value in given.items() if value is not None}
    if not changes:
        raise UsageError(
            "nothing to change: give --title, --body, --priority or another of `hermes kanban edit --help`"
        )
    opened = changing(context)
    with opened.board as board:
        after = board.edit(card, changes, author=opened.author)
    _said(after, as_json, f"{after.id}: {', '.join(changes)} changed")


@click.command(
    "set-model",
    epilog="\b\nExamples:\n  hermes kanban set-model t_1a2b3c4d anthropic/claude-opus-4.1 --reasoning high\n"
    "  hermes kanban set-model t_1a2b3c4d none",
)
@click.argument("card")
@click.argument("model")
@click.option("--provider", default=None, metavar="NAME", help="Provider of that model.")
@click.option("--reasoning", default=None, metavar="LEVEL", help="How much they think.")
@_json
@click.pass_context
def set_model(
    context: click.Context, /, card: str, model: str, provider: str | None, reasoning: str | None, as_json: bool
) -> None:
    """Say which model the workers of a card use, from their next run on; `none`: that of their profile."""
    nothing = model in NOBODY
    if nothing and provider not in (None, *NOBODY):
        raise UsageError("--provider goes with a model, and none was named.")
    changes = {"model_override": _value("model", model)}
    # a provider that was named for the model before does not belong to another one
    changes["provider_override"] = None if nothing or provider is None else _value("provider", provider)
    if reasoning is not None:
        changes["reasoning_effort"] = _value("reasoning", reasoning)
    opened = changing(context)
    with opened.board as board:
        after = board.edit(card, changes, author=opened.author)
    at = f" at {after.provider_override}" if after.provider_override else ""
    _said(after, as_json, f"{after.id}: its workers use {after.model_override or 'the model of their profile'}{at}")


def _value(name: str, given: Any) -> Any:
    if isinstance(given, str) and given in NOBODY:
        return "" if name in ("body",) else None
    if name == "body":
        return _text(given)
    if name == "max_runtime_seconds":
        return int(read_span(given))
    if name == "reasoning" and given not in EFFORTS:
        raise UsageError(f"--reasoning {given!r}: one of {', '.join(EFFORTS)}")
    kinds: dict[str, type[int] | type[float]] = {"max_retries": int, "budget_tokens": int, "budget_usd": float}
    if name not in kinds:
        return given
    try:
        return kinds[name](given)
    except ValueError:
        raise UsageError(f"--{name.replace('_', '-')} {given!r}: expected a number, or none") from None


def _said(card: Card, as_json: bool, text: str) -> None:
    if as_json:
        print_json({"card": card})
    else:
        click.echo(printable(text))


@click.command(epilog="\b\nExamples:\n  hermes kanban assign t_1a2b3c4d coder\n  hermes kanban assign t_1a2b3c4d none")
@click.argument("card")
@click.argument("profile")
@_json
@click.pass_context
def assign(context: click.Context, /, card: str, profile: str, as_json: bool) -> None:
    """Give a card to a profile, or to nobody (none). Refused while a worker has it."""
    opened = changing(context)
    with opened.board as board:
        after = board.assign(card, None if profile in NOBODY else profile, author=opened.author)
    _said(after, as_json, f"{after.id} is for {after.assignee or 'nobody'} now")


@click.command(
    epilog='\b\nExamples:\n  hermes kanban comment t_1a2b3c4d "The API moved"\n  hermes kanban comment t_1a -'
)
@click.argument("card")
@click.argument("text")
@click.option("--author", default=None, metavar="NAME", help="Who says it; you.")
@click.option(
    "--max-len", "most", type=click.IntRange(min=1), default=None, metavar="N", help="Cut it to N characters."
)
@_json
@click.pass_context
def comment(
    context: click.Context, /, card: str, text: str, author: str | None, most: int | None, as_json: bool
) -> None:
    """Say something about a card; its next worker reads it. - reads stdin, @FILE a file."""
    opened = changing(context)
    with opened.board as board:
        said = _text(text)
        cut = f"{said[: most - 1]}…" if most is not None and len(said) > most else said
        number = board.comment(card, cut, author=author or opened.author)
        found = board.find(card)
    if as_json:
        print_json({"card": found.id, "comment": number})
    else:
        click.echo(f"comment {number} on {found.id}")


def _pair(board: Board, parent: str, child: str) -> tuple[Card, Card]:
    return board.find(parent), board.find(child)


@click.command(
    epilog="\b\nExamples:\n  hermes kanban link t_parent t_child\n  hermes kanban link t_a t_b --kind follows"
)
@click.argument("parent")
@click.argument("child")
@click.option("--kind", type=click.Choice(["needs", "follows"]), default="needs", help="follows: read, do not wait.")
@_json
@click.pass_context
def link(context: click.Context, /, parent: str, child: str, kind: Any, as_json: bool) -> None:
    """Make CHILD wait for PARENT."""
    opened = changing(context)
    with opened.board as board:
        board.link(parent, child, author=opened.author, kind=kind)
        one, two = _pair(board, parent, child)
    verb = "waits for" if kind == "needs" else "reads"
    _linked(one, two, as_json, f"{two.id} ({two.status}) {verb} {one.id} ({one.status})")


@click.command(epilog="\b\nExample:\n  hermes kanban unlink t_parent t_child")
@click.argument("parent")
@click.argument("child")
@_json
@click.pass_context
def unlink(context: click.Context, /, parent: str, child: str, as_json: bool) -> None:
    """Let CHILD no longer wait for PARENT."""
    opened = changing(context)
    with opened.board as board:
        board.unlink(parent, child, author=opened.author)
        one, two = _pair(board, parent, child)
    _linked(one, two, as_json, f"{two.id} ({two.status}) no longer waits for {one.id}")


def _linked(parent: Card, child: Card, as_json: bool, text: str) -> None:
    if as_json:
        print_json({"parent": parent.id, "child": child.id, "status": child.status})
    else:
        click.echo(text)
