"""Reading one reply: bytes in, deltas out, exactly one `Stop` at its end or a `ModelError`. Formats subclass it.

Takes whatever an endpoint answers with status 200: a stream of events, a whole JSON answer, an error inside either, or
a page of HTML. It does no I/O and knows no format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from hermes.core.messages import Usage
from hermes.core.model import Delta, ModelProfile, UsageReport
from hermes.providers.classify import Origin, error_of, error_text, stream_error
from hermes.providers.profiles import with_cost
from hermes.providers.sse import EventParser, ServerEvent

__all__ = ["EventReply", "decode"]

_Value = TypeVar("_Value")
_DONE = b"[DONE]"


def decode(decoder: msgspec.json.Decoder[_Value], data: bytes) -> _Value:
    """Decode one event. Invalid UTF-8 is replaced, not refused. Raises `msgspec.DecodeError` for what is none."""
    try:
        return decoder.decode(data)
    except msgspec.DecodeError:
        text = data.decode("utf-8", "replace")
        if "\ufffd" not in text:
            raise
        return decoder.decode(text)


class EventReply(ABC):
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
        self._stopped = False
        self._model = ""

    # -- what a format gives ----------------------------------------------------------------------------------------

    @abstractmethod
    def read_event(self, name: str, data: bytes, deltas: list[Delta]) -> None:
        """Add the deltas of one event to `deltas`; `data` is not empty and not the mark `[DONE]` of its end."""

    @abstractmethod
    def read_object(self, body: bytes) -> list[Delta]:
        """Return the deltas of a whole answer that is a JSON object, its stop included."""

    @abstractmethod
    def stop(self) -> list[Delta]:
        """Return what stands at the end of a reply: what was held back, data, usage, stop. Repeated: nothing."""

    # -- the reply --------------------------------------------------------------------------------------------------

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
        return self.read(self._events.feed(data))

    def read(self, events: list[ServerEvent]) -> list[Delta]:
        """Return the deltas of `events`, up to the stop."""
        deltas: list[Delta] = []
        for name, data in events:
            if self._stopped:
                break
            if data[:1] == b"{":  # nearly every event of nearly every server
                self.read_event(name, data, deltas)
            elif (mark := data.strip()) == _DONE:
                deltas += self.read_end()
            elif mark:
                self.read_event(name, data, deltas)
        return deltas

    def read_end(self) -> list[Delta]:
        """Return the deltas that the mark `[DONE]` completes; most formats say themselves when they are done."""
        return []

    def decoded(self, decoder: msgspec.json.Decoder[_Value], data: bytes) -> _Value:
        """Decode a piece of the reply. Raises ModelError for what is none."""
        try:
            return decode(decoder, data)
        except msgspec.DecodeError as error:
            raise self.undecodable(error, data) from error

    def close(self) -> list[Delta]:
        """Return the last deltas of a body that has ended."""
        if self._whole is not None:
            return self._read_whole(b"".join(self._whole))
        deltas = self.read(self._events.close())
        if not self._stopped:
            if not self.finished:
                what = f"{self.origin.host} ended the reply of {self.origin.model} before it was complete"
                raise error_of(self.origin, "timeout", what)
            deltas += self.stop()
        return deltas

    def _read_whole(self, body: bytes) -> list[Delta]:
        if body[:1] == b"<":
            raise self.malformed("answered with a web page instead of a reply", error_text(body).encode())
        if body[:1] == b"[":
            raise self.malformed("answered with a list instead of a reply", body)
        return self.read_object(body)

    def report(self, usage: Usage) -> UsageReport:
        """The report of `usage` with its cost."""
        return UsageReport(with_cost(self._profile, usage))

    def reported(self, error: Any) -> Exception:
        """The error that the provider reported within its reply."""
        return stream_error(self.origin, error or "no text", self._wall_clock())

    def undecodable(self, error: msgspec.DecodeError, data: bytes) -> Exception:
        """The error of a piece that is no part of this format."""
        return self.malformed(f"sent a piece of a reply that is not as expected ({error})", data)

    def malformed(self, what: str, text: bytes = b"") -> Exception:
        """The error of what is no usable reply."""
        shown = text.decode("utf-8", "replace")
        return error_of(self.origin, "malformed_response", f"{self.origin.host} ({self.origin.model}) {what}", shown)
