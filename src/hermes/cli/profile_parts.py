"""What the commands of `hermes profile` share: which one is meant, what it runs on, whether anybody uses it."""

from __future__ import annotations

import os
from typing import Any

import click
import msgspec

from hermes.cli.options import GlobalOptions, home_of, open_sources, options_of, sources_in
from hermes.config import Home
from hermes.config.home import DEFAULT_PROFILE, profile_names, unknown_profile
from hermes.config.profiles import read_profile
from hermes.core.errors import HermesError, OperatorError, UsageError
from hermes.credentials.sources import NotConfigured
from hermes.kanban.home import busy_cards
from hermes.store.hosting import host_alive
from hermes.store.owner import living_owners

__all__ = ["Standing", "check_idle", "named_profile", "runs_on", "standing"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A profile and what it would run on now. `trouble` says why it cannot run, empty if it can."""

    name: str
    active: bool
    path: str
    description: str
    inherits: str | None
    model: str = ""
    provider: str = ""
    server: str = ""
    key: str = ""
    model_from: str = ""
    persona: bool = False
    trouble: str = ""


def standing(home: Home, active: str, options: GlobalOptions) -> Standing:
    """What is written of a profile and what it would run on. Never raises for what is wrong with it."""
    whose = msgspec.structs.replace(options, profile=home.profile, model="", provider="")
    known: dict[str, Any] = {"name": home.profile, "active": home.profile == active, "path": str(home.path)}
    try:
        written = read_profile(home)
        known |= {"description": written.description, "inherits": written.inherits}
        sources = sources_in(home, whose, os.environ)
        sources.loaded.require()
        endpoint = sources.endpoint()
    except HermesError as error:
        known = {"description": "", "inherits": None, **known}
        why = "neither a key nor a server is configured" if isinstance(error, NotConfigured) else str(error)
        return Standing(**known, persona=home.persona_file.is_file(), trouble=why)
    return Standing(
        **known,
        model=endpoint.model,
        provider=endpoint.provider,
        server=endpoint.base_url,
        key=endpoint.key_source,
        model_from=sources.loaded.sources["model.default"],
        persona=bool(sources.loaded.persona),
    )


def runs_on(found: Standing) -> str:
    """What a profile would run on, in a sentence's part."""
    if found.trouble:
        return f"nothing yet: {found.trouble}"
    source = "" if found.model_from == "default" else f" ({found.model_from})"
    place = f"{found.provider}, {found.server}" if found.server else found.provider
    return f"{found.model or 'the one model of its server'}{source} at {place}, key: {found.key}"


def named_profile(context: click.Context, name: str | None) -> Home:
    """The home of a profile, the one in use for None. Raises `UsageError` where there is none."""
    here = home_of(context)
    if name is None:
        return here
    if name not in profile_names(here.root):
        raise UsageError(unknown_profile(name, profile_names(here.root)))
    return here.of(name)


def check_idle(context: click.Context, home: Home, *, moves: bool = False) -> None:
    """See that nobody uses a profile; cards that wait for it are told of, unless they move along.

    Raises:
        OperatorError: it works on a card, or is open somewhere.
    """
    loaded = open_sources(msgspec.structs.replace(options_of(context), profile=DEFAULT_PROFILE)).loaded
    running, waiting = busy_cards(loaded.home, loaded.settings, home.profile)
    if running:
        raise OperatorError(
            f"{home.profile} works on {', '.join(running[:3])}{', …' if len(running) > 3 else ''}: "
            f"`hermes kanban archive {running[0]}` or `block` stops it, or let it end. Nothing was changed."
        )
    if living_owners(home.path) or host_alive(home.path):
        raise OperatorError(f"{home.profile} is open in another terminal or runs in the background: end it first.")
    if waiting and not moves:
        which = f"{', '.join(waiting[:3])}{', …' if len(waiting) > 3 else ''}"
        one = "card stays" if len(waiting) == 1 else "cards stay"
        click.echo(
            f"hermes: {len(waiting)} open {one} with {home.profile} ({which}), not worked on until given to another: "
            "hermes kanban assign CARD NAME",
            err=True,
        )
