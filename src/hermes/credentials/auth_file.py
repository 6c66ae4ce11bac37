"""The credential pool in `auth.json`, a format shared with other programs: reading it. `auth_change` writes it.

Plain keys are taken, and logins that name the endpoint at which they are renewed (`oauth`). Other logins belong to the
program that made them, since a refresh here would log that program out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from hermes.core.codec import decode_json
from hermes.core.errors import OperatorError

__all__ = ["SECRET_FIELDS", "PoolEntry", "read_auth_file", "read_moment"]

#: Seconds for which a mark that names no time is believed.
UNNAMED_REST = 600.0

#: The fields of an entry that hold a secret.
SECRET_FIELDS = ("access_token", "refresh_token", "api_key", "agent_key")


class PoolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One credential; `provider` as the file names it (`openrouter`, `custom:<name>`). Only `usable` ones are sent.

    An entry whose `source` is `env:NAME` holds no secret, only marks. `rests_until` is seconds since the epoch, 0 for a
    key that does not rest; it is `named` unless this program guessed it; `reason` says why it rests. A `renewable` one
    is renewed at `token_url` before `expires_at` (0: unknown); one that is `logged_out` has no secret left.
    """

    provider: str
    label: str
    secret: str
    base_url: str
    usable: bool
    id: str = ""
    source: str = ""
    priority: int = 0
    rests_until: float = 0.0
    named: bool = True
    reason: Literal["", "rate_limit", "billing", "auth", "dead"] = ""
    requests: int = 0
    kind: str = "api_key"
    renewable: bool = False
    expires_at: float = 0.0
    logged_out: bool = False
    token_url: str = ""
    client_id: str = ""

    def __repr__(self) -> str:
        return f"PoolEntry(provider={self.provider!r}, label={self.label!r})"


def read_auth_file(path: Path) -> tuple[PoolEntry, ...]:
    """Read the pool, each provider's entries by priority; empty if there is no file.

    Entries that only name a variable (`source: env:NAME`) hold no secret. They, foreign logins and dead entries are
    returned with `usable` false; so their secrets can be kept out of logs.

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


def read_moment(entry: Mapping[str, Any], name: str) -> float:
    """A field of an entry as a number; a moment (ISO, milliseconds or seconds) as seconds since the epoch, else 0."""
    value = entry.get(name)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            return 0.0
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return 0.0
    return value / 1_000 if value > 1e11 else float(value)


def _rest(entry: dict[str, Any]) -> tuple[float, Literal["", "rate_limit", "billing", "auth", "dead"]]:
    """Until when an entry rests, and why. A mark without a time holds for ten minutes."""
    if entry.get("last_status") == "dead":
        return 0.0, "dead"
    if entry.get("last_status") != "exhausted":
        return 0.0, ""
    until = read_moment(entry, "last_error_reset_at") or read_moment(entry, "last_status_at") + UNNAMED_REST
    code = entry.get("last_error_code")
    return until, "billing" if code == 402 else "auth" if code in (401, 403) else "rate_limit"


def _entries(provider: str, entry: dict[str, Any]) -> list[PoolEntry]:
    kind = _text(entry, "auth_type") or "api_key"
    renewable = kind == "oauth" and bool(_text(entry, "token_url") and _text(entry, "refresh_token"))
    plain = (kind == "api_key" or renewable) and entry.get("last_status") != "dead"
    until, reason = _rest(entry)
    source = _text(entry, "source")
    names = [name for name in SECRET_FIELDS if _text(entry, name)]
    logged_out = not names and bool(_text(entry, "token_url"))
    return [
        PoolEntry(
            provider=provider,
            label=_text(entry, "label") or _text(entry, "id"),
            secret=_text(entry, name) if name else "",
            base_url=_text(entry, "base_url"),
            usable=plain and name in ("access_token", "api_key"),
            id=_text(entry, "id"),
            source=source,
            priority=_priority(entry),
            rests_until=until,
            named=entry.get("reset_guessed") is not True,
            reason=reason,
            requests=int(read_moment(entry, "request_count")),
            kind=kind,
            renewable=renewable,
            expires_at=read_moment(entry, "expires_at") if renewable else 0.0,
            logged_out=logged_out,
            token_url=_text(entry, "token_url"),
            client_id=_text(entry, "client_id"),
        )
        for name in names or ([""] if source.startswith("env:") or logged_out else [])
    ]
