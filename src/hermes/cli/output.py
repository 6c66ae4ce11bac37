"""What a single question prints: text and notes for people, or JSON lines for programs."""

from __future__ import annotations

import errno
import sys
from collections import deque
from collections.abc import Callable
from typing import TextIO

import anyio

from hermes.chat.render import Cleaner, printable
from hermes.core.codec import scrub_surrogates

__all__ = ["JsonLines", "Output"]


class Output:
    """The two streams of the process. On a terminal text is shown as it comes, and notes start on a line of their own.

    `whole` is what has been shown of the answer so far.
    """

    def __init__(self, *, quiet: bool, streaming: bool, out: TextIO, err: TextIO) -> None:
        self._quiet = quiet
        self.streaming = streaming
        self._out = out
        self._err = err
        self._open = False  # the last line of text is not finished
        self._cleaner = Cleaner()
        self._redact: Callable[[str], str] | None = None
        self.whole = ""

    def hide(self, redact: Callable[[str], str]) -> None:
        """From now on show nothing that `redact` replaces."""
        self._redact = redact
        self._cleaner = Cleaner(redact)

    def delta(self, text: str) -> None:
        """Show more of the answer."""
        self._show(self._cleaner.feed(text))

    def _show(self, text: str) -> None:
        if not text:
            return
        self.whole += text
        self._open = not text.endswith("\n")
        _write(self._out, text)

    def close_line(self) -> None:
        """End the line of text under way."""
        self._show(self._cleaner.end())
        if self._open:
            _write(self._out, "\n")
            self._open = False

    def note(self, text: str, *, always: bool = False) -> None:
        """Say something that is not the answer; `always` also where it is to be quiet."""
        if self._quiet and not always:
            return
        self.close_line()
        text = printable(text)
        _write(self._err, (self._redact(text) if self._redact is not None else text) + "\n")

    def answer(self, text: str) -> None:
        """Show the final text, unless the terminal has it already."""
        self.close_line()
        if self.streaming and printable(text).strip() in self.whole:
            return
        text = printable(text) if self._out.isatty() else scrub_surrogates(text)
        if text:
            _write(self._out, text if text.endswith("\n") else text + "\n")


class JsonLines:
    """JSON lines on their way to stdout: written by a thread, so that a slow reader holds nobody up."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._changed = anyio.Event()
        self._ended = False

    def put(self, line: bytes) -> None:
        """Queue a line."""
        self._waiting.append(line + b"\n")
        self._changed.set()

    def end(self) -> None:
        """No further line comes."""
        self._ended = True
        self._changed.set()

    async def run(self) -> None:
        """Write until `end`. Raises BrokenPipeError when the reader has gone."""
        while self._waiting or not self._ended:
            if not self._waiting:
                self._changed = anyio.Event()
                await self._changed.wait()
                continue
            data = b"".join(self._waiting)
            self._waiting.clear()
            await anyio.to_thread.run_sync(_write_all, data, abandon_on_cancel=True)


def _write_all(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno != errno.EIO:  # a terminal that is gone must not end the work; the hang-up signal tells of it
            raise
