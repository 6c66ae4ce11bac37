"""Server-sent events: bytes in, events out.

Split at newlines and decoded afterwards, so that neither a character nor a JSON text can be cut by the network. It
knows nothing of what the events mean.
"""

from __future__ import annotations

__all__ = ["EventParser", "ServerEvent"]

_CR, _LF = b"\r\n"  # numbers: looking for bytes by `in` drops an exception each time

#: (name, data): the name of the event, empty if none was given, and its data lines joined by newlines.
ServerEvent = tuple[str, bytes]


class EventParser:
    """Feed chunks, get the events they complete; `close` gives what an ended stream left unfinished."""

    def __init__(self) -> None:
        self._tail = b""  # what no event or line is complete of yet
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that are complete with `chunk`."""
        events: list[ServerEvent] = []
        text = self._tail + chunk
        if self._data or self._name or _CR in text:
            *lines, self._tail = text.split(b"\n")
            for line in lines:
                self._line(line, events)
            return events
        *blocks, self._tail = text.split(b"\n\n")
        for block in blocks:
            if block[:6] == b"data: " and _LF not in block:  # nearly every event of nearly every server
                events.append(("", block[6:]))
                continue
            for line in block.split(b"\n"):
                self._line(line, events)
            self._line(b"", events)
        return events

    def close(self) -> list[ServerEvent]:
        """Return the last event of a stream that ended without a blank line."""
        events: list[ServerEvent] = []
        tail, self._tail = self._tail, b""
        for line in tail.split(b"\n"):
            self._line(line, events)
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[ServerEvent]) -> None:
        if line[-1:] == b"\r":
            line = line.rstrip(b"\r")
        if not line:
            data = self._data
            if data:
                events.append((self._name, data[0] if len(data) == 1 else b"\n".join(data)))
                self._data = []
            self._name = ""
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"event:"):
            self._name = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"{"):
            # Gateways report an error in mid-stream as a bare line of JSON.
            self._data.append(line)
