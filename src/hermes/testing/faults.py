"""Everything that goes wrong at a provider, as values that a script of `ProviderServer` returns.

`Status` is an answer other than 200, `Raw` any bytes in any pieces, `Disconnect` and `Stall` are connections that end
or freeze. The functions give the usual cases their usual words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hermes.testing.scripted import Reply

__all__ = [
    "Disconnect",
    "Fault",
    "Raw",
    "Stall",
    "Status",
    "bad_key",
    "empty_choices",
    "error_in_stream",
    "forbidden",
    "html",
    "malformed_finish",
    "no_credit",
    "overloaded",
    "rate_limited",
    "server_error",
    "sse",
    "too_long",
    "unknown_model",
]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with `status`: `body` as it is, else an error object with `message` and `code`."""

    status: int
    message: str = ""
    code: str | int | None = None
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes as they are, each part written by itself; a number is a pause in seconds."""

    parts: tuple[bytes | float, ...]
    content_type: str = "text/event-stream"
    status: int = 200


class Disconnect(msgspec.Struct, frozen=True, kw_only=True):
    """Closes the connection: at once, or after the first `events` events of `reply`. `reset` does it rudely."""

    reply: Reply | None = None
    events: int = 1
    reset: bool = False


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """Goes silent for ever: before the headers, or after the first `events` events of `reply`."""

    reply: Reply | None = None
    events: int = 1


Fault = Status | Raw | Disconnect | Stall


def sse(*values: Any, done: bool = True) -> bytes:
    """Encode values as events; bytes are taken as they are."""
    parts = [value if isinstance(value, bytes) else msgspec.json.encode(value) for value in values]
    return b"".join(b"data: " + part + b"\n\n" for part in (*parts, *([b"[DONE]"] if done else [])))


def rate_limited(retry_after: str | None = None, message: str = "Rate limit reached, slow down") -> Status:
    """429, with or without a Retry-After header."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Status(status=429, message=message, code="rate_limit_exceeded", headers=headers)


def overloaded(status: int = 529) -> Status:
    """The provider is overloaded: 503, 529, or 429 with its words."""
    return Status(status=status, message="Overloaded: the engine is currently overloaded")


def server_error(status: int = 500) -> Status:
    """An internal error."""
    return Status(status=status, message="The server had an error while processing your request")


def bad_key(message: str = "Incorrect API key provided") -> Status:
    """401."""
    return Status(status=401, message=message, code="invalid_api_key")


def no_credit() -> Status:
    """402."""
    return Status(status=402, message="Insufficient credits. Add more to continue.")


def forbidden(message: str = "You do not have access to this resource") -> Status:
    """403."""
    return Status(status=403, message=message)


def too_long() -> Status:
    """400: the request exceeds the context window."""
    message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
    return Status(status=400, message=message, code="context_length_exceeded")


def unknown_model(name: str, status: int = 404) -> Status:
    """404 (or 400): no such model."""
    return Status(status=status, message=f"The model `{name}` does not exist", code="model_not_found")


def html(status: int = 200) -> Status:
    """A web page, as gateways and wrong addresses send it."""
    page = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    return Status(status=status, body=page, content_type="text/html")


def empty_choices() -> Raw:
    """A stream without any choice."""
    return Raw(parts=(sse({"choices": [], "model": "m"}),))


def error_in_stream(message: str = "Provider returned error", code: int | str = 502, *, text: str = "half") -> Raw:
    """Status 200, a piece of text, then an error."""
    begun = {"choices": [{"delta": {"content": text}}]}
    return Raw(parts=(sse(begun, {"error": {"message": message, "code": code}}, done=False),))


def malformed_finish(word: str = "malformed_function_call") -> Raw:
    """A reply that the provider itself calls broken."""
    return Raw(parts=(sse({"choices": [{"delta": {"content": ""}, "finish_reason": word}]}),))


def pieces_of(data: bytes, sizes: Sequence[int]) -> tuple[bytes, ...]:
    """Cut `data` into parts of the given sizes, the last part being the rest."""
    parts, at = [], 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return (*parts, data[at:])
