"""What a stored message carries: its text, or with pictures the parts of it, as one text for the journal.

A row of the journal has room for text. A message of text alone stands there as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hermes.core.codec import encode_json
from hermes.core.messages import Content, Image, Text

__all__ = ["carried", "packed", "pictures", "spoken"]

#: Stands before the parts of a message with pictures; nobody can type it.
_PARTS = "\x1eparts:"


def packed(content: Content, redact: Callable[[bytes], bytes]) -> str:
    """A message as it is stored, without secrets."""
    if not any(isinstance(part, Image) for part in content):
        return redact(spoken(content).encode("utf-8", "replace")).decode()
    return _PARTS + redact(encode_json(content)).decode()


def carried(text: str) -> Content:
    """The message that was stored as `text`."""
    if text.startswith(_PARTS):
        try:
            return msgspec.json.decode(text.removeprefix(_PARTS), type=Content)
        except msgspec.MsgspecError:
            pass  # it only looked like one
    return (Text(text),)


def pictures(content: Content) -> tuple[Image, ...]:
    """The pictures of a message."""
    return tuple(part for part in content if isinstance(part, Image))


def spoken(content: Content) -> str:
    """The words of a message."""
    return "".join(part.text for part in content if isinstance(part, Text))
