"""One Chat Completions reply: typed chunks to deltas. What every format's reply has in common is in `event_reply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hermes.core.messages import Usage
from hermes.core.model import Delta, ModelProfile, ProviderData, Stop, ThinkingDelta
from hermes.providers.chat_wire import (
    CHUNKS,
    CallFolder,
    Chunk,
    ReasoningDetails,
    ThinkSplitter,
    WireCall,
    WireMessage,
    content_deltas,
    stop_of,
    usage_of,
)
from hermes.providers.classify import Origin
from hermes.providers.event_reply import EventReply

__all__ = ["ChatReply"]

_DONE = b"[DONE]"
_EMPTY = WireMessage()


class ChatReply(EventReply):
    """A reply of Chat Completions."""

    def __init__(self, origin: Origin, profile: ModelProfile, wall_clock: Callable[[], float]) -> None:
        super().__init__(origin, profile, wall_clock)
        self._splitter = ThinkSplitter()
        self._calls = CallFolder()
        self._details = ReasoningDetails()
        self._usage: Usage | None = None
        self._finish = ""
        self._native = ""
        self._choices = False

    def read_event(self, name: str, data: bytes, deltas: list[Delta]) -> None:
        """Add the deltas of one event to `deltas`."""
        try:
            chunk = CHUNKS.decode(data)  # nearly every event
        except msgspec.DecodeError:
            return self._read_oddly(name, data, deltas)
        self._chunk(chunk, deltas, is_error=name == "error")

    def _read_oddly(self, name: str, data: bytes, deltas: list[Delta]) -> None:
        """Add the deltas of an event that is not one JSON text in UTF-8."""
        if b"\n" not in data or _is_json(data):
            self._chunk(self._decode(data), deltas, is_error=name == "error")
            return
        for line in data.split(b"\n"):
            if line.strip() == _DONE:
                deltas += self.read_end()
            elif line.strip():
                self._chunk(self._decode(line), deltas, is_error=name == "error")

    def read_end(self) -> list[Delta]:
        """Return the deltas that the mark of the end completes."""
        return self.stop()

    def _decode(self, data: bytes) -> Chunk:
        return self.decoded(CHUNKS, data)

    def read_object(self, body: bytes) -> list[Delta]:
        """Return the deltas of a whole answer."""
        deltas: list[Delta] = []
        self._chunk(self._decode(body), deltas, is_error=False)
        return deltas + self.stop()

    def _chunk(self, chunk: Chunk, deltas: list[Delta], *, is_error: bool) -> None:
        if chunk.error is not None or is_error:
            raise self.reported(chunk.error or chunk.message)
        if chunk.model:
            self._model = chunk.model
        if chunk.usage:
            self._usage = usage_of(chunk.usage)
        if not chunk.choices:
            return
        self._choices = True
        choice = chunk.choices[0]
        message = choice.delta if choice.delta is not None else choice.message
        if message is not None and message != _EMPTY:
            self._message(message, deltas)
        if choice.finish_reason:
            self.finished = True
            self._finish = str(choice.finish_reason)
            self._native = str(choice.native_finish_reason or "")

    def _message(self, message: WireMessage, deltas: list[Delta]) -> None:
        details = self._details.feed(message.reasoning_details) if message.reasoning_details else ""
        # Some servers send the same reasoning in several fields: the first that has any counts.
        for thought in (message.reasoning, message.reasoning_content, details):
            if thought and isinstance(thought, str):
                deltas.append(ThinkingDelta(thought))
                break
        content: Any = message.content or message.refusal
        if content and isinstance(content, list):
            thought, content = content_deltas(content)
            if thought:
                deltas.append(ThinkingDelta(thought))
        if content:
            deltas += self._splitter.feed(content)
        for call in message.tool_calls or ():
            deltas += self._calls.feed(call)
        if message.function_call is not None:
            deltas += self._calls.feed(WireCall(function=message.function_call))

    def stop(self) -> list[Delta]:
        """Return what stands at the end of a reply: what was held back, data, usage, stop."""
        if self._stopped:
            return []
        if not self._choices:
            raise self.malformed("answered without any choice")
        reason = stop_of(self._finish, self._native)
        if reason is None or self._calls.nameless:
            word = self._native or self._finish or "a call without a name"
            raise self.malformed(f"broke its reply off ({word})")
        self._stopped = True
        deltas = self._splitter.close()
        if self._details.data is not None:
            deltas.append(ProviderData(self._details.data))
        if self._usage is not None:
            deltas.append(self.report(self._usage))
        if len(self._calls) and reason == "stop":
            reason = "tool_calls"
        return [*deltas, Stop(reason, self._finish, self._model or self.origin.model)]


def _is_json(data: bytes) -> bool:
    """Whether several data lines are one JSON text, as the format of events has it; some servers omit the separator."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True
