"""`hermes completion`: the lines by which a shell completes commands, ids, profiles and models. Changes no file."""

from __future__ import annotations

import click

from hermes.cli.completing import SHELLS, script

__all__ = ["completion"]


@click.command(
    epilog='\b\nExamples:\n  eval "$(hermes completion bash)"        in ~/.bashrc\n'
    '  eval "$(hermes completion zsh)"         in ~/.zshrc, after compinit\n'
    "  hermes completion fish > ~/.config/fish/completions/hermes.fish"
)
@click.argument("shell", type=click.Choice(sorted(SHELLS)))
@click.pass_context
def completion(context: click.Context, /, shell: str) -> None:
    """Print what makes a shell complete commands, options, ids of tasks and sessions, profiles, models, settings.

    bash needs version 4.4.
    """
    click.echo(script(context.find_root().command, shell))
