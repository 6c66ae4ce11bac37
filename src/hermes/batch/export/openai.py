"""Chat messages and tools for trainers that apply a chat template: arguments are objects, as the templates want them,
reasoning stands apart, tools are one JSON string."""

from __future__ import annotations

from typing import Any

from hermes.batch.export.conversation import Message, messages, openai_tools
from hermes.batch.record import Record
from hermes.batch.trajectory import loadable
from hermes.core.codec import encode_json

__all__ = ["chat_message", "openai_row", "origin"]


def chat_message(message: Message) -> dict[str, Any]:
    """Return one message; `tool_calls` and `reasoning_content` stand only where there are any."""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "name": message.name, "content": message.text}
    found: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": loadable(call.arguments)}}
            for call in message.calls
        ]
    return found


def origin(record: Record) -> dict[str, Any]:
    """Return the columns that say where a row comes from, the same in every format that has them."""
    head = record.head
    return {
        "prompt_index": head.index,
        "rollout_index": head.rollout,
        "group_id": head.key.rpartition(":")[0],
        "score": head.score,
        "model": record.result.model,
    }


def openai_row(record: Record) -> dict[str, Any]:
    """Return the row of a record."""
    return {
        "messages": [chat_message(message) for message in messages(record.result.entries)],
        "tools": encode_json(openai_tools(record.result.tools)).decode(),
        **origin(record),
    }
