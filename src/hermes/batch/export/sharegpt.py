"""The row of `trajectories.jsonl` again, with call arguments as objects or as JSON strings.

With strings every turn has the same keys and every value one type, so that loaders without an untyped JSON column read
the file without being told its schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes.batch.export.conversation import Message, messages
from hermes.batch.reasoning import gpt_value
from hermes.batch.record import Record
from hermes.batch.trajectory import build_row
from hermes.core.codec import encode_json

__all__ = ["typed_row"]

_FROM = {"user": "human", "assistant": "gpt", "tool": "tool"}


def typed_row(record: Record, tools: Sequence[str], batch_size: int) -> dict[str, Any]:
    """Return the row of a record with calls as `{id, name, arguments: JSON string}` on every turn, `[]` where none."""
    row = build_row(record, tools, batch_size)
    row["conversations"] = [_turn(message) for message in messages(record.result.entries)]
    return row


def _turn(message: Message) -> dict[str, Any]:
    value = gpt_value(message.reasoning, message.text) if message.role == "assistant" else message.text
    calls = [
        {"id": call.id, "name": call.name, "arguments": encode_json(call.arguments).decode()} for call in message.calls
    ]
    return {"from": _FROM[message.role], "value": value, "tool_calls": calls}
