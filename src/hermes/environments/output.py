"""The output of one command: the beginning and the end in memory, the whole on disk once it is long.

Everything that leaves this module as text has passed the redactor, the file included. Bytes that are no UTF-8 and NUL
become U+FFFD. It reads no pipe and starts no thread; methods marked blocking belong on one.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

__all__ = ["Output", "OutputLimits", "Redact", "cut_middle"]

Redact = Callable[[str], str]

#: Text held back while spilling, so that a secret is never cut in two before the redactor has seen it.
_HELD_BACK = 4096
_HELD_BACK_BLOCK = 32_768
_SPILL_AT = 1 << 20


class OutputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`visible` is characters a model reads of one result, `memory` bytes kept in memory, `disk` bytes of the whole
    output, above which a command is stopped."""

    visible: int = 30_000
    memory: int = 262_144
    disk: int = 64 * 1024 * 1024


def cut_middle(text: str, limit: int, path: str = "") -> tuple[str, bool]:
    """Cut `text` to about `limit` characters, two fifths from its head and the rest from its tail, at line ends where
    one is near. Returns (text, whether it was cut); `path` is named as the place of the whole."""
    if len(text) <= limit:
        return text, False
    head_end = limit * 2 // 5
    tail_start = len(text) - (limit - head_end)
    near = limit // 10
    line = text.rfind("\n", head_end - near, head_end)
    if line > 0:
        head_end = line + 1
    line = text.find("\n", tail_start, tail_start + near)
    if line > 0:
        tail_start = line + 1
    where = f"; the whole output is in {path}" if path else ""
    return f"{text[:head_end]}\n[… {tail_start - head_end} characters cut{where} …]\n{text[tail_start:]}", True


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


class Output:
    """Takes bytes as they come. The file `path` is made only when memory does not hold the whole."""

    def __init__(self, path: Path, redact: Redact, limits: OutputLimits, *, head: bool = True) -> None:
        self.path = path
        self.limits = limits
        self.total = 0
        self.newlines = 0
        self.spilled = False
        self._redact = redact
        self._head_size = limits.memory // 2 if head else 0
        self._tail_size = limits.memory - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._carry = ""
        self._polled = 0

    def feed(self, data: bytes) -> None:
        """Add output."""
        self.total += len(data)
        self.newlines += data.count(b"\n")
        self._pending.append(data)
        self._pending_size += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_size:
            del self._tail[: len(self._tail) - self._tail_size]

    @property
    def over(self) -> bool:
        """Whether there is more than may be kept on disk."""
        return self.total > self.limits.disk

    @property
    def wants_spill(self) -> bool:
        """Whether so much waits that it should go to the disk now."""
        return self._pending_size >= _SPILL_AT

    def last_line(self) -> str:
        """The newest line that is not blank, at most 200 characters."""
        text = self._redact(_decode(bytes(self._tail[-1000:] or self._head[-1000:])))
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1].strip()[:200] if lines else ""

    def spill(self, *, final: bool = False) -> None:
        """Write what waits to the file (blocking). `final` writes the held-back rest too. Raises OSError."""
        pending, self._pending, self._pending_size = self._pending, [], 0
        text = self._carry + self._decoder.decode(b"".join(pending), final).replace("\0", "\ufffd")
        if final:
            ready, self._carry = self._redact(text), ""
        else:
            ready, self._carry = self._split(text)
        if not self.spilled:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.unlink(missing_ok=True)
        # A command behind a boundary may write in that directory too: no link of its making is followed.
        how = os.O_APPEND if self.spilled else os.O_CREAT | os.O_EXCL
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | how, 0o600)
        self.spilled = True
        with open(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(ready)

    def _split(self, text: str) -> tuple[str, str]:
        """Part `text` into what is redacted and may be written, and what has to wait for what follows it."""
        opened = text.rfind("-----BEGIN")
        if opened >= 0 and "-----END" not in text[opened:] and len(text) - opened < _HELD_BACK_BLOCK:
            return self._redact(text[:opened]), text[opened:]
        line = text.rfind("\n") + 1
        if len(text) - line <= _HELD_BACK_BLOCK:
            return self._redact(text[:line]), text[line:]
        clean = self._redact(text)
        return clean[:-_HELD_BACK], clean[-_HELD_BACK:]

    def finish(self) -> tuple[str, bool, str]:
        """Return (text for a model, whether it was cut, path of the whole or "") (blocking). Raises OSError."""
        if self.total > len(self._head) + len(self._tail):
            self.spill(final=True)
            whole = self._redact(_decode(bytes(self._head))) + "\n" + self._redact(_decode(bytes(self._tail)))
            text, _ = cut_middle(whole, self.limits.visible, str(self.path))
            return text, True, str(self.path)
        whole = self._redact(_decode(bytes(self._head + self._tail)))
        if len(whole) <= self.limits.visible:
            if self.spilled:
                self.spill(final=True)
            return whole, False, str(self.path) if self.spilled else ""
        self.spill(final=True)
        text, _ = cut_middle(whole, self.limits.visible, str(self.path))
        return text, True, str(self.path)

    def new_text(self) -> tuple[str, bool]:
        """Return (output since the last call, whether some of it was lost or cut). A last line without an end is
        returned again, completed, by the next call."""
        kept = bytes(self._head + self._tail)
        start = self.total - len(kept)
        lost = self._polled < start
        fresh = kept[max(0, self._polled - start) :]
        complete = fresh.rfind(b"\n") + 1
        self._polled = self.total - len(fresh) + complete
        text, cut = cut_middle(self._redact(_decode(fresh)), self.limits.visible)
        return text, lost or cut

    def lines(self, offset: int | None, limit: int) -> tuple[str, int, int, bool]:
        """Return (text, number of its first line, lines in all, whether lines before it are gone or cut)."""
        kept = self._redact(_decode(bytes(self._head + self._tail))).splitlines()
        total = self.newlines + (1 if kept and not self._tail.endswith(b"\n") else 0)
        total = max(total, len(kept))
        oldest = total - len(kept) + 1
        first = max(oldest, total - limit + 1) if offset is None else max(offset, oldest)
        part = kept[first - oldest : first - oldest + limit]
        text, cut = cut_middle("\n".join(part), self.limits.visible)
        return text, first, total, cut or (offset is not None and offset < oldest)
