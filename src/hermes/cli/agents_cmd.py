"""`hermes agents`: the agent types of this home and this folder, and why a file is none. Nothing is changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from hermes.chat.render import printable
from hermes.cli.options import home_of
from hermes.cli.screens import print_json, rows
from hermes.core.errors import UsageError
from hermes.core.names import did_you_mean
from hermes.delegation.agent_types import AgentCatalog, AgentType, agent_folders, load_agents

__all__ = ["agents"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(epilog="\b\nExamples:\n  hermes agents list\n  hermes agents show reviewer")
def agents() -> None:
    """Look at the agent types that children may be given.

    They are Markdown files in the folder `agents` of the home, in `.hermes/agents` and in `.claude/agents` of the
    project. The project's win.
    """


@agents.command("list", epilog="\b\nExamples:\n  hermes agents list\n  hermes agents list --json")
@_json
@click.pass_context
def list_(context: click.Context, /, as_json: bool) -> None:
    """List the agent types that can be used from this folder, and the files that cannot."""
    home, catalog = _catalog(context)
    if as_json:
        print_json({"agents": [_plain(agent) for agent in catalog.types.values()], "notes": catalog.notes})
        return
    if catalog.types:
        table = [(agent.name, agent.source, printable(agent.description)[:80]) for agent in catalog.types.values()]
        click.echo(rows(table, indent=""))
    else:
        click.echo(f"no agent types yet: write {home / 'agents' / 'NAME.md'}, or .hermes/agents/NAME.md of a project")
    for note in catalog.notes:
        click.echo(f"note: {printable(note)}", err=True)


@agents.command("show", epilog="\b\nExamples:\n  hermes agents show reviewer\n  hermes agents show reviewer --json")
@click.argument("name")
@_json
@click.pass_context
def show(context: click.Context, /, name: str, as_json: bool) -> None:
    """Print one agent type: its file, what it may do, its prompt."""
    _, catalog = _catalog(context)
    agent = catalog.types.get(name)
    if agent is None:
        why = next((f" {note}" for note in catalog.notes if f"/{name}.md:" in note), "")
        known = ", ".join(catalog.types) or "none"
        raise UsageError(f"there is no agent type {name!r}.{did_you_mean(name, catalog.types)} Known: {known}.{why}")
    if as_json:
        print_json(_plain(agent))
        return
    kept = ", ".join(agent.tools) if agent.tools is not None else ""
    fields = (
        ("file", agent.path),
        ("description", agent.description),
        ("model", " ".join(part for part in (agent.provider, agent.model) if part) or "the usual one"),
        ("toolsets", "those of its parent" if agent.toolsets is None else ", ".join(agent.toolsets) or "none"),
        ("tools", kept or "all of these"),
        ("role", agent.role or "leaf"),
        ("timeout", f"{agent.timeout:g} s" if agent.timeout is not None else "as configured"),
        ("max_iterations", str(agent.max_iterations or "as configured")),
    )
    click.echo(rows([(label, value) for label, value in fields], indent=""))
    if agent.prompt:
        click.echo("\n" + "\n".join(printable(line) for line in agent.prompt.splitlines()))


def _catalog(context: click.Context) -> tuple[Path, AgentCatalog]:
    home = home_of(context).path
    return home, load_agents(agent_folders(home, Path(os.getcwd())))


def _plain(agent: AgentType) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(agent)
    return fields
