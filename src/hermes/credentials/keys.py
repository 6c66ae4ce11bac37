"""The keys that are there, each with the address it belongs to, and the list of what must never be written down.

Which of them is used for a request is decided in `sources`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from hermes.core.errors import UsageError
from hermes.credentials.auth_file import PoolEntry

__all__ = [
    "ADDRESSES",
    "KEYLESS",
    "PROVIDERS",
    "Key",
    "checked_url",
    "find_keys",
    "is_local",
    "known_secrets",
    "mask",
    "origin",
]

#: Known providers in the order in which their keys are looked for: (name, prefix of the variables, address). Servers
#: that people run themselves stand with the address at which they listen unless told otherwise.
PROVIDERS: tuple[tuple[str, str, str], ...] = (
    ("openrouter", "OPENROUTER", "https://openrouter.ai/api/v1"),
    ("openai", "OPENAI", "https://api.openai.com/v1"),
    ("anthropic", "ANTHROPIC", "https://api.anthropic.com"),
    ("nous", "NOUS", "https://inference-api.nousresearch.com/v1"),
    ("google", "GEMINI", "https://generativelanguage.googleapis.com/v1beta/openai"),
    ("google", "GOOGLE", "https://generativelanguage.googleapis.com/v1beta/openai"),
    ("vllm", "VLLM", "http://127.0.0.1:8000/v1"),
    ("ollama", "OLLAMA", "http://127.0.0.1:11434/v1"),
    ("lmstudio", "LMSTUDIO", "http://127.0.0.1:1234/v1"),
    ("llamacpp", "LLAMACPP", "http://127.0.0.1:8080/v1"),
)
#: Those that want no key.
KEYLESS = frozenset({"vllm", "ollama", "lmstudio", "llamacpp"})
#: Address of each known provider.
ADDRESSES: Mapping[str, str] = {name: address for name, _, address in PROVIDERS}


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key with the address it belongs to. `secret` is empty for a local server that needs none.

    `entry` is the pool's own record of it: its id, place, marks; None for a key of a variable that has none yet, whose
    name is `variable`.
    """

    provider: str
    base_url: str
    secret: str
    source: str
    variable: str = ""
    entry: PoolEntry | None = None

    def __repr__(self) -> str:
        return f"Key({self.provider} {self.base_url}, {self.source})"


def mask(secret: str) -> str:
    """Show a secret to people: its last four characters, and none of a short one."""
    return "…" + secret[-4:] if len(secret) >= 12 else "…"


def origin(url: str) -> tuple[str, str, int]:
    """(scheme, host, port) of an address: what a key belongs to. Raises ValueError for a port that is no number."""
    parts = urlsplit(url)
    return parts.scheme.lower(), (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)


def is_local(url: str) -> bool:
    """Whether an address stays on this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_url(url: str, where: str) -> str:
    """Return an address without its last slash; `where` names it in the error.

    Raises:
        UsageError: it is no http(s) address.
    """
    url = url.strip()
    try:
        scheme, host, _ = origin(url)
    except ValueError:
        scheme, host = "", ""
    if scheme not in ("http", "https") or not host:
        raise UsageError(f"{url!r} ({where}) is no address of a server. Write it as https://host/v1.")
    return url.rstrip("/")


def find_keys(
    environ: Mapping[str, str],
    dotenv: Mapping[str, str],
    pool: Iterable[PoolEntry] = (),
    inherited: Mapping[str, str] | None = None,
) -> tuple[Key, ...]:
    """All keys, best first: of the environment, of `.env`, of the pool; each time in the order of `PROVIDERS`.

    `inherited` says of variables in `dotenv` whose profile's they are.

    Beside each `…_API_KEY` its `…_BASE_URL` says which server it belongs to. A `…_BASE_URL` on this machine, or of one
    of the servers that want no key, counts without one.

    Raises:
        UsageError: a `…_BASE_URL` is no address.
    """
    pool = tuple(pool)
    marks = {(entry.provider, entry.source): entry for entry in pool if entry.source.startswith("env:")}
    found: list[Key] = []
    for variables, label in ((environ, "environment"), (dotenv, ".env")):
        for name, prefix, address in PROVIDERS:
            variable, named = f"{prefix}_BASE_URL", f"{prefix}_API_KEY"
            own = variables.get(variable, "").strip()
            given = own or environ.get(variable, "").strip() or dotenv.get(variable, "").strip()
            url = checked_url(given, variable) if given else address
            secret = variables.get(named, "").strip()
            if secret:
                found.append(
                    Key(
                        provider=name,
                        base_url=url,
                        secret=secret,
                        source=f"{named} ({_place(label, named, inherited)})",
                        variable=named,
                        entry=marks.get((name, f"env:{named}")),
                    )
                )
            elif own and (is_local(url) or name in KEYLESS):
                place = _place(label, variable, inherited)
                found.append(Key(provider=name, base_url=url, secret="", source=f"none, {variable} ({place})"))
    return (*found, *_pool_keys(pool))


def _place(label: str, variable: str, inherited: Mapping[str, str] | None) -> str:
    whose = (inherited or {}).get(variable) if label == ".env" else None
    return f"{label} of {whose}" if whose else label


def _pool_keys(pool: Iterable[PoolEntry]) -> list[Key]:
    order = {name: place for place, name in enumerate(ADDRESSES)}
    found = []
    for entry in sorted(pool, key=lambda entry: order.get(entry.provider, len(order))):
        url = entry.base_url or ADDRESSES.get(entry.provider, "")
        if entry.usable and url:
            source = f"auth.json, {entry.provider} {entry.label}".rstrip()
            url = checked_url(url, source)
            found.append(Key(provider=entry.provider, base_url=url, secret=entry.secret, source=source, entry=entry))
    return found


_SECRET_NAME = re.compile(r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD)$", re.IGNORECASE)


def known_secrets(
    environ: Mapping[str, str], dotenv: Mapping[str, str], pool: Iterable[PoolEntry] = (), more: Iterable[str] = ()
) -> tuple[str, ...]:
    """Every secret this process knows, longest first, for whoever must keep them out of rows, events and logs.

    `more` are those of the settings and the command line. Values shorter than 8 characters are left out: replacing
    them would garble ordinary text.
    """
    found = {value for variables in (environ, dotenv) for name, value in variables.items() if _SECRET_NAME.search(name)}
    found.update(entry.secret for entry in pool)
    found.update(more)
    stripped = {value.strip() for value in found}
    return tuple(sorted((value for value in stripped if len(value) >= 8), key=lambda value: (-len(value), value)))
