"""What a failed model call means: status, words and connection errors → `ModelError`.

Messages are for people: what happened, which host, the provider's own text (at most 300 characters) and what to do;
never the key. Nothing here decides whether to ask again; it only says whether that could help.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from hermes.core.errors import ModelError, ModelErrorReason
from hermes.providers.flights import Dropped
from hermes.providers.http import StreamTimeout
from hermes.providers.retry_after import parse_retry_after

__all__ = ["Origin", "connection_error", "error_text", "stream_error", "status_error"]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call went: host for people, the model's name, and the key, which is cut out of every text.

    `tokens` estimates the size of the request, `messages` counts its messages, `window` is the model's: a connection
    that breaks under a large request usually means that it was too large.
    """

    host: str
    model: str
    secret: str = ""
    tokens: int = 0
    messages: int = 0
    window: int = 128_000


def _words(*texts: str) -> re.Pattern[str]:
    return re.compile("|".join(texts), re.IGNORECASE)


_BILLING = _words(
    "insufficient_quota", r"\bbilling\b", r"key limit exceeded", r"spending limit", r"payment required", r"\bcredits?\b"
)  # fmt: skip
_NO_CREDIT = _words("credit balance is too low")
_TRANSIENT = _words("try again", "resets? (at|in)", "retry", "temporar")
_USAGE = _words("usage limit", "rate limit", "quota", "limit reached")
_CONTEXT = _words(
    r"context[ _](length|window|size|limit)", "maximum context", "too many (input )?tokens", "prompt is too long",
    "input is too long", "exceed_context_size", "reduce the length", "request too large for the context",
)  # fmt: skip
_MODEL = _words(
    "model[ _]not[ _](found|exist|available)", "no such model", "unknown model", "invalid model", "not a valid model",
    r"\bmodels?\b[^\n]{0,80}?\b(not found|does not exist|doesn't exist)",
    r"\bmodel \S{1,80} is not (supported|available)",
    "no endpoints found for", r"not_found_error\b.{0,80}\bmodel:", r"\bmodel: .{0,120}\bnot_found_error",
)  # fmt: skip
_POLICY = _words("data policy", "privacy (policy|settings)", "guardrail", r"provider[ _]policy", "publication policy")
_CONTENT = _words("content[ _](policy|filter|management)", r"\bmoderation\b", r"\bflagged\b", "safety (system|policy)")
_OVERLOAD = _words("overload", "over capacity", "at capacity", "no capacity", "server (is )?busy", "high demand")
_DEAD_KEY = _words(
    "token_(invalidated|revoked)", "invalid_(token|grant)", "unauthorized_client", "refresh_token_reused",
    "account (has been )?(deactivated|disabled|suspended)",
)  # fmt: skip
_EXPIRED = _words(r"\b(key|credentials?)\b[^\n]{0,60}\bexpired\b", r"\bexpired\b[^\n]{0,20}\bkey\b")
_WRONG_KEY = _words(
    r"api[ _-]?key (is )?(not valid|invalid|incorrect|missing)", "api_key_invalid", r"invalid[ _](x-)?api[ _-]?key",
    "incorrect api key",
)  # fmt: skip
#: What the keys of some providers begin with, the provider, and the end of its host.
_FORMS: tuple[tuple[str, str, str], ...] = (
    ("sk-or-", "OpenRouter", "openrouter.ai"),
    ("sk-ant-", "Anthropic", "anthropic.com"),
    ("sk-proj-", "OpenAI", "openai.com"),
    ("AIza", "Google", "googleapis.com"),
)

_ADVICE: dict[ModelErrorReason, str] = {
    "auth": "Check the API key for this endpoint (`hermes setup`).",
    "auth_permanent": "This key no longer works (expired or revoked); make a new one and run `hermes setup`.",
    "billing": "The account behind this key has no money or reached its limit; add credit or use another key.",
    "rate_limit": "Wait, lower the number of parallel tasks, or use another key.",
    "overloaded": "The provider is overloaded; wait, or use another model.",
    "server_error": "The provider had an internal error; ask again later.",
    "timeout": "The connection broke or was too slow; ask again.",
    "unreachable": "Check the address (`--base_url`, `model.base_url`) and that the server runs.",
    "context_overflow": "The conversation is too long for this model; compact it or use one with a larger window.",
    "payload_too_large": "The request is too large; shorten the conversation or its attachments.",
    "model_not_found": "Use a name that the endpoint offers (`-m`).",
    "provider_policy_blocked": "The provider's data or privacy settings of this account exclude the model.",
    "content_policy_blocked": "The provider refuses this content; change the request.",
    "format_error": "The endpoint does not accept this request; check its address and wire format (`api_mode`).",
    "malformed_response": "Ask again; if it stays, check the address and its wire format (`api_mode`).",
    "suspended": "The connection was dropped; ask again.",
    "unknown": "Check the address: it usually ends in /v1.",
}
_PERMANENT: frozenset[ModelErrorReason] = frozenset(
    {"auth", "auth_permanent", "billing", "model_not_found", "provider_policy_blocked"}
)
_RETRYABLE: frozenset[ModelErrorReason] = frozenset(
    {"rate_limit", "overloaded", "server_error", "timeout", "unreachable", "malformed_response", "suspended", "unknown"}
)


def _short(text: str, secret: str) -> str:
    if len(secret) >= 4:
        text = text.replace(secret, "[key]")
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:299] + "…"


def error_of(
    origin: Origin,
    reason: ModelErrorReason,
    what: str,
    text: str = "",
    *,
    status: int | None = None,
    retry_after: float | None = None,
    permanent: bool | None = None,
    retryable: bool | None = None,
    advice: str | None = None,
) -> ModelError:
    """Build the error: `what` happened (begins with the host), the provider's `text`, what to do."""
    detail = _short(text, origin.secret)
    message = f"{what}: {detail}" if detail else what
    message = message if message.endswith((".", "…", "!", "?")) else f"{message}."
    return ModelError(
        f"{message} {_ADVICE[reason] if advice is None else advice}".rstrip(),
        reason=reason,
        status=status,
        retryable=reason in _RETRYABLE if retryable is None else retryable,
        retry_after=retry_after,
        permanent=reason in _PERMANENT if permanent is None else permanent,
    )


def error_text(body: bytes) -> str:
    """Return what an error body says to people: the message of its JSON, the title of its HTML, or its text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        if title:
            return title[1].strip()
        return re.sub(r"<[^>]+>", " ", text) if text.startswith("<") else text
    return _message_of(value)


def _message_of(value: Any) -> str:
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return str(value)
    inner = value.get("error", value)
    if not isinstance(inner, dict):
        return str(inner)
    parts = [inner.get("message") or inner.get("detail") or inner.get("msg") or ""]
    metadata = inner.get("metadata")
    parts += [metadata.get("raw") if isinstance(metadata, dict) else "", inner.get("code"), inner.get("type")]
    texts = [str(part) for part in parts if part not in (None, "", "error")]
    # A code or type that the message repeats is left out.
    return " · ".join(part for n, part in enumerate(texts) if not any(part in other for other in texts[:n]))


def _reason_of(status: int, text: str, retry_after: float | None) -> ModelErrorReason:
    if status == 401:
        return "auth_permanent" if _DEAD_KEY.search(text) or _EXPIRED.search(text) else "auth"
    if status == 402:
        transient = _USAGE.search(text) and (_TRANSIENT.search(text) or retry_after is not None)
        return "rate_limit" if transient else "billing"
    if status == 403:
        if _CONTENT.search(text):
            return "content_policy_blocked"
        return "billing" if _BILLING.search(text) else "auth"
    if status == 404:
        if _POLICY.search(text):
            return "provider_policy_blocked"
        if _MODEL.search(text):
            return "model_not_found"
        return "billing" if _BILLING.search(text) else "unknown"
    if status == 413:
        return "payload_too_large"
    if status == 429:
        if "insufficient_quota" in text.lower() and retry_after is None:
            return "billing"
        return "overloaded" if _OVERLOAD.search(text) else "rate_limit"
    if status in (408, 409, 425):
        return "timeout"
    if status >= 500:
        return _reason_of_5xx(status, text)
    for pattern, reason in _REFUSALS:
        if pattern.search(text):
            return reason
    return "format_error"


_REFUSALS: tuple[tuple[re.Pattern[str], ModelErrorReason], ...] = (
    (_EXPIRED, "auth_permanent"),
    (_WRONG_KEY, "auth"),
    (_CONTEXT, "context_overflow"),
    (_MODEL, "model_not_found"),
    (_CONTENT, "content_policy_blocked"),
    (_NO_CREDIT, "billing"),
)


def _reason_of_5xx(status: int, text: str) -> ModelErrorReason:
    if status in (500, 502) and _CONTEXT.search(text):
        return "context_overflow"
    return "overloaded" if status in (503, 529) or _OVERLOAD.search(text) else "server_error"


def status_error(origin: Origin, status: int, body: bytes, headers: Mapping[str, str], now: float) -> ModelError:
    """Return the error of an answer with `status` that is not 200. `now` is seconds since the epoch."""
    text = error_text(body)
    raw = body[:4_096].decode("utf-8", "replace")
    if 300 <= status < 400:
        target = headers.get("location", "?")
        return error_of(
            origin, "format_error", f"{origin.host} answered {status}", f"moved to {target}", status=status,
            permanent=True, advice="Redirects are not followed, so that no key leaves its host; use that address.",
        )  # fmt: skip
    wait = parse_retry_after(headers, raw, now)
    reason = _reason_of(status, f"{text}\n{raw}", wait)
    return error_of(
        origin,
        reason,
        f"{origin.host} answered {status} for model {origin.model}",
        text,
        status=status,
        retry_after=wait if reason in ("rate_limit", "overloaded", "server_error") else None,
        advice=_foreign(origin) if reason in ("auth", "auth_permanent") else None,
    )


def _foreign(origin: Origin) -> str | None:
    """What to do about a key that has the form of another provider's; None where it has none."""
    host = origin.host.rpartition(":")[0] or origin.host
    for form, name, end in _FORMS:
        if origin.secret.startswith(form) and not host.endswith(end):
            return f"The key has the form of one of {name}; {origin.host} is another server. Give it a key of its own."
    return None


_NAMED: tuple[tuple[re.Pattern[str], int], ...] = (
    (_words("rate[ _]limit", "too many requests", "insufficient_quota"), 429),
    (_words("invalid_request", "bad request"), 400),
    (_words("authentication", "invalid.{0,8}api.?key"), 401),
    (_words("permission"), 403),
)


def stream_error(origin: Origin, error: Any, now: float) -> ModelError:
    """Return the error that a provider reported inside a stream it had begun with status 200."""
    body = msgspec.json.encode({"error": error})
    text = _message_of({"error": error})
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    status = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdigit()) else 0
    if not 400 <= status < 600:
        status = next((number for pattern, number in _NAMED if pattern.search(text)), 500)
        if _CONTEXT.search(text) and status != 429:
            status = 400
    wait = parse_retry_after({}, body.decode("utf-8", "replace"), now)
    reason = _reason_of(status, text, wait)
    what = f"{origin.host} reported an error within the reply of {origin.model}"
    return error_of(origin, reason, what, text, status=status, retry_after=wait)


def _too_large(origin: Origin) -> bool:
    return origin.tokens > 0.6 * origin.window or (
        origin.window <= 256_000 and (origin.tokens > 120_000 or origin.messages > 200)
    )


def _said_by_system(error: OSError) -> str:
    """What the system said. The event loop puts words of its own, or several causes at once, in its place."""
    named = re.search(r"\[Errno (\d+)\]", str(error))
    number = error.errno or (int(named[1]) if named else 0)
    return os.strerror(number) if number else str(error)


def connection_error(origin: Origin, error: Exception, *, started: bool) -> ModelError:
    """Return the error of a connection that failed; `started` says that part of the reply had come."""
    host = origin.host
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        cause = error.os_error
        temporary = isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_AGAIN
        what = f"the name of {host} cannot be resolved right now" if temporary else f"no such host: {host}"
        return error_of(origin, "unreachable", what, retryable=temporary, permanent=not temporary)
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)):
        what = f"no secure connection to {host}"
        advice = "Check the address (http or https) and the certificates of this machine."
        return error_of(origin, "unreachable", what, str(error), retryable=False, permanent=True, advice=advice)
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)):
        what = f"{host or '(empty)'} is no usable address"
        return error_of(origin, "unreachable", what, retryable=False, permanent=True)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return error_of(origin, "unreachable", f"{host} did not accept a connection in time")
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        return error_of(origin, "unreachable", f"no connection to {host}", _said_by_system(cause))
    if isinstance(error, Dropped):
        return error_of(origin, "suspended", str(error), advice=f"The request to {host} was dropped.")
    if isinstance(error, StreamTimeout):
        what = f"{host} sent {error}"
        return error_of(origin, "timeout", what)
    where = "in the middle of the reply" if started else "before it answered"
    what = f"{host} closed the connection {where}"
    if _too_large(origin):
        # It may have been the network after all: asked again first, compacted if it stays.
        return error_of(origin, "context_overflow", what, f"about {origin.tokens} tokens were sent", retryable=True)
    return error_of(origin, "timeout", what, type(error).__name__ if str(error) == "" else str(error))
