"""Chat Completions messages → history entries: the way back of `render`, for conversations that began elsewhere.

Sends nothing and repairs nothing: a message that is none is refused with its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hermes.core.errors import UsageError
from hermes.core.messages import Assistant, Content, Entry, Image, Text, ToolCall, ToolResult, User, plain_text

__all__ = ["read_messages"]


def read_messages(messages: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[Entry, ...]]:
    """Return the text of the system messages, and the entries of the others.

    Raises:
        UsageError: a message without a known role, with content that is none, or a result that answers no call.
    """
    system: list[str] = []
    entries: list[Entry] = []
    calls: dict[str, tuple[int, int, str]] = {}
    for number, message in enumerate(messages):
        where = f"conversation_history[{number}]"
        if not isinstance(message, Mapping):
            raise UsageError(f"{where} has to be an object with role and content, not {type(message).__name__}")
        role, content = message.get("role"), _content(message.get("content"), where)
        if role in ("system", "developer"):
            system.append(plain_text(content))
        elif role == "user":
            entries.append(User(content=content))
        elif role == "assistant":
            made = tuple(_call(call, where) for call in message.get("tool_calls") or ())
            calls |= {call.id: (len(entries), index, call.name) for index, call in enumerate(made)}
            thinking = message.get("reasoning") or message.get("reasoning_content") or ""
            entries.append(
                Assistant(
                    text=plain_text(content),
                    thinking=thinking if isinstance(thinking, str) else "",
                    calls=made,
                    stop="tool_calls" if made else "stop",
                )
            )
        elif role == "tool":
            entries.append(_result(message, content, calls, where))
        else:
            raise UsageError(f"{where} has the role {role!r}; known: system, user, assistant, tool")
    return "\n\n".join(part for part in system if part), tuple(entries)


def _content(value: Any, where: str) -> Content:
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(value),) if value else ()
    if not isinstance(value, list):
        raise UsageError(f"{where}: content has to be a text or a list of parts, not {type(value).__name__}")
    parts: list[Text | Image] = []
    for part in value:
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            parts.append(Text(part["text"]))
        elif isinstance(part, Mapping) and isinstance(part.get("image_url"), Mapping):
            parts.append(_image(str(part["image_url"].get("url", "")), where))
        else:
            raise UsageError(f"{where}: a part of the content is neither a text nor a picture")
    return tuple(parts)


def _image(url: str, where: str) -> Image:
    head, mark, data = url.partition(";base64,")
    if not mark or not head.startswith("data:"):
        raise UsageError(f"{where}: pictures have to be data URLs in base64, not {url[:40]!r}")
    return Image(media_type=head.removeprefix("data:"), data=data)


def _call(call: Any, where: str) -> ToolCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise UsageError(f"{where}: a tool call has no function with a name")
    written = function.get("arguments") or "{}"
    raw = written if isinstance(written, str) else msgspec.json.encode(written).decode()
    try:
        arguments, invalid = msgspec.json.decode(raw), ""
    except msgspec.DecodeError as error:
        arguments, invalid = {}, str(error)
    if not isinstance(arguments, dict):
        arguments, invalid = {}, "the arguments are no object"
    return ToolCall(id=str(call.get("id") or ""), name=function["name"], arguments=arguments, raw=raw, invalid=invalid)


def _result(
    message: Mapping[str, Any], content: Content, calls: dict[str, tuple[int, int, str]], where: str
) -> ToolResult:
    call_id = str(message.get("tool_call_id") or "")
    known = calls.pop(call_id, None)
    if known is None:
        raise UsageError(f"{where}: the result of {call_id!r} answers no call of a message before it")
    position, index, name = known
    return ToolResult(position=position, index=index, call_id=call_id, name=name, content=content)
