"""History entries → messages of the Anthropic Messages format: a pure function, stable under appending.

Roles alternate and the first is the user's; results stand first in the user turn behind their calls, with pictures and
errors as such; nothing is empty. Signed thinking goes back in its place, always: the provider itself leaves out what it
does not need, and a request that repeats the one before costs a tenth. Caching marks are not set here, since they move.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.core.messages import Assistant, Entry, Image, Part, ToolCall, ToolResult
from hermes.providers.kept import pieces
from hermes.providers.rendering import NO_ANSWER, NO_RESULT, Rendering, defused

__all__ = ["WIRE", "Message", "render"]

Message = dict[str, Any]

#: Under which name replies keep what goes back.
WIRE = "anthropic"

_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")


def render(
    entries: Sequence[Entry], *, nonce: str = "", prefill: Sequence[Mapping[str, str]] = (), host: str = ""
) -> list[Message]:
    """Return the messages of a request: `prefill`, then the entries; the system text stands beside them."""
    rendering = _AnthropicRendering(nonce, host)
    for shown in prefill:
        rendering.append(shown["role"] if shown["role"] == "assistant" else "user", [_text(shown["content"])])
    for entry in entries:
        rendering.add(entry)
    rendering.answer_calls()
    return rendering.messages


class _AnthropicRendering(Rendering):
    def __init__(self, nonce: str, host: str) -> None:
        super().__init__(nonce)
        self._host = host
        self.messages: list[Message] = []

    def append(self, role: str, blocks: list[Message]) -> None:
        """Add blocks to the last message of their role, or begin one."""
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": blocks})

    def begun(self) -> bool:
        return bool(self.messages) and self.messages[-1]["role"] == "user"

    def fold(self, text: str) -> bool:
        if not self.begun() or self.messages[-1]["content"][0]["type"] != "tool_result":
            return False
        self.append("user", [_text(text)])
        return True

    def user(self, content: Sequence[Part]) -> None:
        self.append("user", _blocks(content) or [_text("[empty message]")])

    def said(self, text: str) -> None:
        self.append("assistant", [_text(text)])

    def call_id(self, given: str) -> str:
        return _NOT_IN_IDS.sub("_", given)

    def assistant(self, entry: Assistant, ids: Sequence[str]) -> None:
        blocks: list[Message] = []
        answered = False
        for piece in pieces(entry, WIRE, self._host):
            if isinstance(piece, dict):
                blocks.append(piece)
            elif isinstance(piece, str):
                if piece.strip():
                    blocks.append(_text(piece))
                    answered = True
            else:
                blocks.append(_tool_use(ids[piece], entry.calls[piece]))
                answered = True
        self.append("assistant", blocks if answered else [*blocks, _text(NO_ANSWER)])

    def results(self, answered: Sequence[tuple[str, ToolResult | None]]) -> None:
        self.append("user", [_tool_result(call_id, result) for call_id, result in answered])


def _text(text: str) -> Message:
    # A text without any word is refused.
    return {"type": "text", "text": text if text.strip() else "[empty message]"}


def _blocks(content: Sequence[Part]) -> list[Message]:
    return [_block(part) for part in content if isinstance(part, Image) or part.text.strip()]


def _block(part: Part) -> Message:
    if isinstance(part, Image):
        return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}
    return {"type": "text", "text": part.text}


def _tool_use(call_id: str, call: ToolCall) -> Message:
    name = _NOT_IN_IDS.sub("_", call.name)[:128] or "unknown"
    return {"type": "tool_use", "id": call_id, "name": name, "input": call.arguments}


def _tool_result(call_id: str, result: ToolResult | None) -> Message:
    if result is None:
        return {"type": "tool_result", "tool_use_id": call_id, "content": NO_RESULT, "is_error": True}
    blocks = _blocks(result.content)
    for block in blocks:
        if block["type"] == "text":
            block["text"] = defused(block["text"])
    made: Message = {"type": "tool_result", "tool_use_id": call_id, "content": blocks or "[no output]"}
    return {**made, "is_error": True} if result.is_error else made
