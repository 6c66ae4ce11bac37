"""History entries → Chat Completions messages: a pure function, stable under appending.

Rendering a longer history repeats the messages of the shorter one; only the last message may grow at its end, by a
correction or notice that joins tool results or by another entry of the same user turn. Whatever a history holds, the
messages are valid: roles alternate, every call has exactly one result, nothing is empty. It sends nothing and edits no
entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hermes.core.codec import encode_json
from hermes.core.messages import (
    Assistant,
    Entry,
    Image,
    Interrupted,
    Notice,
    Part,
    Steer,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    User,
    plain_text,
)

__all__ = ["Message", "ReasoningEcho", "render", "steer_block"]

Message = dict[str, Any]

#: In which field earlier reasoning is sent back; few endpoints demand it, and most refuse or ignore it.
ReasoningEcho = Literal["", "reasoning", "reasoning_content", "reasoning_details"]

_MARKER = "OUT-OF-BAND USER MESSAGE"
_NOTICE = "[RUNTIME NOTICE]\n{}\n[/RUNTIME NOTICE]"
_NO_RESULT = "[no result: this call did not finish]"


def steer_block(text: str, nonce: str) -> str:
    """Return a correction between its marker lines; the nonce is what gives it authority."""
    marker = f"{_MARKER} {nonce}".rstrip()
    return f"[{marker}]\n{text}\n[/{marker}]"


def render(
    entries: Sequence[Entry],
    *,
    system: str = "",
    nonce: str = "",
    prefill: Sequence[Mapping[str, str]] = (),
    reasoning: ReasoningEcho = "",
) -> list[Message]:
    """Return the messages of a request: system, `prefill`, then the entries."""
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    messages += [{"role": shown["role"], "content": shown["content"]} for shown in prefill]
    rendering = _Rendering(messages, nonce, reasoning)
    for entry in entries:
        rendering.add(entry)
    rendering.answer_calls()
    return messages


class _Rendering:
    """The messages so far and the calls of the last assistant message that have no result yet."""

    def __init__(self, messages: list[Message], nonce: str, reasoning: ReasoningEcho) -> None:
        self._messages = messages
        self._nonce = nonce
        self._reasoning = reasoning
        self._open: dict[int, str] = {}
        self._results: dict[int, ToolResult] = {}
        self._ids: set[str] = set()

    def add(self, entry: Entry) -> None:
        if isinstance(entry, ToolResult):
            self._result(entry)
            return
        self.answer_calls()
        if isinstance(entry, Assistant):
            self._assistant(entry)
        elif isinstance(entry, User):
            self._user(entry.content)
        elif isinstance(entry, Steer):
            folded = self._fold(steer_block(entry.text, self._nonce))
            if not folded:
                self._user((Text(entry.text),))
        elif isinstance(entry, Notice):
            text = _NOTICE.format(_defused(entry.text))
            if not self._fold(text):
                self._user((Text(text),))
        elif isinstance(entry, Interrupted):
            partial = f"{entry.partial}\n" if entry.partial else ""
            self._append_assistant({"role": "assistant", "content": f"{partial}[{entry.reason}]"})
        elif isinstance(entry, Summary):
            self._user((Text(f"[Summary of the conversation so far]\n{entry.text}"),))

    @property
    def _role(self) -> str:
        return str(self._messages[-1]["role"]) if self._messages else ""

    def _fold(self, text: str) -> bool:
        """Append `text` to a tool message at the end: not every endpoint allows a user turn there."""
        if self._role != "tool":
            return False
        last = self._messages[-1]
        last["content"] = f"{last['content']}\n\n{text}"
        return True

    def _user(self, content: Sequence[Part]) -> None:
        if self._role != "user":
            self._messages.append({"role": "user", "content": _user_content(content)})
            return
        last = self._messages[-1]
        before, more = last["content"], _user_content(content)
        if isinstance(before, str) and isinstance(more, str):
            last["content"] = f"{before}\n\n{more}"
        else:
            last["content"] = [*_as_parts(before), *_as_parts(more)]

    def _append_assistant(self, message: Message) -> None:
        if self._role not in ("user", "tool"):
            self._messages.append({"role": "user", "content": _NOTICE.format("Go on.")})
        self._messages.append(message)

    def _assistant(self, entry: Assistant) -> None:
        message: Message = {"role": "assistant", "content": entry.text or None}
        if entry.calls:
            message["tool_calls"] = [self._call(index, call) for index, call in enumerate(entry.calls)]
        elif not entry.text:
            message["content"] = "[no answer]"
        self._echo(entry, message)
        self._append_assistant(message)

    def _echo(self, entry: Assistant, message: Message) -> None:
        if self._reasoning == "reasoning_details":
            details = entry.provider_data.get("reasoning_details") if isinstance(entry.provider_data, dict) else None
            if details:
                message["reasoning_details"] = details
        elif self._reasoning and entry.thinking:
            message[self._reasoning] = entry.thinking

    def _call(self, index: int, call: ToolCall) -> Message:
        call_id = call.id or f"call_{index}"
        # Some providers number their calls anew in each turn, others give none; endpoints refuse a repeated id.
        if call_id in self._ids:
            call_id = f"{call_id}_{len(self._ids)}"
        self._ids.add(call_id)
        self._open[index] = call_id
        return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}

    def _result(self, result: ToolResult) -> None:
        if result.index in self._open:
            # The first result of a call holds; they are written together, in the order of the calls.
            self._results.setdefault(result.index, result)
            if len(self._results) == len(self._open):
                self.answer_calls()
        else:
            text = f"Result of an earlier call of {result.name}:\n{_tool_text(result)}"
            self._user((Text(_NOTICE.format(text)),))

    def answer_calls(self) -> None:
        """Write one tool message for each call of the last assistant message."""
        if not self._open:
            return
        pictures: list[Part] = []
        for index, call_id in self._open.items():
            result = self._results.get(index)
            text = _NO_RESULT if result is None else _tool_text(result)
            self._messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
            if result is not None:
                pictures += [part for part in result.content if isinstance(part, Image)]
        self._open, self._results = {}, {}
        if pictures:  # a tool message holds text only
            self._user((Text(_NOTICE.format("Pictures from the tool results above:")), *pictures))


def _tool_text(result: ToolResult) -> str:
    text = plain_text(result.content)
    return _defused(text) if text else "[no output]"


def _defused(text: str) -> str:
    """Spoil the marker in text that a tool or a child brings: it carries the user's authority."""
    return text.replace(_MARKER, _MARKER.lower())


def _arguments(call: ToolCall) -> str:
    """The argument text to send back: as it was written where that is a JSON object, since servers parse it again."""
    if call.raw and not call.invalid and call.raw.lstrip().startswith("{"):
        return call.raw
    return encode_json(call.arguments).decode()


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
