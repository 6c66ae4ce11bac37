"""`hermes fallback`: the models that answer where the configured one cannot, in `config.yaml`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from hermes.cli.options import merged, open_sources, options_of
from hermes.cli.screens import print_json, rows
from hermes.config import Loaded
from hermes.config.edit import set_value, unset_value
from hermes.core.errors import UsageError
from hermes.core.names import did_you_mean
from hermes.credentials import MissingKey

__all__ = ["fallback"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(
    invoke_without_command=True,
    epilog="\b\nExamples:\n  hermes fallback add openrouter openai/gpt-5-mini\n  hermes fallback list\n"
    "  hermes fallback remove 1",
)
@click.pass_context
def fallback(context: click.Context, /) -> None:
    """Models that answer where the configured one cannot, for that one request. Without a command: list them."""
    if context.invoked_subcommand is None:
        _list(context, as_json=False)


@fallback.command("list", epilog="\b\nExamples:\n  hermes fallback list --json")
@_json
@click.pass_context
def list_(context: click.Context, /, as_json: bool) -> None:
    """List them in the order in which they are asked."""
    _list(context, as_json=as_json)


@fallback.command("ls", hidden=True)
@_json
@click.pass_context
def ls(context: click.Context, /, as_json: bool) -> None:
    """The same as list."""
    _list(context, as_json=as_json)


@fallback.command(
    "add",
    epilog="\b\nExamples:\n  hermes fallback add openrouter openai/gpt-5-mini\n"
    "  hermes fallback add mine big-model --base-url http://127.0.0.1:8000/v1 --key-env MY_KEY",
)
@click.argument("provider")
@click.argument("model")
@click.option("--base-url", "--base_url", default="", metavar="URL", help="Address of a server of your own.")
@click.option("--key-env", "--key_env", default="", metavar="NAME", help="The variable that holds its key.")
@click.pass_context
def add(context: click.Context, /, provider: str, model: str, base_url: str, key_env: str) -> None:
    """Put a model at the end of the list. A provider that has no name here needs --base-url."""
    loaded = open_sources(options_of(context)).loaded
    loaded.require()
    entries = _entries(loaded)
    new = {"provider": provider, "model": model, "base_url": base_url, "key_env": key_env}
    entry = {name: value for name, value in new.items() if value}
    if entry in entries:
        raise UsageError(f"{provider} {model} is in the list already.")
    asked = open_sources(merged(options_of(context), model=model, provider=provider))
    try:
        asked.endpoint(base_url=base_url, api_key=asked.variables.get(key_env, ""))
    except MissingKey as error:
        click.echo(f"note: it cannot be asked yet: {error}", err=True)
    _store(loaded, [*entries, entry])
    click.echo(f"added {provider} {model} as number {len(entries) + 1}")


@fallback.command("remove", epilog="\b\nExamples:\n  hermes fallback remove 1\n  hermes fallback remove MODEL")
@click.argument("target", metavar="INDEX|MODEL")
@click.pass_context
def remove(context: click.Context, /, target: str) -> None:
    """Take a model out of the list."""
    _remove(context, target)


@fallback.command("rm", hidden=True)
@click.argument("target", metavar="INDEX|MODEL")
@click.pass_context
def rm(context: click.Context, /, target: str) -> None:
    """The same as remove."""
    _remove(context, target)


@fallback.command("clear", epilog="\b\nExamples:\n  hermes fallback clear")
@click.pass_context
def clear(context: click.Context, /) -> None:
    """Take every model out of the list."""
    loaded = open_sources(options_of(context)).loaded
    count = len(_entries(loaded))
    _store(loaded, [])
    click.echo(f"removed {count}")


def _entries(loaded: Loaded) -> list[dict[str, Any]]:
    """The list as it is written, without empty fields."""
    listed = loaded.settings.fallback_providers
    if not listed and loaded.settings.fallback_model is not None:
        listed = (loaded.settings.fallback_model,)
    return [{name: value for name, value in msgspec.to_builtins(entry).items() if value} for entry in listed]


def _store(loaded: Loaded, entries: list[dict[str, Any]]) -> None:
    home = loaded.home
    home.prepare(home.run_dir)
    lock = home.run_dir / "config.lock"
    if loaded.settings.fallback_model is not None:
        unset_value(home.config_file, ("fallback_model",), lock=lock)
    if entries:
        set_value(home.config_file, ("fallback_providers",), entries, lock=lock)
    else:
        unset_value(home.config_file, ("fallback_providers",), lock=lock)


def _list(context: click.Context, *, as_json: bool) -> None:
    entries = _entries(open_sources(options_of(context)).loaded)
    if as_json:
        print_json({"fallback_providers": entries})
    elif not entries:
        click.echo("no fallback: hermes fallback add PROVIDER MODEL")
    else:
        table = [
            (f"{number}.", entry.get("provider", ""), entry.get("model", ""), entry.get("base_url", ""))
            for number, entry in enumerate(entries, 1)
        ]
        click.echo(rows(table, indent=""))


def _remove(context: click.Context, target: str) -> None:
    loaded = open_sources(options_of(context)).loaded
    entries = _entries(loaded)
    places = [place for place, entry in enumerate(entries) if entry.get("model") == target]
    if not places and target.isdigit() and 0 < int(target) <= len(entries):
        places = [int(target) - 1]
    if not places:
        known = ", ".join(f"{number} {entry.get('model', '')}" for number, entry in enumerate(entries, 1)) or "none"
        hint = did_you_mean(target, [str(entry.get("model", "")) for entry in entries])
        raise UsageError(f"there is no fallback {target!r}.{hint} There are: {known}.")
    _store(loaded, [entry for place, entry in enumerate(entries) if place not in places])
    click.echo(f"removed {target}")
