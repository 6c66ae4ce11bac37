"""Which server is asked with which key: one answer for chat, children and batch.

A key belongs to the host it was given for and is never sent to another one. A model's name never chooses the server.
Nothing here goes to the network, and settings come in as plain values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from hermes.core.errors import ConfigError, HermesError, UsageError
from hermes.credentials.keys import ADDRESSES, KEYLESS, Key, checked_url, is_local, origin

__all__ = [
    "EMBEDDED",
    "Endpoint",
    "EndpointFlags",
    "EndpointSettings",
    "MissingKey",
    "NotConfigured",
    "find_child_endpoint",
    "find_endpoint",
    "is_embedded",
    "named_provider",
    "settings_secrets",
]

#: Id of the model that comes as a package.
EMBEDDED = "embedded:smollm2-135m"

#: The wire formats by the names of the settings; empty: by the address.
ApiMode = Literal["", "chat_completions", "anthropic_messages", "codex_responses"]

#: Providers whose names stand before the models of other catalogues too.
VENDORS = frozenset({"openai", "anthropic", "google"})

_DEFAULT_MODELS = {"openrouter": "anthropic/claude-sonnet-4.6", "anthropic": "claude-sonnet-4-6"}

_SCREEN = """\
no model is configured. Three ways to go on:
  1. a key            export OPENROUTER_API_KEY=…   (or OPENAI_API_KEY, ANTHROPIC_API_KEY; `hermes setup` asks for one)
  2. a local server   -m ollama/MODEL   (or vllm, lmstudio, llamacpp; any other: export OPENAI_BASE_URL=http://…/v1)
  3. nothing at all   -m embedded   (tiny local model: for trying the pipeline)"""


class NotConfigured(UsageError):
    """There is neither a key nor a server to ask; the text is the whole screen. Nothing has been started."""

    def __init__(self) -> None:
        super().__init__(_SCREEN)


class MissingKey(ConfigError):
    """There is a server, but no key that belongs to it."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Address, key and model as one triple; never mix the parts of two.

    An empty `api_key` means none is needed, an empty `model` that none was named. `key_source` says where the key came
    from, for people; it never holds the key. For the embedded model `base_url` is empty. `api_mode` is the wire
    format of the server, empty where its address says it.
    """

    provider: str
    base_url: str
    api_key: str
    key_source: str
    model: str
    api_mode: ApiMode = ""

    def __repr__(self) -> str:
        return f"Endpoint({self.provider} {self.base_url} {self.model!r}, key: {self.key_source})"


class EndpointFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says; empty means not given."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    api_mode: ApiMode = ""

    def __repr__(self) -> str:
        return f"EndpointFlags({self.model!r}, {self.provider!r}, {self.base_url!r})"


class _Choice(Protocol):
    @property
    def default(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def api_key(self) -> str: ...
    @property
    def api_mode(self) -> ApiMode: ...
    @property
    def aliases(self) -> Mapping[str, str]: ...


class _Named(Protocol):
    @property
    def base_url(self) -> str: ...
    @property
    def api_key(self) -> str: ...
    @property
    def key_env(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def api_mode(self) -> ApiMode: ...


class _Route(Protocol):
    @property
    def api_key(self) -> str: ...


class _Children(Protocol):
    @property
    def model(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def api_key(self) -> str: ...
    @property
    def routes(self) -> Mapping[str, _Route]: ...


class EndpointSettings(Protocol):
    """The settings that matter here: `model`, the user's own `endpoints` by name, and those of children."""

    @property
    def model(self) -> _Choice: ...
    @property
    def endpoints(self) -> Mapping[str, _Named]: ...
    @property
    def delegation(self) -> _Children: ...


def is_embedded(model: str) -> bool:
    """Whether a model's name means the one that runs on this machine."""
    return model == "embedded" or model.startswith("embedded:")


def find_endpoint(
    settings: EndpointSettings, flags: EndpointFlags, keys: Iterable[Key], variables: Mapping[str, str] | None = None
) -> Endpoint:
    """Choose the server, its key and the model: command line > settings > the first key > OpenRouter.

    A name such as `ollama/qwen3` gives the provider too (see `named_provider`).

    `variables` are the environment and `.env` together, for endpoints that name their key's variable.

    Raises:
        NotConfigured: there is nothing to ask.
        MissingKey: the server needs a key and none belongs to it.
        UsageError: an address or a provider's name is none.
    """
    keys = tuple(keys)
    wanted = flags.model or settings.model.default
    wanted = settings.model.aliases.get(wanted, wanted)
    provider = flags.provider or ("" if flags.model else settings.model.provider)
    if is_embedded(wanted) or provider == "embedded":
        if flags.base_url:
            raise UsageError(
                f"--base_url {flags.base_url} and the embedded model exclude each other: give one of them."
            )
        model = wanted if wanted.startswith("embedded:") else EMBEDDED
        return Endpoint(provider="embedded", base_url="", api_key="", key_source="none needed", model=model)
    flags, wanted = _by_name(settings, flags, keys, wanted)
    provider, base_url = _place(settings, flags, keys)
    secret, source = _key(settings, flags, keys, variables or {}, provider, base_url)
    named = settings.endpoints.get(provider)
    model = wanted or (named.model if named is not None else "") or _default_model(base_url)
    mode = flags.api_mode or _api_mode(settings, flags, provider, base_url)
    return Endpoint(provider=provider, base_url=base_url, api_key=secret, key_source=source, model=model, api_mode=mode)


def find_child_endpoint(
    parent: Endpoint,
    settings: EndpointSettings,
    keys: Iterable[Key],
    model: str = "",
    variables: Mapping[str, str] | None = None,
) -> Endpoint:
    """The endpoint of a child: `model` of its call > the delegation settings > the parent's triple.

    The parent's key goes along only to the parent's own server. Raises as `find_endpoint`.
    """
    children = settings.delegation
    wanted = model or children.model
    wanted = settings.model.aliases.get(wanted, wanted)
    flags = EndpointFlags(
        model=wanted or parent.model,
        provider="" if children.base_url else children.provider,
        base_url=children.base_url,
        api_key=children.api_key if children.base_url else "",
    )
    if is_embedded(wanted):
        return find_endpoint(settings, EndpointFlags(model=wanted), keys, variables)
    if not flags.base_url and not flags.provider:
        if parent.provider == "embedded" and wanted:
            return find_endpoint(settings, flags, keys, variables)
        return msgspec.structs.replace(parent, model=flags.model)
    if flags.base_url and not flags.api_key and parent.base_url and origin(flags.base_url) == origin(parent.base_url):
        flags = msgspec.structs.replace(flags, api_key=parent.api_key)
    return find_endpoint(settings, flags, keys, variables)


def settings_secrets(settings: EndpointSettings, variables: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets that stand in the settings, or in `variables` under a name that the settings give."""
    endpoints = settings.endpoints.values()
    found = [settings.model.api_key, settings.delegation.api_key, *(entry.api_key for entry in endpoints)]
    found += [route.api_key for route in settings.delegation.routes.values()]
    found += [variables.get(entry.key_env, "") for entry in endpoints if entry.key_env]
    return tuple(secret for secret in found if secret)


def named_provider(settings: EndpointSettings, model: str, other: str, base_url: str) -> tuple[str, str]:
    """(provider, model) of a name such as `ollama/qwen3`; ("", the name) where it names no provider.

    `other` and `base_url` are the provider and the server that would be asked otherwise, empty for none. What stands
    before a slash is mostly a vendor (`anthropic/claude-…`), which chooses no server; and on a server of the user's own
    every name is its own.
    """
    head, _, rest = model.partition("/")
    if not rest or head in VENDORS:
        return "", model
    named = settings.endpoints.get(head)
    if named is not None and named.base_url:
        return head, rest
    known = other in ("", "embedded", *KEYLESS) or origin(base_url) in {
        origin(address) for address in ADDRESSES.values()
    }
    if head not in ADDRESSES or not known or head == "openrouter" and "/" not in rest:
        return "", model
    return head, rest


def _by_name(
    settings: EndpointSettings, flags: EndpointFlags, keys: tuple[Key, ...], wanted: str
) -> tuple[EndpointFlags, str]:
    """The flags and the model with the provider that the model's name gives, where nothing else gives another one."""
    if flags.base_url or (settings.model.base_url and not flags.model):
        return flags, wanted
    try:
        other, base_url = _place(settings, flags, keys)
    except HermesError:  # reported below, unless the name makes it good
        other = base_url = ""
    provider, model = named_provider(settings, wanted, other, base_url)
    given = flags.provider or ("" if flags.model else settings.model.provider)
    if not provider or given.removeprefix("custom:") not in ("", "auto", provider):
        return flags, wanted
    return msgspec.structs.replace(flags, provider=provider), model


def _default_model(base_url: str) -> str:
    name = next((name for name, address in ADDRESSES.items() if origin(address) == origin(base_url)), "")
    return _DEFAULT_MODELS.get(name, "")


def _place(settings: EndpointSettings, flags: EndpointFlags, keys: tuple[Key, ...]) -> tuple[str, str]:
    choice = settings.model
    if flags.base_url:
        url = checked_url(flags.base_url, "--base_url")
        return flags.provider or _provider_of(settings, url), url
    if flags.provider:
        return _named_place(settings, flags.provider, keys, "--provider")
    if choice.base_url:
        url = checked_url(choice.base_url, "model.base_url")
        return choice.provider or _provider_of(settings, url), url
    # an embedded provider in the settings is passed over when -m asks for another model
    if choice.provider not in ("", "auto", "embedded"):
        return _named_place(settings, choice.provider, keys, "model.provider")
    if keys and not choice.api_key:
        return keys[0].provider, keys[0].base_url
    if flags.api_key or choice.api_key:
        return "openrouter", ADDRESSES["openrouter"]
    raise NotConfigured


def _provider_of(settings: EndpointSettings, url: str) -> str:
    """The entry with this very address, else the first one of its server that speaks no format of its own."""
    own = {name: entry for name, entry in settings.endpoints.items() if entry.base_url}
    for name, entry in own.items():
        if entry.base_url.strip().rstrip("/") == url:
            return name
    for name, entry in own.items():
        if not entry.api_mode and origin(entry.base_url) == origin(url):
            return name
    known = (name for name, address in ADDRESSES.items() if name not in KEYLESS and origin(address) == origin(url))
    return next(known, "custom")


def _named_place(settings: EndpointSettings, name: str, keys: tuple[Key, ...], where: str) -> tuple[str, str]:
    plain = name.removeprefix("custom:")
    named = settings.endpoints.get(plain)
    if named is not None and named.base_url:
        return plain, checked_url(named.base_url, f"providers.{plain}.base_url")
    known = next((key for key in keys if key.provider in (name, f"custom:{plain}")), None)
    if known is not None:
        return name, known.base_url
    if plain in ADDRESSES:
        return plain, ADDRESSES[plain]
    names = [*ADDRESSES, *settings.endpoints, "embedded"]
    near = difflib.get_close_matches(name, names, 1)
    hint = (
        f"Did you mean {near[0]}?" if near else f"Known: {', '.join(names)}; add yours to `providers` in config.yaml."
    )
    raise UsageError(f"there is no provider {name!r} ({where}). {hint}")


def _api_mode(settings: EndpointSettings, flags: EndpointFlags, provider: str, base_url: str) -> ApiMode:
    """The wire format of a server: as its entry says, as `model` says of its own, as its provider always speaks."""
    named = settings.endpoints.get(provider)
    if named is not None and named.api_mode and named.base_url and origin(named.base_url) == origin(base_url):
        return named.api_mode
    choice = settings.model
    configured = not flags.base_url and not flags.provider
    same = bool(choice.base_url) and checked_url(choice.base_url, "model.base_url") == base_url
    if choice.api_mode and (configured or same):
        return choice.api_mode
    if provider == "anthropic" and not base_url.endswith("/chat/completions"):
        return "anthropic_messages"
    return ""


def _key(
    settings: EndpointSettings,
    flags: EndpointFlags,
    keys: tuple[Key, ...],
    variables: Mapping[str, str],
    provider: str,
    base_url: str,
) -> tuple[str, str]:
    if flags.api_key:
        return _real(flags.api_key, "--api_key"), "--api_key"
    target = origin(base_url)
    # the entry whose format is spoken goes first: one server may have several, each with a key
    plain = provider.removeprefix("custom:")
    entries = sorted(settings.endpoints.items(), key=lambda item: item[0] != plain)
    if flags.provider and entries and entries[0][0] == plain and (found := _own_key(*entries[0], variables, target)):
        return found
    choice = settings.model
    home = choice.base_url or ADDRESSES.get(choice.provider or "openrouter", "")
    if choice.api_key and home and origin(home) == target:
        return _real(choice.api_key, "model.api_key"), "model.api_key"
    for name, entry in entries:
        if found := _own_key(name, entry, variables, target):
            return found
    own = sorted((key for key in keys if origin(key.base_url) == target), key=lambda key: key.provider != provider)
    if own:
        return own[0].secret, own[0].source
    if is_local(base_url):
        return "", "none needed (this machine)"
    raise _missing(base_url, keys)


def _own_key(
    name: str, entry: _Named, variables: Mapping[str, str], target: tuple[str, str, int]
) -> tuple[str, str] | None:
    """(key, source) that an entry of the settings gives for a server; None if it is for another one or gives none."""
    if not entry.base_url or origin(entry.base_url) != target:
        return None
    if entry.api_key:
        return _real(entry.api_key, f"providers.{name}.api_key"), f"providers.{name}.api_key"
    if variables.get(entry.key_env):
        return variables[entry.key_env], f"{entry.key_env} (providers.{name}.key_env)"
    return None


def _missing(base_url: str, keys: tuple[Key, ...]) -> MissingKey:
    host = urlsplit(base_url).netloc.rpartition("@")[2]
    others = dict.fromkeys(f"{key.source} belongs to {urlsplit(key.base_url).hostname}" for key in keys if key.secret)
    said = f" ({', '.join(others)}, and is sent nowhere else)" if others else ""
    variable = next(
        (f"{name.upper()}_API_KEY" for name, url in ADDRESSES.items() if origin(url) == origin(base_url)), ""
    )
    ways = f"set {variable}" if variable else f"set OPENAI_API_KEY together with OPENAI_BASE_URL={base_url}"
    return MissingKey(
        f"no key for {host}{said}. Give --api_key, or {ways}, or name it under `providers` in config.yaml."
    )


def _real(secret: str, where: str) -> str:
    if re.fullmatch(r"\$\{\w+\}", secret):
        raise MissingKey(f"{where} is {secret}, but no such variable is set. Export it or put it into .env.")
    return secret
