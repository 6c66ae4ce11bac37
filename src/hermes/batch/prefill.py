"""Few-shot messages that stand before every row's prompt: sent with each request, never part of a row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hermes.core.errors import UsageError

__all__ = ["read_prefill"]


def read_prefill(path: str | None) -> tuple[Mapping[str, str], ...]:
    """Read few-shot messages from a JSON array of {"role", "content"}.

    Raises:
        UsageError: the file cannot be read or is something else.
    """
    if path is None:
        return ()
    try:
        messages = msgspec.json.decode(Path(path).read_bytes(), type=list[dict[str, str]])
    except OSError as error:
        raise UsageError(f"cannot read --prefill_messages_file={path}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise UsageError(f'{path} is not a JSON array of {{"role", "content"}} messages: {error}.') from error
    for number, message in enumerate(messages):
        if set(message) != {"role", "content"} or message["role"] not in ("user", "assistant", "system"):
            raise UsageError(f'{path}: message {number} needs "role" (user, assistant, system) and "content".')
    return tuple(messages)
