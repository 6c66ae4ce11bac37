"""History entries → Chat Completions messages: a pure function, stable under appending.

Rendering a longer history repeats the messages of the shorter one; only the last message may grow at its end, by a
correction or notice that joins tool results or by another entry of the same user turn. Whatever a history holds, the
messages are valid: roles alternate, every call has exactly one result, nothing is empty. It sends nothing and edits no
entry. `Conversations` gives the same messages as bytes and keeps what it encoded, so that a request of a long
conversation costs what was added to it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hermes.core.codec import encode_json
from hermes.core.messages import Assistant, Entry, Image, Part, Text, ToolCall, ToolResult, plain_text
from hermes.providers.rendering import (
    NO_ANSWER,
    NO_RESULT,
    Rendering,
    arguments_text,
    notice_block,
    result_text,
    steer_block,
)

__all__ = ["Conversations", "Message", "ReasoningEcho", "render", "steer_block"]

Message = dict[str, Any]

#: In which field earlier reasoning is sent back; few endpoints demand it, and most refuse or ignore it.
ReasoningEcho = Literal["", "reasoning", "reasoning_content", "reasoning_details"]


def render(
    entries: Sequence[Entry],
    *,
    system: str = "",
    nonce: str = "",
    prefill: Sequence[Mapping[str, str]] = (),
    reasoning: ReasoningEcho = "",
) -> list[Message]:
    """Return the messages of a request: system, `prefill`, then the entries."""
    messages = _beginning(system, prefill)
    rendering = _ChatRendering(messages, nonce, reasoning)
    for entry in entries:
        rendering.add(entry)
    rendering.answer_calls()
    return messages


def _beginning(system: str, prefill: Sequence[Mapping[str, str]]) -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    return messages + [{"role": shown["role"], "content": shown["content"]} for shown in prefill]


#: Bytes of encoded messages that are kept, over all conversations of a model; the longest unused go first.
KEPT_BYTES = 32 * 1024 * 1024


class Conversations:
    """Messages of growing conversations as bytes: those that can change no more are encoded once.

    It gives what `render` gives, whatever was asked before. `kept` bounds what is remembered, in bytes.
    """

    def __init__(self, kept: int = KEPT_BYTES) -> None:
        self._kept = kept
        self._size = 0
        self._known: OrderedDict[str, _Encoded] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def encode(
        self,
        conversation: str,
        entries: tuple[Entry, ...],
        *,
        system: str = "",
        nonce: str = "",
        prefill: Sequence[Mapping[str, str]] = (),
        reasoning: ReasoningEcho = "",
    ) -> tuple[bytes, ...]:
        """Return the messages of a request, which stand in a JSON array, in pieces that follow each other; an empty
        `conversation` is not remembered."""
        known = self._known.pop(conversation, None)
        if known is not None:
            self._size -= len(known.settled)
        if known is None or not known.goes_on(entries, system, nonce, prefill, reasoning):
            known = _Encoded(system, nonce, prefill, reasoning)
        encoded, whole = known.extended(entries)
        if whole and conversation:
            self._known[conversation] = known
            self._size += len(known.settled)
            while self._size > self._kept:
                _, oldest = self._known.popitem(last=False)
                self._size -= len(oldest.settled)
        return encoded


class _Encoded:
    """One conversation as far as it was rendered. `settled` are its messages but the system prompt, which is encoded
    each time (a thousand children would hold it twice), and the last one, which may still grow."""

    __slots__ = ("_entries", "_head", "_messages", "_rendering", "settled")

    def __init__(self, system: str, nonce: str, prefill: Sequence[Mapping[str, str]], reasoning: ReasoningEcho) -> None:
        self._head = (system, nonce, prefill, reasoning)
        self._entries: tuple[Entry, ...] = ()
        self._messages = _beginning("", prefill)
        self._rendering = _ChatRendering(self._messages, nonce, reasoning)
        self.settled = b""

    def goes_on(
        self,
        entries: tuple[Entry, ...],
        system: str,
        nonce: str,
        prefill: Sequence[Mapping[str, str]],
        reasoning: ReasoningEcho,
    ) -> bool:
        """Whether a request begins with what was rendered."""
        known = self._entries  # entries are the same objects from request to request, which is seen at once
        return entries[: len(known)] == known and self._head == (system, nonce, prefill, reasoning)

    def extended(self, entries: tuple[Entry, ...]) -> tuple[tuple[bytes, ...], bool]:
        """Render what was added and return all messages; False: calls had no result yet, so this cannot go on."""
        rendering, messages = self._rendering, self._messages
        for entry in entries[len(self._entries) :]:
            rendering.add(entry)
        whole = not rendering.waits
        rendering.answer_calls()
        self._entries = entries
        system = [encode_json(message) for message in _beginning(self._head[0], ())]
        if not messages:
            return tuple(system), whole
        if len(messages) > 1:
            self.settled = b"".join([self.settled, *[encode_json(message) + b"," for message in messages[:-1]]])
            del messages[:-1]
        first = (system[0] + b",",) if system else ()
        return (*first, self.settled, encode_json(messages[0])), whole


class _ChatRendering(Rendering):
    def __init__(self, messages: list[Message], nonce: str, reasoning: ReasoningEcho) -> None:
        super().__init__(nonce)
        self._messages = messages
        self._reasoning = reasoning

    @property
    def _role(self) -> str:
        return str(self._messages[-1]["role"]) if self._messages else ""

    def begun(self) -> bool:
        return self._role in ("user", "tool")

    def fold(self, text: str) -> bool:
        """Not every endpoint allows a user turn behind a tool message."""
        if self._role != "tool":
            return False
        last = self._messages[-1]
        last["content"] = f"{last['content']}\n\n{text}"
        return True

    def user(self, content: Sequence[Part]) -> None:
        if self._role != "user":
            self._messages.append({"role": "user", "content": _user_content(content)})
            return
        last = self._messages[-1]
        before, more = last["content"], _user_content(content)
        if isinstance(before, str) and isinstance(more, str):
            last["content"] = f"{before}\n\n{more}"
        else:
            last["content"] = [*_as_parts(before), *_as_parts(more)]

    def said(self, text: str) -> None:
        self._messages.append({"role": "assistant", "content": text})

    def assistant(self, entry: Assistant, ids: Sequence[str]) -> None:
        message: Message = {"role": "assistant", "content": entry.text or None}
        if entry.calls:
            message["tool_calls"] = [_call(call_id, call) for call_id, call in zip(ids, entry.calls, strict=True)]
        elif not entry.text:
            message["content"] = NO_ANSWER
        self._echo(entry, message)
        self._messages.append(message)

    def _echo(self, entry: Assistant, message: Message) -> None:
        if self._reasoning == "reasoning_details":
            details = entry.provider_data.get("reasoning_details") if isinstance(entry.provider_data, dict) else None
            if details:
                message["reasoning_details"] = details
        elif self._reasoning and entry.thinking:
            message[self._reasoning] = entry.thinking

    def results(self, answered: Sequence[tuple[str, ToolResult | None]]) -> None:
        pictures: list[Part] = []
        for call_id, result in answered:
            text = NO_RESULT if result is None else result_text(result)
            self._messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
            if result is not None:
                pictures += [part for part in result.content if isinstance(part, Image)]
        if pictures:  # a tool message holds text only
            self.user((Text(notice_block("Pictures from the tool results above:")), *pictures))


def _call(call_id: str, call: ToolCall) -> Message:
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}


def _user_content(content: Sequence[Part]) -> str | list[Message]:
    if any(isinstance(part, Image) for part in content):
        return [_part(part) for part in content if isinstance(part, Image) or part.text]
    return plain_text(content) or "[empty message]"


def _part(part: Part) -> Message:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}
    return {"type": "text", "text": part.text}


def _as_parts(content: str | list[Message]) -> list[Message]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
