"""What a process on another machine works with in the place of a home: the settings that differ from the defaults, and
the keys of the servers that these settings name, as the run found them. Nothing is read or written there.

Keys of other servers stay where they are, as do logins: a login that is renewed in two places at once is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hermes.cli.options import GlobalOptions, Sources
from hermes.config import Home, Settings, load
from hermes.core.errors import UsageError
from hermes.credentials import Endpoint, find_keys
from hermes.credentials.auth_file import PoolEntry
from hermes.credentials.keys import ADDRESSES, PROVIDERS, Key, origin

__all__ = ["Carried", "carry", "unpack"]

#: Sections of the settings that have no part in a batch; some hold passwords.
_STAY = ("kanban", "notify", "display")
#: Keys of services that are searched by the web tools.
_SEARCH = ("BRAVE_SEARCH_API_KEY", "TAVILY_API_KEY", "EXA_API_KEY")


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """`values` are settings by dotted key, `environ` and `dotenv` variables of the environment and of `.env`, `pool`
    keys of `auth.json`. `base_url` is the server that is asked."""

    base_url: str
    values: Mapping[str, Any] = {}
    environ: Mapping[str, str] = {}
    dotenv: Mapping[str, str] = {}
    pool: tuple[PoolEntry, ...] = ()

    def __repr__(self) -> str:
        return f"Carried({self.base_url}, {', '.join((*self.environ, *self.dotenv))})"


def carry(sources: Sources, endpoint: Endpoint) -> Carried:
    """What goes along for a run that asks `endpoint`.

    Raises:
        UsageError: its key is a login, or stands in an address.
    """
    settings = sources.loaded.settings
    if urlsplit(endpoint.base_url).password:
        raise UsageError(
            "the address of the server holds a password: give it as a key, which goes into no command line."
        )
    keys = [key for key in sources.keys if _is_asked(key.provider, key.base_url, settings, endpoint)]
    own = next((key for key in keys if key.secret and key.secret == endpoint.api_key), None)
    if own is not None and own.entry is not None and own.entry.renewable:
        raise UsageError(
            f"{own.source} is a login, and only this machine can renew it. Use a key for rows that other machines "
            "carry out."
        )
    values = {
        key: value
        for key, value in sources.loaded.values.items()
        if sources.loaded.sources[key] not in ("default", "command line") and key.split(".")[0] not in _STAY
    }
    model = settings.model
    server = model.base_url or ADDRESSES.get(model.provider, "")
    if model.api_key != endpoint.api_key and not _is_asked("", server, settings, endpoint):
        values.pop("model.api_key", None)
    names = {provider.removeprefix("custom:") for provider, _ in _places(settings, endpoint) if provider}
    if "providers" in values:
        values["providers"] = {name: entry for name, entry in settings.providers.items() if name in names}
    if "custom_providers" in values:
        values["custom_providers"] = [entry for entry in settings.custom_providers if entry.name in names]
    named = {entry.key_env for name, entry in settings.endpoints.items() if name in names}
    named.update(entry.key_env for entry in settings.fallbacks)
    wanted = {*named, *_SEARCH, *(key.variable for key in keys), *_addresses(keys)} - {""}
    dotenv = sources.loaded.dotenv
    return Carried(
        base_url=endpoint.base_url,
        values=values,
        environ={name: value for name, value in sources.environ.items() if name in wanted},
        dotenv={name: value for name, value in dotenv.items() if name in wanted},
        pool=tuple(key.entry for key in keys if key.entry is not None and key.entry.secret and not key.entry.renewable),
    )


def _places(settings: Settings, endpoint: Endpoint) -> list[tuple[str, str]]:
    """Provider and address of whatever the run, its children and its fallbacks may ask."""
    children = settings.delegation
    return [
        (endpoint.provider, endpoint.base_url),
        (children.provider, children.base_url),
        *((route.provider, route.base_url) for route in children.routes.values()),
        *((entry.provider, entry.base_url) for entry in settings.fallbacks),
    ]


def _is_asked(provider: str, base_url: str, settings: Settings, endpoint: Endpoint) -> bool:
    """Whether the server of a key may be asked."""
    for name, place in _places(settings, endpoint):
        address = place or ADDRESSES.get(name, "")
        if (name and provider == name) or (address and base_url and origin(base_url) == origin(address)):
            return True
    return False


def _addresses(keys: Iterable[Key]) -> set[str]:
    """The variables that say where the servers of keys are."""
    providers = {key.provider for key in keys}
    return {f"{prefix}_BASE_URL" for name, prefix, _ in PROVIDERS if name in providers}


def unpack(carried: Carried, home: Path) -> Callable[[GlobalOptions], Sources]:
    """What opens the sources in the place of `cli.options.open_sources`; `home` is a folder without settings."""

    def sources(options: GlobalOptions) -> Sources:
        loaded = load(Home(root=home, path=home), {}, {**carried.values, **options.flags()})
        loaded = msgspec.structs.replace(loaded, dotenv=dict(carried.dotenv))
        return Sources(
            loaded=loaded,
            options=options,
            pool=carried.pool,
            keys=find_keys(carried.environ, carried.dotenv, carried.pool),
            variables={**carried.dotenv, **carried.environ},
            environ=dict(carried.environ),
        )

    return sources
