"""The Hermes format: tools, calls and results as tagged JSON inside the text of the turns.

The system turn names the tools and how to call them; it is made here and is not the prompt that ran. Inside the JSON
the first character of the format's own tags is escaped, so that a reader that cuts at the tags finds whole blocks. A
row whose prose holds such a tag cannot be read back: it is refused, and the caller counts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hermes.batch.export.conversation import Call, Message, messages
from hermes.batch.reasoning import gpt_value
from hermes.batch.record import Record
from hermes.batch.trajectory import build_row
from hermes.core.codec import encode_json
from hermes.core.model import ToolSpec

__all__ = ["AmbiguousTags", "call_block", "response_block", "system_turn", "tagged_messages", "tagged_row"]

_OWN = re.compile(r"</?(?:tool_call|tool_response|tools)>")


class AmbiguousTags(Exception):
    """The prose of a rollout holds a tag of the format."""


def _escaped(value: Any) -> str:
    text = encode_json(value).decode()
    return _OWN.sub(lambda match: "\\u003c" + match.group()[1:], text)


def call_block(call: Call) -> str:
    """Return one call as a block."""
    return f"<tool_call>\n{_escaped({'name': call.name, 'arguments': call.arguments})}\n</tool_call>"


def response_block(message: Message) -> str:
    """Return one result as a block; content that is JSON is embedded as JSON."""
    content: Any = message.text
    if message.text.lstrip()[:1] in ("{", "["):
        try:
            content = msgspec.json.decode(message.text)
        except msgspec.DecodeError:
            content = message.text
    body = {"tool_call_id": message.call_id, "name": message.name, "content": content}
    return f"<tool_response>\n{_escaped(body)}\n</tool_response>"


def system_turn(tools: Iterable[ToolSpec]) -> str:
    """Return the text that names the tools and says how they are called."""
    listed = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters, "required": None}
        for tool in tools
    ]
    schema = {
        "title": "FunctionCall",
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"],
    }
    return (
        "You can call functions. Their signatures stand between <tools> and </tools> as a JSON array:\n"
        f"<tools>\n{_escaped(listed)}\n</tools>\n"
        "Call one when it helps with the request, and do not guess at values for its arguments. A call is a JSON "
        f"object of this schema:\n{encode_json(schema).decode()}\n"
        "Write each call between its own tags, like this:\n"
        '<tool_call>\n{"name": "function-name", "arguments": {"argument": "value"}}\n</tool_call>\n'
        "Results come back between <tool_response> and </tool_response>."
    )


def _assistant(message: Message) -> str:
    if _OWN.search(message.text) or _OWN.search(message.reasoning):
        raise AmbiguousTags
    return "\n".join([gpt_value(message.reasoning, message.text), *(call_block(call) for call in message.calls)])


def tagged_messages(read: Sequence[Message]) -> list[dict[str, str]]:
    """Return `{role, content}` messages with calls and results as blocks; results of one reply stand in one message.

    Raises:
        AmbiguousTags: prose holds a tag of the format.
    """
    found: list[dict[str, str]] = []
    for message in read:
        if message.role == "assistant":
            found.append({"role": "assistant", "content": _assistant(message)})
        elif message.role == "tool":
            block = response_block(message)
            if found and found[-1]["role"] == "tool":
                found[-1]["content"] += f"\n{block}"
            else:
                found.append({"role": "tool", "content": block})
        else:
            found.append({"role": "user", "content": message.text})
    return found


_FROM = {"user": "human", "assistant": "gpt", "tool": "tool"}


def tagged_row(record: Record, tools: Sequence[str], batch_size: int) -> dict[str, Any]:
    """Return the row of a record in this format: the columns of `trajectories.jsonl`, other conversations.

    Raises:
        AmbiguousTags: prose holds a tag of the format.
    """
    row = build_row(record, tools, batch_size)
    row["conversations"] = [
        {"from": "system", "value": system_turn(record.result.tools)},
        *(
            {"from": _FROM[item["role"]], "value": item["content"]}
            for item in tagged_messages(messages(record.result.entries))
        ),
    ]
    return row
