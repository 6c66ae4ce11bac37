"""One Chat Completions reply: bytes in, deltas out, exactly one `Stop` at its end or a `ModelError`.

Takes whatever an endpoint answers with status 200: a stream of events, a whole JSON answer, an error inside either, or
a page of HTML. It does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hermes.core.messages import Usage
from hermes.core.model import Delta, ModelProfile, ProviderData, Stop, ThinkingDelta, UsageReport
from hermes.providers.chat_wire import (
    CallFolder,
    Chunk,
    ReasoningDetails,
    ThinkSplitter,
    WireCall,
    WireMessage,
    content_deltas,
    decode_chunk,
    stop_of,
    usage_of,
)
from hermes.providers.classify import Origin, error_of, error_text, stream_error
from hermes.providers.profiles import with_cost
from hermes.providers.sse import EventParser, ServerEvent

__all__ = ["ChatReply"]

_DONE = b"[DONE]"
_EMPTY = WireMessage()


class ChatReply:
    """Feed the chunks of the body, then `close` at its end (not needed once a `Stop` came out).

    Raises (both):
        ModelError: the provider reported an error, or what came is no usable reply.
    """

    def __init__(self, origin: Origin, profile: ModelProfile, wall_clock: Callable[[], float]) -> None:
        self.origin = origin
        self.finished = False  # a finish reason has come; only usage and the end mark may follow
        self._profile = profile
        self._wall_clock = wall_clock
        self._events = EventParser()
        self._whole: list[bytes] | None = None  # parts of a body that is no stream
        self._sniffed = False
        self._splitter = ThinkSplitter()
        self._calls = CallFolder()
        self._details = ReasoningDetails()
        self._usage: Usage | None = None
        self._finish = ""
        self._native = ""
        self._model = ""
        self._choices = False
        self._stopped = False

    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas that `data` completes."""
        if not self._sniffed:
            data = data.removeprefix(b"\xef\xbb\xbf").lstrip()
            if not data:
                return []
            self._sniffed = True
            if data[:1] in (b"{", b"[", b"<"):
                self._whole = []
        if self._whole is not None:
            self._whole.append(data)
            return []
        return self._read(self._events.feed(data))

    def close(self) -> list[Delta]:
        """Return the last deltas of a body that has ended."""
        if self._whole is not None:
            return self._read_whole(b"".join(self._whole))
        deltas = self._read(self._events.close())
        if not self._stopped:
            if not self.finished:
                what = f"{self.origin.host} ended the reply of {self.origin.model} before it was complete"
                raise error_of(self.origin, "timeout", what)
            deltas += self._stop()
        return deltas

    def _read(self, events: list[ServerEvent]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            if self._stopped:
                break
            if data[:1] == b"{" and b"\n" not in data:  # nearly every event of nearly every server
                try:
                    chunk = decode_chunk(data)
                except msgspec.DecodeError as error:
                    raise self._undecodable(error, data) from error
                self._chunk(chunk, deltas, is_error=name == "error")
                continue
            if data.strip() == _DONE:
                deltas += self._stop()
                continue
            for line in (data,) if b"\n" not in data or _is_json(data) else data.split(b"\n"):
                if line.strip() == _DONE:
                    deltas += self._stop()
                elif line.strip():
                    self._chunk(self._decode(line), deltas, is_error=name == "error")
        return deltas

    def _decode(self, data: bytes) -> Chunk:
        try:
            return decode_chunk(data)
        except msgspec.DecodeError as error:
            raise self._undecodable(error, data) from error

    def _undecodable(self, error: msgspec.DecodeError, data: bytes) -> Exception:
        return self._malformed(f"sent a piece of a reply that is not as expected ({error})", data)

    def _read_whole(self, body: bytes) -> list[Delta]:
        if body[:1] == b"<":
            raise self._malformed("answered with a web page instead of a reply", error_text(body).encode())
        if body[:1] == b"[":
            raise self._malformed("answered with a list instead of a reply", body)
        deltas: list[Delta] = []
        self._chunk(self._decode(body), deltas, is_error=False)
        return deltas + self._stop()

    def _chunk(self, chunk: Chunk, deltas: list[Delta], *, is_error: bool) -> None:
        if chunk.error is not None or is_error:
            raise stream_error(self.origin, chunk.error or chunk.message or "no text", self._wall_clock())
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

    def _stop(self) -> list[Delta]:
        """Return what stands at the end of a reply: what was held back, data, usage, stop."""
        if self._stopped:
            return []
        if not self._choices:
            raise self._malformed("answered without any choice", b"")
        reason = stop_of(self._finish, self._native)
        if reason is None or self._calls.nameless:
            word = self._native or self._finish or "a call without a name"
            raise self._malformed(f"broke its reply off ({word})", b"")
        self._stopped = True
        deltas = self._splitter.close()
        if self._details.data is not None:
            deltas.append(ProviderData(self._details.data))
        if self._usage is not None:
            deltas.append(UsageReport(with_cost(self._profile, self._usage)))
        if len(self._calls) and reason == "stop":
            reason = "tool_calls"
        return [*deltas, Stop(reason, self._finish, self._model or self.origin.model)]

    def _malformed(self, what: str, text: bytes) -> Exception:
        shown = text.decode("utf-8", "replace")
        return error_of(self.origin, "malformed_response", f"{self.origin.host} ({self.origin.model}) {what}", shown)


def _is_json(data: bytes) -> bool:
    """Whether several data lines are one JSON text, as the format of events has it; some servers omit the separator."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True
