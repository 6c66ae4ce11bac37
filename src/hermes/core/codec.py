"""The border between values and bytes: the only place that encodes or decodes them.

UTF-8, one line for each value, non-ASCII readable. Lone surrogates (a cut emoji) are replaced by U+FFFD, since no
loader accepts them. `encode_envelope` writes the flat wire form of an event.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hermes.core.events import SCHEMA, Envelope, Event
from hermes.core.messages import Entry

__all__ = [
    "decode_entry",
    "decode_event",
    "decode_json",
    "encode_entry",
    "encode_envelope",
    "encode_event",
    "encode_json",
    "scrub_surrogates",
]

_encoder = msgspec.json.Encoder()
_entry = msgspec.json.Decoder(Entry)
_event = msgspec.json.Decoder(Event)
_any = msgspec.json.Decoder()


class _Head(msgspec.Struct, frozen=True, gc=False):
    """What every event on the wire begins with."""

    schema: int
    seq: int
    at: float
    session_id: str
    task_id: str
    parent_id: str | None


def scrub_surrogates(text: str) -> str:
    """Return `text` with every lone surrogate replaced by U+FFFD; pairs are joined."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return scrub_surrogates(value)
    if isinstance(value, dict):
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scrub(item) for item in value]
    return value


def encode_json(value: Any) -> bytes:
    """Encode any JSON-able value (structs included) as one line of UTF-8."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_scrub(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,))))


def decode_json(data: bytes | str) -> Any:
    """Decode JSON into plain values. Raises `msgspec.DecodeError`."""
    return _any.decode(data)


def encode_entry(entry: Entry) -> bytes:
    """Encode a history entry."""
    return encode_json(entry)


def decode_entry(data: bytes) -> Entry:
    """Decode a history entry. Raises `msgspec.ValidationError` for what is none."""
    return _entry.decode(data)


def encode_event(event: Event) -> bytes:
    """Encode an event with its `type`."""
    return encode_json(event)


def decode_event(data: bytes) -> Event:
    """Decode an event."""
    return _event.decode(data)


def encode_envelope(envelope: Envelope, event: bytes | None = None) -> bytes:
    """Encode an envelope as one flat object; `event` may bring its encoded event, so that it is encoded once."""
    head = _encoder.encode(
        _Head(SCHEMA, envelope.seq, envelope.at, envelope.session_id, envelope.task_id, envelope.parent_id)
    )
    body = encode_event(envelope.event) if event is None else event
    return head[:-1] + b"," + body[1:]
