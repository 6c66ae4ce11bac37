"""`hermes profile install|update|info`: a profile that somebody offers, its newer versions, and where it is from.

What it brings and what it will run on is shown, and asked about, before it is there. It never brings a key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from hermes.chat.render import printable
from hermes.cli.agreeing import agree
from hermes.cli.opening import parts_without_model
from hermes.cli.options import home_of, options_of, sources_in
from hermes.cli.profile_fetching import Fetched, fetch
from hermes.cli.profile_parts import named_profile, runs_on, standing
from hermes.cli.screens import print_json, rows
from hermes.compose.opening import redactor_of
from hermes.config import Home
from hermes.config.profile_changes import Change, after, look_at, shown
from hermes.config.profile_install import (
    Origin,
    OtherPlan,
    apply,
    differences,
    own_files,
    plan_update,
    read_origin,
    settle,
    staged,
)
from hermes.config.profile_offer import Offer, flat
from hermes.config.profiles import read_profile
from hermes.core.errors import HermesError, UsageError

__all__ = ["info", "install", "update"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
_ref = click.option("--ref", default="", metavar="REF", help="Branch, tag or commit of a git repository.")
#: Lines of settings that are shown; the rest is counted.
_LINES = 80
#: How often an update looks again at a profile that changes while it waits for an answer.
_LOOKS = 5


@click.command(
    epilog="\b\nExamples:\n  hermes profile install ./writer\n"
    "  hermes profile install github.com/you/writer --name ghost\n"
    "  hermes profile install https://example.com/writer.git --ref v1.2 -y"
)
@click.argument("source")
@click.option("--name", default="", metavar="NAME", help="Its name here; else the one it brings.")
@_ref
@_yes
@_json
@click.pass_context
def install(context: click.Context, /, source: str, name: str, ref: str, yes: bool, as_json: bool) -> None:
    """Make a profile of a folder, a git repository or an exported file, which `update` follows later.

    Shows its settings and what it will run on, and asks. Only settings, persona and agent types are taken: no keys, no
    sessions, no programs.
    """
    fetched = fetch(source, ref)
    here = home_of(context)
    name = name or fetched.offer.manifest.name.lower()
    with staged(here, name, fetched.offer, fetched.origin) as home:
        _refuse_secrets(context, home, fetched)
        found = standing(home, here.profile, options_of(context))
        missing = [
            each.name for each in fetched.offer.manifest.env_requires if each.name not in _variables(context, home)
        ]
        if not as_json:
            for line in _shown(fetched, runs_on(found), missing):
                click.echo(printable(line))
        agree(f"Install it as {name}?", "Nothing was installed", yes=yes, as_json=as_json)
        placed = settle(home)
    if as_json:
        about = {"path": str(placed.path), "files": sorted(fetched.offer.files), "origin": fetched.origin}
        told = {"look_at": look_at({}, fetched.offer.settings), "missing": missing}
        print_json({**msgspec.to_builtins(found), **about, **told})
        return
    click.echo(f"installed {name} in {placed.path}")
    wanted = {each.name for each in fetched.offer.manifest.env_requires if each.required}
    for each in (name for name in missing if name in wanted):
        click.echo(f"  it needs {each}: hermes -p {name} config set {each} …")


def _variables(context: click.Context, home: Home) -> Sequence[str]:
    try:
        return list(sources_in(home, options_of(context), os.environ).variables)
    except HermesError:
        return list(os.environ)  # what is wrong with its settings is told where it says what it runs on


def _refuse_secrets(context: click.Context, home: Home, fetched: Fetched) -> None:
    """Raises `UsageError` where a file holds a key that has a known form, or is one of this home."""
    here = sources_in(home_of(context), options_of(context), os.environ)
    hide = redactor_of(parts_without_model(here)).text
    for path, text in fetched.offer.files.items():
        if hide(text) != text:
            raise UsageError(
                f"{path} of {fetched.origin.source} holds a key or another secret, which a profile does not bring "
                "along. Nothing was taken from it."
            )


def _shown(fetched: Fetched, runs: str, missing: Sequence[str]) -> Iterator[str]:
    offer, origin = fetched.offer, fetched.origin
    said = offer.manifest
    by = f" by {said.author}" if said.author else ""
    yield f"{said.name} {said.version}".rstrip() + by + (f": {said.description}" if said.description else "")
    yield f"  from {_place(origin)}"
    yield f"  brings {', '.join(_sized(offer))}"
    if offer.left_out:
        more = f", … ({len(offer.left_out)} files)" if len(offer.left_out) > 5 else ""
        yield f"  left out, since keys and work stay where they are: {', '.join(offer.left_out[:5])}{more}"
    if said.hermes_requires:
        yield f"  made for hermes {said.hermes_requires}"
    yield f"  runs on {runs}"
    for called, path in (("settings", "config.yaml"), ("persona", "SOUL.md")):
        lines = offer.files.get(path, "").rstrip().splitlines()
        if lines:
            yield f"  its {called}:"
            yield from (f"    {line}" for line in lines[:_LINES])
            yield from [f"    … {len(lines) - _LINES} lines more"] if len(lines) > _LINES else []
    yield from _looked_at(look_at({}, offer.settings))
    for each in said.env_requires:
        state = "not set" if each.name in missing else "set"
        need = "needs" if each.required else "can use"
        yield f"  {need} {each.name} ({state})" + (f": {each.description}" if each.description else "")


def _looked_at(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"  look at {', '.join(names)}: they say whom it asks, what may run here, or how much it may take"]


def _sized(offer: Offer) -> list[str]:
    sized = [(path, len(text.splitlines())) for path, text in sorted(offer.files.items())]
    return [f"{path} ({lines} line{'' if lines == 1 else 's'})" for path, lines in sized]


def _place(origin: Origin) -> str:
    if origin.kind != "git":
        return origin.source
    named = f"{origin.ref}, " if origin.ref else ""
    return f"{origin.source} ({named}commit {origin.commit[:12]})"


def _installed(home: Home) -> Origin:
    origin = read_origin(home)
    if origin is None:
        raise UsageError(
            f"{home.profile} was made here and not installed; there is nothing to update it from. "
            "`hermes profile install SOURCE` installs one."
        )
    return origin


@click.command(epilog="\b\nExamples:\n  hermes profile update writer\n  hermes profile update writer --ref v2 -y")
@click.argument("name")
@_ref
@_yes
@_json
@click.pass_context
def update(context: click.Context, /, name: str, ref: str, yes: bool, as_json: bool) -> None:
    """Bring a newer version of an installed profile here, from where it is from. What was changed here stays.

    Shows what changes, and asks. Keys, sessions and settings of your own are not touched; what both sides changed stays
    as it is here and is named.
    """
    home = named_profile(context, name)
    known = _installed(home)
    if ref and known.kind != "git":
        raise UsageError(f"--ref goes with a git repository; {name} is from {known.source}.")
    fetched = fetch(known.source, ref or known.ref)
    _refuse_secrets(context, home, fetched)
    for left in reversed(range(_LOOKS)):
        changes = plan_update(home, fetched.offer)
        moves = [each for each in changes if each.what != "keep"]
        own = own_files(home, fetched.offer)
        look = _changed(own, fetched, changes)
        if not as_json:
            for line in _news(home, known, fetched, shown(changes, own, fetched.offer.files), look):
                click.echo(printable(line))
        if moves:
            agree(f"Change {name}?", "Nothing was changed", yes=yes, as_json=as_json)
        try:
            apply(home, fetched.offer, fetched.origin, changes)
            break
        except OtherPlan as error:
            if not left:
                raise
            click.echo(printable(f"hermes: {error.what} Looking again …"), err=True)
    if as_json:
        said = {"profile": name, "before": known, "origin": fetched.origin, "changes": changes, "look_at": look}
        print_json(said)
    elif moves:
        click.echo(f"{name} is up to date")


def _changed(own: Mapping[str, str], fetched: Fetched, changes: Sequence[Change]) -> list[str]:
    """The settings to look at among those that an update changes."""
    path = "config.yaml"
    here, there = own.get(path, ""), fetched.offer.files.get(path, "")
    return look_at(flat(here), after(changes, here, there))


def _news(home: Home, known: Origin, fetched: Fetched, changes: Iterable[str], look: Sequence[str]) -> Iterator[str]:
    now = fetched.origin
    was, comes = (each.version or each.commit[:12] or "no version" for each in (known, now))
    yield f"{home.profile} from {_place(now)}: {was}" + (f" → {comes}" if was != comes else "")
    lines = [f"  {line}" for line in changes]
    yield from lines or ["  nothing new"]
    yield from _looked_at(look)


@click.command(epilog="\b\nExamples:\n  hermes profile info writer\n  hermes profile info writer --json")
@click.argument("name", required=False)
@_json
@click.pass_context
def info(context: click.Context, /, name: str | None, as_json: bool) -> None:
    """Say where a profile is from, which version it is, and what was changed here since."""
    home = named_profile(context, name)
    origin = read_origin(home)
    changed = differences(home) if origin is not None else []
    if as_json:
        print_json({"profile": home.profile, "origin": origin, "changed_here": changed})
        return
    if origin is None:
        click.echo(f"{home.profile} was made here, not installed from somewhere")
        return
    table: list[tuple[str, Any]] = [
        ("profile", home.profile),
        ("good at", read_profile(home).description or "(no description set)"),
        ("from", _place(origin)),
        ("version", origin.version or "none given"),
        ("author", origin.author or "not said"),
        ("installed", datetime.fromtimestamp(origin.at).strftime("%Y-%m-%d %H:%M")),
        ("changed here", ", ".join(changed) or "nothing"),
    ]
    click.echo(printable(rows(table, indent="")))
