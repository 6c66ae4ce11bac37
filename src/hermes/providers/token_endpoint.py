"""Asking an OAuth token endpoint for a new key. It blocks, follows no redirect, and keeps nothing of what it hears."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["TokenReply", "ask_token"]

#: Seconds for one answer; the most bytes of it that are read.
TIMEOUT, MOST = 20.0, 65_536
#: What an endpoint says of a login that is lost for good.
FINAL = frozenset(
    ("invalid_grant", "invalid_client", "unauthorized_client", "refresh_token_reused", "token_revoked", "invalid_token")
)


class TokenReply(msgspec.Struct, frozen=True, kw_only=True):
    """A new key, `expires_in` in seconds; or none, and why: `final` if there never will be one for this login."""

    access_token: str = ""
    refresh_token: str = ""
    expires_in: float | None = None
    error: str = ""
    final: bool = False

    def __repr__(self) -> str:
        return f"TokenReply(expires_in={self.expires_in}, error={self.error!r})"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A refresh token is for one address."""

    def redirect_request(self, *given: Any) -> None:
        return None


def ask_token(url: str, form: Mapping[str, str]) -> TokenReply:
    """Send `form` to the endpoint at `url`, which has to be http(s)."""
    request = urllib.request.Request(  # noqa: S310  the address was checked when it was added
        url, urllib.parse.urlencode(form).encode(), {"Accept": "application/json"}, method="POST"
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT) as response:
            body = response.read(MOST)
    except urllib.error.HTTPError as error:
        code = _code(error.read(MOST))
        return TokenReply(error=code or f"HTTP {error.code}", final=code in FINAL)
    except (OSError, ValueError) as error:
        return TokenReply(error=f"{url} does not answer ({type(error).__name__})")
    try:
        given = msgspec.json.decode(body, type=TokenReply, strict=False)
    except msgspec.DecodeError:
        given = TokenReply()
    if given.access_token:
        return msgspec.structs.replace(given, error="", final=False)
    code = _code(body)
    return TokenReply(error=code or f"{url} answered with something that is no token", final=code in FINAL)


def _code(body: bytes) -> str:
    """The error's name in an answer; nothing else of it is taken, since it may quote a secret."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return ""
    code = value.get("error") if isinstance(value, dict) else None
    code = code.get("code") or code.get("type") if isinstance(code, dict) else code
    return code if isinstance(code, str) and code.replace("_", "").isalnum() and len(code) < 60 else ""
