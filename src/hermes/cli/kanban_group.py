"""`hermes kanban`: the table of its commands. Each is imported only when it is called."""

from __future__ import annotations

import difflib
import importlib
from typing import NamedTuple

import click

__all__ = ["COMMANDS", "kanban"]


class _Entry(NamedTuple):
    module: str
    attribute: str
    summary: str
    part: str = "Serving the board"


_CARDS, _MOVES, _LOOKS, _BOARDS = "Cards", "Moving cards", "Looking", "Boards"
#: Every command: where it is and what it is for; one without a summary is not listed. The summaries stand here so that
#: help loads none of the modules.
COMMANDS: dict[str, _Entry] = {
    "create": _Entry("hermes.cli.kanban_cards", "create", "Make a card.", _CARDS),
    "list": _Entry("hermes.cli.kanban_cards", "list_", "List cards, the next to be taken first.", _CARDS),
    "ls": _Entry("hermes.cli.kanban_cards", "list_", "", _CARDS),
    "show": _Entry("hermes.cli.kanban_cards", "show", "Show a card with everything that hangs on it.", _CARDS),
    "edit": _Entry("hermes.cli.kanban_cards", "edit", "Change fields of a card.", _CARDS),
    "assign": _Entry("hermes.cli.kanban_cards", "assign", "Give a card to a profile, or to nobody.", _CARDS),
    "link": _Entry("hermes.cli.kanban_cards", "link", "Make a card wait for another one.", _CARDS),
    "unlink": _Entry("hermes.cli.kanban_cards", "unlink", "Let it wait no longer.", _CARDS),
    "comment": _Entry("hermes.cli.kanban_cards", "comment", "Say something about a card.", _CARDS),
    "attach": _Entry("hermes.cli.kanban_boards", "attach", "Keep a file with a card.", _CARDS),
    "attachments": _Entry(
        "hermes.cli.kanban_boards", "attachments", "List, write or remove the files of a card.", _CARDS
    ),
    "context": _Entry("hermes.cli.kanban_cards", "context_", "Print what a card's worker is told.", _CARDS),
    "complete": _Entry("hermes.cli.kanban_moves", "complete", "Finish cards.", _MOVES),
    "block": _Entry("hermes.cli.kanban_moves", "block", "Set a card aside.", _MOVES),
    "unblock": _Entry("hermes.cli.kanban_moves", "unblock", "Let cards go on.", _MOVES),
    "archive": _Entry("hermes.cli.kanban_moves", "archive", "Put cards away.", _MOVES),
    "promote": _Entry("hermes.cli.kanban_moves", "promote", "Make cards ready that nothing holds back.", _MOVES),
    "schedule": _Entry("hermes.cli.kanban_moves", "schedule", "Park a card until a time.", _MOVES),
    "claim": _Entry("hermes.cli.kanban_moves", "claim", "Take a card yourself.", _MOVES),
    "reclaim": _Entry("hermes.cli.kanban_moves", "reclaim", "Take cards from their workers.", _MOVES),
    "reopen": _Entry("hermes.cli.kanban_moves", "reopen", "Take finished cards up again.", _MOVES),
    "request-review": _Entry("hermes.cli.kanban_moves", "request_review", "Hand a card to a reviewer.", _MOVES),
    "request-changes": _Entry("hermes.cli.kanban_moves", "request_changes", "Send a judged card back.", _MOVES),
    "watch": _Entry("hermes.cli.kanban_watch", "watch", "The board as it moves.", _LOOKS),
    "stats": _Entry("hermes.cli.kanban_figures", "stats", "Cards and money in figures.", _LOOKS),
    "assignees": _Entry("hermes.cli.kanban_figures", "assignees", "Who can be given cards, and what each has.", _LOOKS),
    "runs": _Entry("hermes.cli.kanban_figures", "runs", "The attempts at a card.", _LOOKS),
    "log": _Entry("hermes.cli.kanban_figures", "log", "What the workers of a card wrote.", _LOOKS),
    "events": _Entry("hermes.cli.kanban_figures", "events", "What happened.", _LOOKS),
    "tail": _Entry("hermes.cli.kanban_figures", "tail", "What happens to a card until it ends.", _LOOKS),
    "export": _Entry("hermes.cli.kanban_moving", "export", "Write the work of a board as training rows.", _LOOKS),
    "boards": _Entry("hermes.cli.kanban_boards", "boards", "The boards of this home.", _BOARDS),
    "init": _Entry("hermes.cli.kanban_boards", "init", "Make the board, say where it is.", _BOARDS),
    "import": _Entry("hermes.cli.kanban_moving", "import_", "Copy cards from another program's board.", _BOARDS),
    "run": _Entry("hermes.cli.kanban_run", "run", "Reach a goal: plan it, work on it, show the board until done."),
    "decompose": _Entry("hermes.cli.kanban_planning", "decompose", "Let a model split a card in triage into cards."),
    "specify": _Entry("hermes.cli.kanban_planning", "specify", "Let a model make one clear task of a card in triage."),
    "questions": _Entry("hermes.cli.kanban_people", "questions", "Show what workers ask."),
    "answer": _Entry("hermes.cli.kanban_people", "answer", "Answer what a card asks; its work goes on."),
    "merge": _Entry("hermes.cli.kanban_people", "merge", "Join the branches of finished cards, checking after each."),
    "dispatch": _Entry("hermes.cli.kanban_dispatch", "dispatch", "Start workers for what is ready, once."),
    "daemon": _Entry("hermes.cli.kanban_dispatch", "daemon", "Serve the board until it is stopped."),
    "why": _Entry("hermes.cli.kanban_why", "why", "Say why a card is not worked on, and what cures it."),
    "doctor": _Entry("hermes.cli.kanban_why", "doctor", "Look at everything that could hold the board up."),
    "pause": _Entry("hermes.cli.kanban_why", "pause", "Start no more workers, or start them again."),
    "work": _Entry("hermes.cli.kanban_work", "work", ""),
}

_EPILOG = """\b
Examples:
  hermes kanban create "Read the API and write a report" --assignee researcher
  hermes kanban watch
  hermes kanban dispatch
  hermes kanban daemon --detach
  hermes kanban why t_1a2b
"""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, entry in COMMANDS.items() if entry.summary]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name.replace("_", "-"))  # verbs are named as the tools name them, too
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
        if args[0].replace("_", "-") not in COMMANDS and near:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [(name, COMMANDS[name]) for name in self.list_commands(ctx)]
        for part in dict.fromkeys(entry.part for _, entry in shown):
            with formatter.section(part):
                formatter.write_dl([(name, entry.summary) for name, entry in shown if entry.part == part])


@click.group(cls=_Commands, epilog=_EPILOG)
@click.option("--board", default=None, metavar="NAME", help="Which board; the current one if not given.")
@click.pass_context
def kanban(context: click.Context, /, board: str | None) -> None:
    """The board: cards that several named agents and people work on for days."""
    context.meta["hermes.kanban.board"] = board
