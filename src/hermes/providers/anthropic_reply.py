"""One reply of the Anthropic Messages format: events to deltas. It does no I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hermes.core.codec import encode_json
from hermes.core.messages import StopReason, Usage
from hermes.core.model import (
    CallArguments,
    CallStarted,
    Delta,
    ModelProfile,
    ProviderData,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from hermes.providers.classify import Origin
from hermes.providers.event_reply import EventReply
from hermes.providers.kept import Kept
from hermes.providers.render_anthropic import WIRE

__all__ = ["AnthropicReply"]

_STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class _Block(msgspec.Struct):
    """A content block: as it begins in a stream, or whole."""

    type: str = ""
    id: str = ""
    name: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    input: Any = None


class _Delta(msgspec.Struct):
    """More of a block, or (without a type) how the message ended."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    model: str = ""
    content: list[_Block] = []
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: _Message | str | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_event = msgspec.json.Decoder(_Event, strict=False)


class _Whole(_Message):
    type: str = ""
    error: Any = None


_whole = msgspec.json.Decoder(_Whole, strict=False)


class AnthropicReply(EventReply):
    """A reply of Anthropic Messages."""

    def __init__(self, origin: Origin, profile: ModelProfile, wall_clock: Callable[[], float]) -> None:
        super().__init__(origin, profile, wall_clock)
        self._kept = Kept(WIRE, origin.host)
        self._blocks: dict[int, _Block] = {}
        self._calls: dict[int, int] = {}  # number of the block → number of the call
        self._nameless = False
        self._begun = False
        self._finish = ""
        self._usage: dict[str, Any] = {}

    def read_event(self, name: str, data: bytes, deltas: list[Delta]) -> None:
        """Add the deltas of one event to `deltas`."""
        event = self.decoded(_event, data)
        self._event(event, event.type or name, deltas)

    def read_object(self, body: bytes) -> list[Delta]:
        """Return the deltas of a whole answer."""
        message = self.decoded(_whole, body)
        if message.error is not None or message.type == "error":
            raise self.reported(message.error)
        deltas: list[Delta] = []
        self._message(message)
        for index, block in enumerate(message.content):
            self._start(index, block, deltas)
            if block.type == "tool_use" and block.input:
                deltas.append(CallArguments(self._calls[index], encode_json(block.input).decode()))
            self._end(index)
        self._finish = message.stop_reason or ""
        self._begun = self._begun and bool(message.stop_reason)
        return deltas + self.stop()

    def _event(self, event: _Event, kind: str, deltas: list[Delta]) -> None:
        if kind == "content_block_delta" and event.delta is not None:
            self._delta(event.index, event.delta, deltas)
        elif kind == "content_block_start" and event.content_block is not None:
            self._start(event.index, event.content_block, deltas)
        elif kind == "content_block_stop":
            self._end(event.index)
        elif kind == "message_start" and isinstance(event.message, _Message):
            self._message(event.message)
        elif kind == "message_delta":
            self._usage.update(_counts(event.usage))
            if event.delta is not None and event.delta.stop_reason:
                self._finish = event.delta.stop_reason
                self.finished = True
        elif kind == "message_stop":
            deltas += self.stop()
        elif kind == "error" or event.error is not None:
            raise self.reported(event.error or event.message)

    def _message(self, message: _Message) -> None:
        self._begun = True
        self._model = message.model
        self._usage.update(_counts(message.usage))

    def _start(self, index: int, block: _Block, deltas: list[Delta]) -> None:
        self._blocks[index] = block
        if block.type == "tool_use":
            number = self._calls[index] = len(self._calls)
            self._nameless = self._nameless or not block.name
            self._kept.call(number)
            deltas.append(CallStarted(number, block.id, block.name))
        elif block.type == "text" and block.text:
            self._text(block.text, deltas)
        elif block.type == "thinking" and block.thinking:
            deltas.append(ThinkingDelta(block.thinking))

    def _delta(self, index: int, delta: _Delta, deltas: list[Delta]) -> None:
        if delta.text:
            self._text(delta.text, deltas)
        elif delta.thinking:
            deltas.append(ThinkingDelta(delta.thinking))
            if index in self._blocks:
                self._blocks[index].thinking += delta.thinking
        elif delta.signature:
            if index in self._blocks:
                self._blocks[index].signature += delta.signature
        elif delta.partial_json:
            if index not in self._calls:
                raise self.malformed("sent arguments of a call that never began")
            deltas.append(CallArguments(self._calls[index], delta.partial_json))

    def _text(self, text: str, deltas: list[Delta]) -> None:
        self._kept.text(text)
        deltas.append(TextDelta(text))

    def _end(self, index: int) -> None:
        """Keep a block of thinking that is complete: without its signature it would be refused."""
        block = self._blocks.get(index)
        if block is None:
            return
        if block.type == "thinking" and block.signature:
            item = {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
            self._kept.reasoning(item)
        elif block.type == "redacted_thinking" and block.data:
            self._kept.reasoning({"type": "redacted_thinking", "data": block.data})

    def stop(self) -> list[Delta]:
        """Return what stands at the end of a reply."""
        if self._stopped:
            return []
        if not self._begun:
            raise self.malformed("answered without any message")
        if self._nameless:
            raise self.malformed("broke its reply off (a call without a name)")
        self._stopped = True
        deltas: list[Delta] = []
        if self._kept.data is not None:
            deltas.append(ProviderData(self._kept.data))
        if self._usage:
            deltas.append(self.report(_usage_of(self._usage)))
        reason = _STOPS.get(self._finish, "stop")
        if self._calls and reason == "stop":
            reason = "tool_calls"
        return [*deltas, Stop(reason, self._finish, self._model or self.origin.model)]


def _counts(usage: dict[str, Any] | None) -> dict[str, Any]:
    """The counts that were given: the end of a message repeats some of them and leaves others out."""
    return {name: value for name, value in (usage or {}).items() if value is not None}


def _usage_of(raw: dict[str, Any]) -> Usage:
    """The provider counts what it read from its cache, and what it wrote into it, apart from the rest of the prompt."""

    def count(name: str) -> int:
        value = raw.get(name)
        return int(value) if isinstance(value, (int, float)) and value > 0 else 0

    cached, written = count("cache_read_input_tokens"), count("cache_creation_input_tokens")
    return Usage(
        input=count("input_tokens") + cached + written,
        output=count("output_tokens"),
        cached=cached,
        cache_write=written,
    )
