"""History entries → input items of the OpenAI Responses format: a pure function, stable under appending.

Rendering a longer history repeats the items of the shorter one; only the last user message may grow at its end.
Encrypted reasoning goes back in its place, before what it led to. Nothing is stored at the provider, so nothing is
referred to by its number there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes.core.messages import Assistant, Entry, Image, Part, Text, ToolResult
from hermes.providers.kept import pieces
from hermes.providers.rendering import NO_ANSWER, NO_RESULT, Rendering, arguments_text, defused, result_text

__all__ = ["WIRE", "Item", "render"]

Item = dict[str, Any]

#: Under which name replies keep what goes back.
WIRE = "responses"


def render(
    entries: Sequence[Entry], *, nonce: str = "", prefill: Sequence[Mapping[str, str]] = (), host: str = ""
) -> list[Item]:
    """Return the input of a request: `prefill`, then the entries; the system text stands beside it."""
    rendering = _ResponsesRendering(nonce, host)
    for shown in prefill:
        if shown["role"] == "assistant":
            rendering.said(shown["content"])
        else:
            rendering.user((Text(shown["content"]),))
    for entry in entries:
        rendering.add(entry)
    rendering.answer_calls()
    return rendering.items


class _ResponsesRendering(Rendering):
    def __init__(self, nonce: str, host: str) -> None:
        super().__init__(nonce)
        self._host = host
        self.items: list[Item] = []

    @property
    def _last(self) -> Item:
        return self.items[-1] if self.items else {}

    def begun(self) -> bool:
        return self._last.get("role") == "user" or self._last.get("type") == "function_call_output"

    def fold(self, text: str) -> bool:
        if self._last.get("type") != "function_call_output":
            return False
        self.user((Text(text),))
        return True

    def user(self, content: Sequence[Part]) -> None:
        parts = _parts(content) or [{"type": "input_text", "text": "[empty message]"}]
        if self._last.get("role") == "user":
            self._last["content"] += parts
        else:
            self.items.append({"type": "message", "role": "user", "content": parts})

    def said(self, text: str) -> None:
        content = [{"type": "output_text", "text": text}]
        self.items.append({"type": "message", "role": "assistant", "content": content})

    def assistant(self, entry: Assistant, ids: Sequence[str]) -> None:
        answered = False
        for piece in pieces(entry, WIRE, self._host):
            answered = not isinstance(piece, dict)
            if isinstance(piece, dict):
                self.items.append(piece)
            elif isinstance(piece, str):
                self.said(piece)
            else:
                call = entry.calls[piece]
                self.items.append(
                    {
                        "type": "function_call",
                        "call_id": ids[piece],
                        "name": call.name or "unknown",
                        "arguments": arguments_text(call),
                    }
                )
        if not answered:  # reasoning is refused without something behind it
            self.said(NO_ANSWER)

    def results(self, answered: Sequence[tuple[str, ToolResult | None]]) -> None:
        for call_id, result in answered:
            self.items.append({"type": "function_call_output", "call_id": call_id, "output": _output(result)})


def _parts(content: Sequence[Part]) -> list[Item]:
    return [_part(part) for part in content if isinstance(part, Image) or part.text]


def _part(part: Part) -> Item:
    if isinstance(part, Image):
        return {"type": "input_image", "image_url": f"data:{part.media_type};base64,{part.data}"}
    return {"type": "input_text", "text": part.text}


def _output(result: ToolResult | None) -> str | list[Item]:
    if result is None:
        return NO_RESULT
    if not any(isinstance(part, Image) for part in result.content):
        return result_text(result)
    parts = _parts(result.content)
    return [{**part, "text": defused(part["text"])} if "text" in part else part for part in parts]
