"""Compaction: when a history outgrows the window, a new segment begins with a summary of what came before.

It happens only at a boundary without open calls. The summary is written by the model in a budgeted side call; open
handles are restated by code, never by the model. Nothing is deleted: the full history stays in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hermes.core.codec import encode_json
from hermes.core.messages import (
    Assistant,
    Content,
    Entry,
    Image,
    Interrupted,
    Notice,
    Steer,
    Summary,
    Text,
    ToolResult,
    User,
    plain_text,
)
from hermes.core.model import ToolSpec

__all__ = ["Compaction", "compaction_request", "estimate_entries", "estimate_tools", "protected_start"]

#: Bytes of UTF-8 for one token: between 3 (code, Cyrillic) and 4.5 (English prose); measured on mixed transcripts.
BYTES_PER_TOKEN = 3.8
#: Tokens of the envelope of a message, of a call, of a tool's description, and of a picture. A call: measured with the
#: tokenizer of the local model on the usual template (`<tool_call>{"name": …, "arguments": …}</tool_call>`).
MESSAGE_TOKENS, CALL_TOKENS, TOOL_TOKENS, IMAGE_TOKENS = 4, 24, 12, 1_000


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """Settings. `threshold` is the share of the window at which compaction starts, `protect_last` the number of newest
    entries that are kept as they are."""

    enabled: bool = True
    threshold: float = 0.5
    protect_last: int = 20


def _text_tokens(text: str) -> float:
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) / BYTES_PER_TOKEN


def _content_tokens(content: Content) -> float:
    return sum([IMAGE_TOKENS if isinstance(part, Image) else _text_tokens(part.text) for part in content])


def estimate_entries(entries: Sequence[Entry]) -> int:
    """Estimate the tokens of entries as a provider counts them, the envelopes of calls included."""
    total = 0.0
    for entry in entries:
        total += MESSAGE_TOKENS
        if isinstance(entry, Assistant):
            total += _text_tokens(entry.text)
            for call in entry.calls:
                total += CALL_TOKENS + _text_tokens(call.name) + _text_tokens(call.raw)
        elif isinstance(entry, (User, ToolResult)):
            total += _content_tokens(entry.content)
        elif isinstance(entry, Interrupted):
            total += _text_tokens(entry.partial)
        else:
            total += _text_tokens(entry.text)
            if isinstance(entry, Steer):
                total += IMAGE_TOKENS * len(entry.pictures)
    return int(total)


def estimate_tools(tools: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of a list of tools."""
    return int(
        sum(TOOL_TOKENS + _text_tokens(tool.description) + len(encode_json(tool.parameters)) / 4 for tool in tools)
    )


def protected_start(entries: Sequence[tuple[int, Entry]], protect_last: int) -> int | None:
    """Return the history position from which entries are kept, or None where nothing could be gained.

    A tail never begins with a tool result, whose call would be gone.
    """
    index = max(0, len(entries) - protect_last)
    while index < len(entries) and isinstance(entries[index][1], ToolResult):
        index += 1
    if index <= 1:
        return None
    return entries[index][0] if index < len(entries) else entries[-1][0] + 1


def _line(entry: Entry) -> str:
    if isinstance(entry, User):
        return f"USER: {plain_text(entry.content)}"
    if isinstance(entry, Assistant):
        calls = "".join(f"\n  CALL {call.name} {call.raw[:400]}" for call in entry.calls)
        return f"ASSISTANT: {entry.text}{calls}"
    if isinstance(entry, ToolResult):
        return f"RESULT of {entry.name}: {plain_text(entry.content)[:1500]}"
    if isinstance(entry, Steer):
        return f"USER CORRECTION: {plain_text(entry.content)}"
    if isinstance(entry, Notice):
        return f"NOTICE: {entry.text}"
    if isinstance(entry, Summary):
        return f"SUMMARY OF EARLIER WORK: {entry.text}"
    return f"INTERRUPTED: {entry.reason}"


def compaction_request(entries: Sequence[Entry], *, max_chars: int) -> User:
    """The side call's only message: the transcript to be summarised, its middle left out above `max_chars`."""
    transcript = "\n".join(_line(entry) for entry in entries)
    if len(transcript) > max_chars:
        half = max_chars // 2
        transcript = f"{transcript[:half]}\n[… left out …]\n{transcript[-half:]}"
    return User(
        content=(
            Text(
                "Summarise this transcript so that the work can go on without it. Keep: the goal, what the user asked "
                "and corrected, decisions with their reasons, facts found, files and commands with their outcome, what "
                "is still open. Leave out greetings and repetition. Write plain sentences, no preamble.\n\n"
                f"<transcript>\n{transcript}\n</transcript>"
            ),
        ),
        source="summary_request",
    )
