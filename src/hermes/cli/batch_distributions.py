"""`hermes batch distributions`: from which toolsets runs draw, the built-in tables and the user's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from hermes.batch.distribution import DISTRIBUTIONS
from hermes.batch.tables import FILE_NAME, is_file_name, read_tables
from hermes.cli.options import GlobalOptions, options_of
from hermes.config import find_home
from hermes.core.codec import encode_json
from hermes.core.errors import UsageError
from hermes.core.names import did_you_mean
from hermes.core.toolsets import KNOWN_TOOLSETS

__all__ = ["distribution_lines", "distributions", "known_tables"]


def known_tables(options: GlobalOptions, given: str | None) -> dict[str, dict[str, float]]:
    """The tables of the home, and the one of the file that `given` names (FILE.yaml or FILE.yaml:NAME).

    Raises:
        UsageError: a file cannot be read or holds something else.
    """
    home = find_home(os.environ, options.profile).path / FILE_NAME
    tables = read_tables(home) if home.exists() else {}
    path, _, name = (given or "").partition(":")
    if given is not None and is_file_name(path):
        found = read_tables(Path(path))
        if not name and len(found) > 1:
            raise UsageError(
                f"{path} holds {', '.join(found)}: say which one, as --distribution={path}:{next(iter(found))}."
            )
        wanted = name or next(iter(found))
        if wanted not in found:
            hint = did_you_mean(wanted, found)
            raise UsageError(f"{path} holds no distribution {wanted!r}.{hint} There are: {', '.join(found)}.")
        tables[given] = found[wanted]
    return tables


def distribution_lines(own: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield a line for each table, those of the user's own first."""
    known = {info.name for info in KNOWN_TOOLSETS if info.available}
    missing: set[str] = set()
    for name, shares in {**own, **{name: table for name, table in DISTRIBUTIONS.items() if name not in own}}.items():
        parts = [f"{toolset}{'' if toolset in known else '*'} {percent:g}" for toolset, percent in shares.items()]
        missing.update(toolset for toolset in shares if toolset not in known)
        yield f"{name:16} {', '.join(parts)}"
    if missing:
        yield f"* not in this installation, left out: {', '.join(sorted(missing))}"


@click.command(epilog="\b\nExamples:\n  hermes batch distributions\n  hermes batch distributions --json\n")
@click.option("--json", "as_json", is_flag=True, help="Print the tables as JSON.")
@click.pass_context
def distributions(context: click.Context, as_json: bool) -> None:
    """List the toolset distributions: names with the percentage at which each toolset is drawn.

    Tables of your own stand in distributions.yaml of the home, or in a file that --distribution=FILE.yaml names.
    """
    own = known_tables(options_of(context), None)
    if as_json:
        click.echo(encode_json({**DISTRIBUTIONS, **own}).decode())
        return
    for line in distribution_lines(own):
        click.echo(line)
