"""`hermes batch`: the table of its commands. Each is imported only when it is called."""

from __future__ import annotations

import click

from hermes.cli.lazy_group import Entry, LazyGroup

__all__ = ["COMMANDS", "batch"]


#: Every command: where it is and what it is for. The summaries stand here so that help loads none of the modules.
COMMANDS: dict[str, Entry] = {
    "run": Entry("hermes.cli.batch_cmd", "run", "Run the prompts of a dataset, or go on with a run."),
    "list": Entry("hermes.cli.batch_control", "list_", "List the runs in data/."),
    "status": Entry("hermes.cli.batch_control", "status", "Say how a run is."),
    "pause": Entry("hermes.cli.batch_control", "pause", "Start no other row for now."),
    "unpause": Entry("hermes.cli.batch_control", "unpause", "Go on with a paused run."),
    "workers": Entry("hermes.cli.batch_control", "workers", "Change how many rows run at once."),
    "stop": Entry("hermes.cli.batch_control", "stop", "Stop a run and save everything."),
    "show": Entry("hermes.cli.batch_cmd", "show", "Print rows of a run in readable form."),
    "export": Entry("hermes.cli.batch_export", "export", "Write the kept rows for a loader or trainer."),
    "report": Entry("hermes.cli.batch_export", "report", "Make the page that shows a run again, and say where it is."),
    "distributions": Entry("hermes.cli.batch_distributions", "distributions", "List what toolsets are drawn from."),
    "merge": Entry("hermes.cli.batch_export", "merge", "Make the merged files anew, with other filters."),
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


@click.group(cls=LazyGroup, table=COMMANDS, epilog=_EPILOG)
def batch() -> None:
    """Run a file of prompts in parallel and write training rows."""
