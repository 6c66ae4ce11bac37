"""`hermes setup`: ask for a key without showing it, test it with one small request, store it, set the default model.

The key goes to `.env` (mode 0600) and nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import click
import msgspec

from hermes.cli.options import home_of, open_sources, options_of
from hermes.config import Home
from hermes.config.dotenv import set_variable
from hermes.config.edit import set_value
from hermes.config.load import read_document
from hermes.core.errors import HermesError, ModelError, OperatorError, UsageError
from hermes.credentials import Endpoint, is_local
from hermes.credentials.keys import ADDRESSES, KEYLESS, checked_url

__all__ = ["Choice", "Probe", "apply_choice", "setup"]

#: Makes one small request; returns the name of the model that answered.
#: Raises ModelError when the endpoint refuses.
Probe = Callable[[Endpoint], str]

_MODELS = {"openrouter": "anthropic/claude-sonnet-4.6", "anthropic": "claude-sonnet-4-6"}
_HOW = """\
setup asks questions and this is no terminal. Without questions:
  printf %s "$KEY" | hermes setup --provider openrouter --model MODEL --key-stdin
or put the key into the environment (OPENROUTER_API_KEY, OPENAI_API_KEY, ANTHROPIC_API_KEY), or use `-m embedded`."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered. `provider` is a known one, or other (then `base_url` is its address)."""

    provider: str
    key: str
    model: str
    base_url: str = ""

    def __repr__(self) -> str:
        return f"Choice({self.provider!r}, {self.model!r}, {self.base_url!r})"

    @property
    def prefix(self) -> str:
        """Prefix of the variables that hold it."""
        return "OPENAI" if self.provider == "other" else self.provider.upper()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint to test."""
        url = self.base_url or ADDRESSES[self.provider]
        return Endpoint(
            provider=self.provider,
            base_url=url,
            api_key=self.key,
            key_source="setup",
            model=self.model,
            api_mode="anthropic_messages" if self.provider == "anthropic" else "",
        )


def apply_choice(home: Home, choice: Choice, probe: Probe | None) -> list[str]:
    """Test and store a choice; returns what was done, a line each. Nothing is stored if the test fails.

    Raises:
        OperatorError: the endpoint refused; the text says what it said.
    """
    done: list[str] = []
    if probe is not None:
        try:
            answered = probe(choice.endpoint)
        except ModelError as error:
            raise OperatorError(f"the test failed and nothing was stored: {error}") from error
        done.append(f"tested: {answered}")
    home.prepare(home.run_dir)
    if choice.key:
        set_variable(home.env_file, f"{choice.prefix}_API_KEY", choice.key)
        done.append(f"the key is in {home.env_file} as {choice.prefix}_API_KEY, readable by you only")
    if choice.base_url:
        set_variable(home.env_file, f"{choice.prefix}_BASE_URL", choice.base_url)
        done.append(f"the address is in {home.env_file} as {choice.prefix}_BASE_URL")
    _set_model(home, {"default": choice.model, "provider": choice.prefix.lower()})
    done.append(f"the model is {choice.model} ({home.config_file})")
    return done


def _set_model(home: Home, values: dict[str, str]) -> None:
    lock = home.run_dir / "config.lock"
    document = read_document(home.config_file)
    current = document.data.get("model") if document is not None else None
    if current and not isinstance(current, dict):
        set_value(home.config_file, ("model",), values, lock=lock)
        return
    for name, value in values.items():
        set_value(home.config_file, ("model", name), value, lock=lock)


def request_once(endpoint: Endpoint) -> str:
    """Ask the endpoint for one word. Raises ModelError."""
    # edge: the HTTP client takes a third of a second to import, and most runs of setup's help never ask
    from hermes.cli.probing import try_model

    return try_model(endpoint, {})


def _asked(provider: str, base_url: str, model: str) -> Choice:
    click.echo(f"Which service? {', '.join(ADDRESSES)}, or other (any Chat-Completions-compatible server).")
    names = click.Choice([*ADDRESSES, "other"])
    provider = provider or click.prompt("Service", type=names, default="openrouter", show_choices=False)
    if provider == "other" and not base_url:
        base_url = click.prompt("Address", default="http://127.0.0.1:8000/v1")
    base_url = base_url or (ADDRESSES[provider] if provider in KEYLESS else "")
    base_url = checked_url(base_url, "address") if base_url else ""
    optional = bool(base_url) and is_local(base_url)
    hint = "Key (not shown; empty for none)" if optional else "Key (not shown)"
    key = click.prompt(hint, hide_input=True, default="" if optional else None, show_default=False).strip()
    model = model or click.prompt("Model", default=_MODELS.get(provider))
    return Choice(provider=provider, key=key, model=model, base_url=base_url)


def _piped(provider: str, base_url: str, model: str) -> Choice:
    provider = provider or ("other" if base_url else "openrouter")
    base_url = base_url or (ADDRESSES[provider] if provider in KEYLESS else "")
    base_url = checked_url(base_url, "--base_url") if base_url else ""
    model = model or _MODELS.get(provider, "")
    key = sys.stdin.read().strip()
    if not model:
        raise UsageError(f"no default model is known for {provider}. Give --model.")
    if not key and not (base_url and is_local(base_url)):
        raise UsageError("--key-stdin found no key on standard input.")
    return Choice(provider=provider, key=key, model=model, base_url=base_url)


@click.command(
    epilog="\b\nExamples:\n  hermes setup\n  hermes setup --provider other --base_url http://127.0.0.1:8000/v1\n"
    '  printf %s "$KEY" | hermes setup --provider openai --model gpt-5 --key-stdin'
)
@click.option("--provider", type=click.Choice([*ADDRESSES, "other"]), default=None, help="Which service.")
@click.option("--base_url", "--base-url", default="", metavar="URL", help="Address of another server.")
@click.option("-m", "--model", default="", metavar="MODEL", help="Default model.")
@click.option("--key-stdin", is_flag=True, help="Read the key from standard input and ask nothing.")
@click.option("--no-test", is_flag=True, help="Store without the test request.")
@click.pass_context
def setup(
    context: click.Context, /, provider: str | None, base_url: str, model: str, key_stdin: bool, no_test: bool
) -> None:
    """Store a key, test it, choose a model."""
    if provider == "other" and key_stdin and not base_url:
        raise UsageError("--provider other needs --base_url.")
    home = home_of(context)
    if key_stdin:
        choice = _piped(provider or "", base_url, model)
    elif sys.stdin.isatty():
        choice = _asked(provider or "", base_url, model)
    else:
        raise UsageError(_HOW)
    for line in apply_choice(home, choice, None if no_test else request_once):
        click.echo(line)
    _warn_if_hidden(context, choice)


def _warn_if_hidden(context: click.Context, choice: Choice) -> None:
    """Say so when something of the environment still wins over what was stored."""
    try:
        endpoint = open_sources(options_of(context)).endpoint()
    except HermesError as error:
        click.echo(f"hermes: {error}", err=True)
        return
    wanted = choice.endpoint
    if endpoint.base_url != wanted.base_url or endpoint.api_key != wanted.api_key:
        click.echo(f"note: {endpoint.base_url} with {endpoint.key_source} is used before what was stored", err=True)
