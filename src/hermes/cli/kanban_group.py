"""`hermes kanban`: the table of its commands. Each is imported only when it is called."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click

__all__ = ["COMMANDS", "kanban"]


class _Entry(NamedTuple):
    module: str
    attribute: str
    summary: str


#: Every command: where it is and what it is for; one without a summary is not listed. The summaries stand here so that
#: help loads none of the modules.
COMMANDS: dict[str, _Entry] = {
    "dispatch": _Entry("hermes.cli.kanban_dispatch", "dispatch", "Start workers for what is ready, once."),
    "daemon": _Entry("hermes.cli.kanban_dispatch", "daemon", "Serve the board until it is stopped."),
    "why": _Entry("hermes.cli.kanban_why", "why", "Say why a card is not worked on, and what cures it."),
    "doctor": _Entry("hermes.cli.kanban_why", "doctor", "Look at everything that could hold the board up."),
    "pause": _Entry("hermes.cli.kanban_why", "pause", "Start no more workers, or start them again."),
    "work": _Entry("hermes.cli.kanban_work", "work", ""),
}

_EPILOG = """\b
Examples:
  hermes kanban dispatch
  hermes kanban daemon --detach
  hermes kanban why t_1a2b
"""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, entry in COMMANDS.items() if entry.summary]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])


@click.group(cls=_Commands, epilog=_EPILOG)
@click.option("--board", default=None, metavar="NAME", help="Which board; the current one if not given.")
@click.pass_context
def kanban(context: click.Context, /, board: str | None) -> None:
    """The board: cards that several named agents and people work on for days."""
    context.meta["hermes.kanban.board"] = board
