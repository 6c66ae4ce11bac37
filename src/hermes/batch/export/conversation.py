"""A rollout as chat messages: the one reading of a record that all message formats share.

Call ids are made unique within a rollout and results are paired with their calls by call key, never by order or by the
provider's id, which some repeat in each turn. What the runtime told the model (ends of children, limits) is no user's
text: it becomes a tool message. System text and prefill are no part of a record, so they never appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from hermes.batch.reasoning import split_reasoning
from hermes.core.messages import Assistant, Entry, Interrupted, Notice, Steer, ToolResult, User, plain_text
from hermes.core.model import ToolSpec

__all__ = ["Call", "Message", "messages", "openai_tools"]

Role = Literal["user", "assistant", "tool"]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an assistant message. `id` is unique within the rollout."""

    id: str
    name: str
    arguments: Mapping[str, Any]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `reasoning` and `calls` stand on assistant messages, `call_id` and `name` on tool messages; a tool
    message that answers no call (the runtime's own word) has the name `runtime`."""

    role: Role
    text: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    name: str = ""


def messages(entries: Iterable[Entry]) -> list[Message]:
    """Return the messages of a history, results after their calls in the order they came."""
    return list(_Reader().read(entries))


class _Reader:
    def __init__(self) -> None:
        self._used: set[str] = set()
        self._ids: tuple[str, ...] = ()
        self._notices = 0

    def read(self, entries: Iterable[Entry]) -> Iterator[Message]:
        for entry in entries:
            if isinstance(entry, Assistant):
                yield self._reply(entry)
            elif isinstance(entry, ToolResult):
                call_id = self._ids[entry.index] if entry.index < len(self._ids) else self._fresh(entry.call_id)
                yield Message(role="tool", text=plain_text(entry.content), call_id=call_id, name=entry.name)
            elif isinstance(entry, Notice):
                self._notices += 1
                yield Message(
                    role="tool", text=entry.text, call_id=self._fresh(f"notice_{self._notices}"), name="runtime"
                )
            elif isinstance(entry, User | Steer):
                yield Message(role="user", text=plain_text(entry.content))
            elif isinstance(entry, Interrupted) and entry.partial:
                yield Message(role="assistant", text=entry.partial)

    def _reply(self, entry: Assistant) -> Message:
        reasoning, answer = split_reasoning(entry)
        calls = tuple(Call(id=self._fresh(call.id), name=call.name, arguments=call.arguments) for call in entry.calls)
        self._ids = tuple(call.id for call in calls)
        return Message(role="assistant", text=answer, reasoning=reasoning, calls=calls)

    def _fresh(self, wanted: str) -> str:
        if wanted and wanted not in self._used:
            self._used.add(wanted)
            return wanted
        number = len(self._used) + 1
        while f"call_{number}" in self._used:
            number += 1
        self._used.add(f"call_{number}")
        return f"call_{number}"


def openai_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Return tools in the shape that chat templates take."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]
