"""The credential pool in `auth.json`, a format shared with other programs: read, never written.

Only plain keys are taken: logins that need refreshing belong to the program that made them, since a refresh here would
log that program out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hermes.core.codec import decode_json
from hermes.core.errors import OperatorError

__all__ = ["PoolEntry", "read_auth_file"]

_SECRET_FIELDS = ("access_token", "refresh_token", "api_key", "agent_key")


class PoolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One credential; `provider` as the file names it (`openrouter`, `custom:<name>`). Only `usable` ones are sent."""

    provider: str
    label: str
    secret: str
    base_url: str
    usable: bool

    def __repr__(self) -> str:
        return f"PoolEntry(provider={self.provider!r}, label={self.label!r})"


def read_auth_file(path: Path) -> tuple[PoolEntry, ...]:
    """Read the pool, each provider's entries by priority; empty if there is no file.

    Entries that only name a variable (`source: env:NAME`) hold no secret and are left out. Logins and dead entries are
    returned with `usable` false, so that their secrets can be kept out of logs.

    Raises:
        OperatorError: the file cannot be read or is no JSON object.
    """
    try:
        data = decode_json(path.read_bytes())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise OperatorError(f"cannot read {path}: {error.strerror}. Check its owner and mode.") from error
    except msgspec.DecodeError:
        # the decoder's own words are left out: they may quote a piece of a key
        raise OperatorError(f"{path} is not valid JSON. Mend it or move it away.") from None
    if not isinstance(data, dict):
        raise OperatorError(f"{path} is no JSON object. Mend it or move it away.")
    pool = data.get("credential_pool") or {}
    if not isinstance(pool, dict):
        raise OperatorError(f"{path}: credential_pool is no object. Mend the file or move it away.")
    found: list[PoolEntry] = []
    for provider, entries in pool.items():
        maps = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        for entry in sorted(maps, key=_priority):
            found.extend(_entries(str(provider), entry))
    return tuple(found)


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def _priority(entry: dict[str, Any]) -> int:
    value = entry.get("priority")
    return value if isinstance(value, int) else 0


def _entries(provider: str, entry: dict[str, Any]) -> list[PoolEntry]:
    plain = entry.get("auth_type", "api_key") == "api_key" and entry.get("last_status") != "dead"
    return [
        PoolEntry(
            provider=provider,
            label=_text(entry, "label") or _text(entry, "id"),
            secret=_text(entry, name),
            base_url=_text(entry, "base_url"),
            usable=plain and name in ("access_token", "api_key"),
        )
        for name in _SECRET_FIELDS
        if _text(entry, name)
    ]
