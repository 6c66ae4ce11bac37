"""A group of commands that are imported only when they are called: their names and summaries stand in a table."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

__all__ = ["Entry", "LazyGroup", "ReaderGone"]


class ReaderGone(Exception):
    """Whoever read the output went away (`hermes … | head`). click would end with code 1 and say nothing."""


class Entry(NamedTuple):
    """Where a command is and what it is for; one without a summary is not listed. `part` is its heading in the help."""

    module: str
    attribute: str
    summary: str
    part: str = "Commands"


class LazyGroup(click.Group):
    """The commands of `table`. A name may be written with underscores, as tools name the same verbs."""

    def __init__(self, *args: Any, table: Mapping[str, Entry], **more: Any) -> None:
        super().__init__(*args, **more)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names that are listed, in the order of the table."""
        return [name for name, entry in self.table.items() if entry.summary]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None where there is none."""
        entry = self.table.get(cmd_name.replace("_", "-"))
        # what was left out of an installation takes only its own command along
        if entry is None or importlib.util.find_spec(entry.module) is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that the line names."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a line; an unknown name gets the nearest one."""
        near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
        if args[0].replace("_", "-") not in self.table and near:
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list, part by part."""
        shown = [(name, self.table[name]) for name in self.list_commands(ctx)]
        for part in dict.fromkeys(entry.part for _, entry in shown):
            with formatter.section(part):
                formatter.write_dl([(name, entry.summary) for name, entry in shown if entry.part == part])
