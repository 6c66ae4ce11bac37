"""`hermes batch`: the table of its commands. Each is imported only when it is called."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click

__all__ = ["COMMANDS", "batch"]


class _Entry(NamedTuple):
    module: str
    attribute: str
    summary: str


#: Every command: where it is and what it is for. The summaries stand here so that help loads none of the modules.
COMMANDS: dict[str, _Entry] = {
    "run": _Entry("hermes.cli.batch_cmd", "run", "Run the prompts of a dataset, or go on with a run."),
    "list": _Entry("hermes.cli.batch_control", "list_", "List the runs in data/."),
    "status": _Entry("hermes.cli.batch_control", "status", "Say how a run is."),
    "pause": _Entry("hermes.cli.batch_control", "pause", "Start no other row for now."),
    "unpause": _Entry("hermes.cli.batch_control", "unpause", "Go on with a paused run."),
    "workers": _Entry("hermes.cli.batch_control", "workers", "Change how many rows run at once."),
    "stop": _Entry("hermes.cli.batch_control", "stop", "Stop a run and save everything."),
    "show": _Entry("hermes.cli.batch_cmd", "show", "Print rows of a run in readable form."),
    "export": _Entry("hermes.cli.batch_export", "export", "Write the kept rows for a loader or trainer."),
    "report": _Entry("hermes.cli.batch_export", "report", "Make the page that shows a run again, and say where it is."),
    "distributions": _Entry("hermes.cli.batch_distributions", "distributions", "List what toolsets are drawn from."),
    "merge": _Entry("hermes.cli.batch_export", "merge", "Make the merged files anew, with other filters."),
}

_EPILOG = """\b
Examples:
  hermes batch run --dataset_file=prompts.jsonl --run_name=first --model=anthropic/claude-sonnet-4.6
  hermes batch run --run_name=first --resume
  hermes batch status
  hermes batch run --dataset_file=prompts.jsonl --run_name=try --model=embedded --max_samples=3
  hermes batch show first
  hermes batch export first --to openai
"""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

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
def batch() -> None:
    """Run a file of prompts in parallel and write training rows."""
