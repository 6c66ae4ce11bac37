"""`hermes auth`: the keys of each provider, their order and their rests. No key is ever printed.

Keys that were added stand in `auth.json`, a file shared with another program of this name; keys of the environment and
of `.env` are listed beside them and stay where they are. An entry leaves the file only by `hermes auth remove`; logging
out of a login takes its tokens away and leaves the entry.
"""

from __future__ import annotations

import shlex
import sys
import time
from typing import Any

import click
import msgspec

from hermes.cli.auth_rows import Row, cells, chosen_row, listed_rows, time_left, unknown_provider
from hermes.cli.options import Sources, home_of, open_sources, options_of
from hermes.cli.screens import print_json, rows
from hermes.core.errors import OperatorError, UsageError
from hermes.credentials.auth_change import add_entry, clear_marks, in_backup, remove_entry, set_priority
from hermes.credentials.keys import ADDRESSES, checked_url
from hermes.credentials.oauth import Login, log_out, renew
from hermes.credentials.pool import Credential
from hermes.providers.token_endpoint import ask_token

__all__ = ["auth"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(
    invoke_without_command=True,
    epilog="\b\nExamples:\n  hermes auth list\n  hermes auth add openrouter --label second\n"
    "  hermes auth priority openrouter second 0\n  hermes auth reset openrouter",
)
@click.pass_context
def auth(context: click.Context, /) -> None:
    """Several keys of a provider: add, remove and order them, see which rest. Without a command: list them."""
    if context.invoked_subcommand is None:
        _list(context, "", as_json=False)


@auth.command("list", epilog="\b\nExamples:\n  hermes auth list\n  hermes auth list openrouter --json")
@click.argument("provider", default="")
@_json
@click.pass_context
def list_(context: click.Context, /, provider: str, as_json: bool) -> None:
    """List the keys of every provider, or of one, in the order in which they are used."""
    _list(context, provider, as_json=as_json)


@auth.command("status", epilog="\b\nExamples:\n  hermes auth status openrouter")
@click.argument("provider")
@_json
@click.pass_context
def status(context: click.Context, /, provider: str, as_json: bool) -> None:
    """Show the keys of a provider; exit code 1 if none of them can be used now."""
    listed = _list(context, provider, as_json=as_json)
    if not any(row.usable and row.rests <= 0 for row in listed):
        raise OperatorError(f"no key of {provider} can be used now. Add one (hermes auth add {provider}) or wait.")


@auth.command(
    "add",
    epilog="\b\nExamples:\n  hermes auth add openrouter\n  hermes auth add openai --label work --priority 0\n"
    '  printf %s "$KEY" | hermes auth add openrouter',
)
@click.argument("provider")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["api_key", "api-key", "oauth"]),
    default="api_key",
    help="A key, or a login (oauth), whose refresh token is asked for.",
)
@click.option("--api-key", "--api_key", default="", metavar="KEY", help="The key; safer to leave it out and be asked.")
@click.option("--label", default="", metavar="L", help="A name for it.")
@click.option("--priority", type=int, default=None, metavar="N", help="Its place: the lowest number is used first.")
@click.option("--base-url", "--base_url", default="", metavar="URL", help="Address of a server of your own.")
@click.option("--token-url", "--token_url", default="", metavar="URL", help="Of a login: where its key is renewed.")
@click.option("--client-id", "--client_id", default="", metavar="ID", help="Of a login: the client it was given to.")
@click.pass_context
def add(
    context: click.Context,
    /,
    provider: str,
    kind: str,
    api_key: str,
    label: str,
    priority: int | None,
    base_url: str,
    token_url: str,
    client_id: str,
) -> None:
    """Add a key to a provider. It is asked for without being shown, or read from standard input."""
    if kind != "oauth" and (token_url or client_id):
        raise UsageError("--token-url and --client-id belong to a login: give --type oauth as well.")
    home = home_of(context)
    sources = open_sources(options_of(context))
    if kind == "oauth" and not token_url:
        token_url, client_id = _known_login(sources, provider, label, client_id)
    endpoint = checked_url(token_url, "--token-url") if token_url else ""
    url = checked_url(base_url, "--base-url") if base_url else ""
    if provider not in ADDRESSES and not url:
        url = _address(sources, provider)
    if provider not in ADDRESSES and not provider.startswith("custom:"):
        provider = f"custom:{provider}"
    if api_key:
        click.echo("warning: a key on the command line stays in the shell's history and is seen by ps.", err=True)
    secret = (api_key or _asked(provider, "Refresh token" if endpoint else "Key")).strip()
    if not secret or any(character.isspace() for character in secret):
        raise UsageError("that is no key: it is empty, or has a space or line break in it.")
    home.prepare(home.run_dir)
    secret, login = _logged_in(endpoint, client_id, secret) if endpoint else (secret, None)
    name, shown = add_entry(home.auth_file, provider, secret, label=label, priority=priority, base_url=url, login=login)
    click.echo(f"added {shown} ({name}) to {provider}, readable by you only ({home.auth_file})")
    if sources.loaded.pool_home is not None:
        others = sources.loaded.pool_home.profile
        click.echo(f"  {home.profile} uses its own keys alone from now on, and no longer those of {others}")


def _address(sources: Sources, provider: str) -> str:
    """Where a provider of the user's own is, by the settings or its other keys. Raises UsageError."""
    plain = provider.removeprefix("custom:")
    named = sources.loaded.settings.endpoints.get(plain)
    known = {entry.base_url for entry in sources.pool if entry.provider == f"custom:{plain}"} - {""}
    if named is not None and named.base_url:
        return checked_url(named.base_url, f"providers.{plain}.base_url")
    if len(known) > 1:
        raise UsageError(f"the keys of {plain} belong to {', '.join(sorted(known))}: say which one by --base-url.")
    if not known:
        raise UsageError(f"{unknown_provider(sources, plain)} Give --base-url for one of your own.")
    return known.pop()


def _known_login(sources: Sources, provider: str, label: str, client_id: str) -> tuple[str, str]:
    """(address, client) of the login that has this label and ended. Raises UsageError if there is none."""
    for entry in sources.pool:
        ended = entry.logged_out or entry.reason == "dead"
        if label and ended and entry.label == label and entry.provider in (provider, f"custom:{provider}"):
            if entry.token_url:
                return entry.token_url, client_id or entry.client_id
    raise UsageError("a login needs --token-url: the address at which its provider renews keys. None is guessed.")


def _refuse_inherited(sources: Sources) -> None:
    """Keys of another profile are changed there, since all that inherit them lose them. Raises UsageError."""
    whose = sources.loaded.pool_home
    if whose is not None:
        raise UsageError(
            f"{sources.loaded.home.profile} uses the keys of {whose.profile}; `hermes -p {whose.profile} auth …` "
            "changes them for all that do. Nothing was changed."
        )


@auth.command("refresh", epilog="\b\nExamples:\n  hermes auth refresh openai\n  hermes auth refresh openai work")
@click.argument("provider")
@click.argument("target", default="", metavar="[INDEX|ID|LABEL]")
@click.pass_context
def refresh(context: click.Context, /, provider: str, target: str) -> None:
    """Renew the keys of a provider's logins now. It happens by itself before they run out."""
    sources = open_sources(options_of(context))
    for row in _logins(sources, provider, target, "renewed"):
        secret = next(entry.secret for entry in sources.pool if entry.id == row.id and entry.usable)
        login = Login(provider=row.provider, id=row.id, label=row.label)
        tokens = renew(sources.loaded.auth_file, login, ask_token, time.time, refused=secret)
        left = f", good for {time_left(tokens.expires_at - time.time())}" if tokens.expires_at else ""
        click.echo(f"renewed {row.label} ({row.id}) of {row.provider}{left}")


@auth.command("logout", epilog="\b\nExamples:\n  hermes auth logout openai\n  hermes auth logout openai work")
@click.argument("provider")
@click.argument("target", default="", metavar="[INDEX|ID|LABEL]")
@click.pass_context
def logout(context: click.Context, /, provider: str, target: str) -> None:
    """Forget the tokens of a login, or of all logins of a provider. Its entry stays; `hermes auth add` with the same
    label logs in again. The provider is not told: what it gave out may hold until it runs out."""
    sources = open_sources(options_of(context))
    logins = _logins(sources, provider, target, "logged out of")
    _refuse_inherited(sources)
    for row in logins:
        path = sources.loaded.auth_file
        if log_out(path, Login(provider=row.provider, id=row.id, label=row.label), time.time()):
            click.echo(f"logged out of {row.label} ({row.id}) of {row.provider}")
        _tell_backup(sources, row)
    click.echo(f"  to log in again: hermes auth add {provider} --type oauth --label {shlex.quote(logins[0].label)}")


def _logins(sources: Sources, provider: str, target: str, done: str) -> list[Row]:
    """The logins that are meant, which this program renews. Raises UsageError if there are none."""
    listed = listed_rows(sources, provider)
    chosen = [chosen_row(listed, provider, target)] if target else listed
    own = {(entry.provider, entry.id) for entry in sources.pool if entry.renewable}
    logins = [row for row in chosen if (row.provider, row.id) in own]
    if logins:
        return logins
    out = next((row for row in chosen if row.status == "logged_out"), None)
    if out is not None:
        again = f"hermes auth add {provider} --type oauth --label {shlex.quote(out.label)}"
        raise UsageError(f"{out.label} of {out.provider} is logged out already. To log in again: {again}")
    foreign = next((row for row in chosen if not row.usable and row.status == "ok"), None)
    if foreign is not None:
        raise UsageError(f"{foreign.label} of {foreign.provider} belongs to the program that made it: log out there.")
    keys = f" Its keys go by `hermes auth remove {provider}`." if chosen and done != "renewed" else ""
    raise UsageError(f"{provider} has no login that is {done} here.{keys} `hermes auth list` shows what there is.")


def _tell_backup(sources: Sources, row: Row) -> None:
    """Say so if what was taken out of the file still stands in the copy beside it."""
    secrets = [entry.secret for entry in sources.pool if (entry.provider, entry.id) == (row.provider, row.id)]
    backup = in_backup(sources.loaded.auth_file, secrets)
    if backup is not None:
        click.echo(f"note: {backup}, the copy from before the first change, still holds it: delete that too", err=True)


def _logged_in(endpoint: str, client_id: str, token: str) -> tuple[str, dict[str, Any]]:
    """The first key of a login, and what its entry keeps beside it."""
    form = {"grant_type": "refresh_token", "refresh_token": token} | ({"client_id": client_id} if client_id else {})
    answer = ask_token(endpoint, form)
    if not answer.access_token:
        raise OperatorError(f"{endpoint} gave no key for this refresh token: {answer.error}. Nothing was added.")
    kept: dict[str, Any] = {"refresh_token": answer.refresh_token or token, "token_url": endpoint}
    kept |= {"client_id": client_id} if client_id else {}
    kept |= {"expires_at": round(time.time() + answer.expires_in, 3)} if answer.expires_in else {}
    return answer.access_token, kept


@auth.command("remove", epilog="\b\nExamples:\n  hermes auth remove openrouter 2\n  hermes auth remove openrouter work")
@click.argument("provider")
@click.argument("target", metavar="INDEX|ID|LABEL")
@click.pass_context
def remove(context: click.Context, /, provider: str, target: str) -> None:
    """Remove a key from the file. A key of a variable goes away by unsetting the variable."""
    home, sources = home_of(context), open_sources(options_of(context))
    row = chosen_row(listed_rows(sources, provider), provider, target)
    if row.source.startswith("env:") and not _entry_of(sources, row):
        raise UsageError(f"{row.label} is a variable and stands in no file of the pool. Unset it, or edit .env.")
    _refuse_inherited(sources)
    if not remove_entry(home.auth_file, row.provider, row.id):
        raise OperatorError(f"{row.label} of {row.provider} has gone meanwhile. See `hermes auth list`.")
    click.echo(f"removed {row.label} ({row.id}) from {row.provider}")
    _tell_backup(sources, row)
    if row.source.startswith("env:"):
        click.echo(f"note: its key stands in {row.source[4:]} and is still used; only its marks are gone", err=True)


@auth.command("reset", epilog="\b\nExamples:\n  hermes auth reset openrouter\n  hermes auth reset openrouter 2")
@click.argument("provider")
@click.argument("target", default="", metavar="[INDEX|ID|LABEL]")
@click.pass_context
def reset(context: click.Context, /, provider: str, target: str) -> None:
    """Let keys that rest be used again: one, or all of a provider."""
    sources = open_sources(options_of(context))
    listed = listed_rows(sources, provider)
    chosen = [chosen_row(listed, provider, target)] if target else listed
    if not chosen:
        raise UsageError(f"{provider} has no keys. `hermes auth list` shows what there is.")
    marked = [row for row in chosen if row.status not in ("ok", "logged_out")]
    for name in dict.fromkeys(row.provider for row in marked):
        clear_marks(sources.loaded.auth_file, name, [row.id for row in marked if row.provider == name])
    click.echo(
        f"{len(marked)} of {len(chosen)} keys of {provider} had a mark; it is gone" if marked else "nothing rests"
    )


@auth.command("priority", epilog="\b\nExamples:\n  hermes auth priority openrouter work 0")
@click.argument("provider")
@click.argument("target", metavar="INDEX|ID|LABEL")
@click.argument("number", type=int)
@click.pass_context
def priority(context: click.Context, /, provider: str, target: str, number: int) -> None:
    """Give a key another place: the lowest number is used first."""
    home, sources = home_of(context), open_sources(options_of(context))
    row = chosen_row(listed_rows(sources, provider), provider, target)
    _refuse_inherited(sources)
    secret = next((key.secret for key in sources.keys if row.source == f"env:{key.variable}"), "")
    home.prepare(home.run_dir)
    credential = Credential(id=row.id, label=row.label, secret=secret, provider=row.provider, source=row.source)
    set_priority(home.auth_file, credential, number)
    now = listed_rows(open_sources(options_of(context)), provider)
    place = next((f", now #{each.number}" for each in now if (each.label, each.source) == (row.label, row.source)), "")
    click.echo(f"{row.label} of {row.provider} has priority {number}{place}")


def _asked(provider: str, what: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.read()
    found: str = click.prompt(f"{what} for {provider} (not shown)", hide_input=True)
    return found


def _list(context: click.Context, provider: str, *, as_json: bool) -> list[Row]:
    listed = listed_rows(open_sources(options_of(context)), provider)
    if as_json:
        print_json({"credentials": msgspec.to_builtins(listed)})
        return listed
    if not listed:
        click.echo(f"no keys{f' of {provider}' if provider else ''}: hermes auth add {provider or 'PROVIDER'}")
    for name in dict.fromkeys(row.provider for row in listed):
        own = [row for row in listed if row.provider == name]
        current = next((row for row in own if row.usable and row.rests <= 0), None)
        click.echo(f"{name} ({len(own)} credential{'s' if len(own) > 1 else ''}):")
        placed = any(row.base_url for row in own)
        click.echo(rows([cells(row, current, placed=placed) for row in own]))
    return listed


def _entry_of(sources: Sources, row: Row) -> bool:
    return any(entry.id == row.id and entry.provider == row.provider for entry in sources.pool)
