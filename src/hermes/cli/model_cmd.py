"""`hermes model`: which models the server offers, whether one answers, and which one is asked by default.

Listing and testing ask the server that a conversation would ask; nothing but `set` writes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import click

from hermes.cli.options import Sources, home_of, merged, open_sources, options_of
from hermes.cli.probing import address_of, try_model, with_catalog
from hermes.cli.screens import print_json, rows
from hermes.config import Home
from hermes.config.default_model import store_default_model
from hermes.core.errors import ModelError, OperatorError, UsageError
from hermes.credentials import Endpoint, MissingKey, NotConfigured, is_embedded, is_local
from hermes.credentials.keys import ADDRESSES, KEYLESS
from hermes.providers.catalog import Catalog, adapter_of
from hermes.providers.names import nearest, same_model
from hermes.providers.profiles import REVIEWED

__all__ = ["model"]

_Command = TypeVar("_Command", bound=Callable[..., object])


def _server(command: _Command) -> _Command:
    """Give a command the options that say which server."""
    command = click.option("--base_url", "--base-url", default="", metavar="URL", help="Address of another server.")(
        command
    )
    return click.option("--provider", default="", metavar="NAME", help="Another provider than the configured one.")(
        command
    )


@click.group(
    epilog="\b\nExamples:\n  hermes model list\n  hermes model test claude-sonnet-4-6 --provider anthropic\n"
    "  hermes model set gpt-5"
)
def model() -> None:
    """List the models of the server in use, test one, choose the default."""


@model.command("list", epilog="\b\nExamples:\n  hermes model list\n  hermes model list sonnet --json")
@click.argument("word", default="")
@_server
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def list_(context: click.Context, /, word: str, provider: str, base_url: str, as_json: bool) -> None:
    """List the models that the server offers, with window and prices where they are known; only those with WORD, or
    those of the provider WORD."""
    is_provider = word in ADDRESSES and not (provider or base_url)  # and nothing else, where no model has such a name
    try:
        sources, endpoint, names = _matching(context, word, provider, base_url)
    except (MissingKey, NotConfigured):
        if not is_provider:
            raise
        names = ()
    if is_provider and not names:
        sources, endpoint, names = _matching(context, "", word, "")
    catalog = Catalog(sources.loaded.settings.models)
    profiles = [catalog.profile(name) for name in names]
    if as_json:
        found = [
            {"name": name, "window": each.window, "price_input": each.price_input, "price_output": each.price_output}
            for name, each in zip(names, profiles, strict=True)
        ]
        print_json({"base_url": endpoint.base_url, "default": endpoint.model, "models": found})
        return
    if not names:
        what = f"no model with {word!r}" if word else "no models"
        raise OperatorError(f"{_place(endpoint)} lists {what}.")
    table = []
    for name, each in zip(names, profiles, strict=True):
        price = "" if each.price_input is None else f"${each.price_input:g} in, ${each.price_output:g} out per million"
        chosen = "*" if endpoint.model and same_model(name, endpoint.model) else " "
        table.append((chosen, name, f"{each.window // 1000}k", price))
    click.echo(rows(table, indent=""))
    click.echo(f"windows and prices as of {REVIEWED}; what `models` in config.yaml says wins", err=True)


def _matching(
    context: click.Context, word: str, provider: str, base_url: str
) -> tuple[Sources, Endpoint, tuple[str, ...]]:
    sources, endpoint = _asked(context, "", provider, base_url)
    names: tuple[str, ...] = (endpoint.model,)
    if not is_embedded(endpoint.model):
        names = anyio.run(with_catalog, sources.loaded.settings.models, lambda catalog: _listed(catalog, endpoint))
    return sources, endpoint, tuple(name for name in names if word.lower() in name.lower())


@model.command("providers", epilog="\b\nExamples:\n  hermes model providers\n  hermes model list --provider ollama")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def providers(context: click.Context, /, as_json: bool) -> None:
    """List the providers that have a name: where they are and whether there is a key. Asks none of them."""
    sources = open_sources(options_of(context))
    named = sources.loaded.settings.endpoints
    places = {**ADDRESSES, **{name: entry.base_url for name, entry in named.items() if entry.base_url}}
    found = []
    for name, address in places.items():
        keys = [key for key in sources.keys if key.provider.removeprefix("custom:") == name]
        url = keys[0].base_url if keys else address
        entry = named.get(name)
        own = entry is not None and bool(entry.api_key or sources.variables.get(entry.key_env))
        state = "key" if own or any(key.secret for key in keys) else "no key"
        if state != "key" and (name in KEYLESS or is_local(url)):
            state = "needs none"
        found.append({"provider": name, "base_url": url, "key": state})
    if as_json:
        print_json({"providers": found})
    else:
        click.echo(rows([(one["provider"], one["base_url"], one["key"]) for one in found], indent=""))


@model.command(
    "test", epilog="\b\nExamples:\n  hermes model test\n  hermes model test qwen3 --base_url http://127.0.0.1:8000/v1"
)
@click.argument("name", default="")
@_server
@click.pass_context
def test(context: click.Context, /, name: str, provider: str, base_url: str) -> None:
    """Make one tiny request of the default model, or of NAME. Exit 1 with the server's words if it is refused."""
    sources, endpoint = _asked(context, name, provider, base_url)
    if not endpoint.model:
        raise UsageError(f"no model is named for {endpoint.base_url}. Give its NAME; hermes model list shows them.")
    click.echo(try_model(endpoint, sources.loaded.settings.models))


@model.command(
    "set",
    epilog="\b\nExamples:\n  hermes model set gpt-5\n  hermes model set claude-sonnet-4-6 --provider anthropic\n"
    "  hermes model set ollama/qwen3",
)
@click.argument("name")
@click.option("--provider", default="", metavar="NAME", help="Set the provider too.")
@click.option("--no-check", is_flag=True, help="Set it without asking the server whether it has such a model.")
@click.pass_context
def set_(context: click.Context, /, name: str, provider: str, no_check: bool) -> None:
    """Set the default model. A name that the server does not offer is refused with the nearest ones."""
    sources, endpoint = _asked(context, name, provider, "")
    if not (no_check or is_embedded(endpoint.model)):
        _check(sources, endpoint)
    home = home_of(context)
    if name.endswith(f"/{endpoint.model}") and not provider:  # its first part was the provider
        name, provider = endpoint.model, endpoint.provider
    for line in _stored(home, name, provider):
        click.echo(line)


def _asked(context: click.Context, name: str, provider: str, base_url: str) -> tuple[Sources, Endpoint]:
    sources = open_sources(merged(options_of(context), model=name, provider=provider))
    sources.loaded.require()
    return sources, sources.endpoint(base_url=base_url)


def _place(endpoint: Endpoint) -> str:
    return address_of(endpoint).host


async def _listed(catalog: Catalog, endpoint: Endpoint) -> tuple[str, ...]:
    asked = adapter_of("", address_of(endpoint), catalog.profile(""), catalog.session)
    return tuple(sorted(await asked.listed()))


def _check(sources: Sources, endpoint: Endpoint) -> None:
    """Refuse a name that the server does not offer; say so where it cannot be asked."""
    try:
        known = anyio.run(with_catalog, sources.loaded.settings.models, lambda catalog: _listed(catalog, endpoint))
    except ModelError as error:
        click.echo(f"note: not checked: {error}", err=True)
        return
    dated = any(name.startswith(f"{endpoint.model}-20") for name in known)
    if not known or dated or any(same_model(endpoint.model, name) for name in known):
        return
    near = ", ".join(nearest(endpoint.model, known))
    raise UsageError(
        f"{_place(endpoint)} does not offer {endpoint.model}. Nearest: {near}. `--no-check` sets it nevertheless."
    )


def _stored(home: Home, name: str, provider: str) -> list[str]:
    """Write the choice; returns what was done, a line each."""
    store_default_model(home, name, provider)
    more = f" of {provider}" if provider else ""
    return [f"the model is {name}{more} ({home.config_file})"]
