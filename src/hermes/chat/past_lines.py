"""What a person sent before, kept in the home so that the next conversation has it at hand.

One JSON string a line, the newest last, readable by the user alone; secrets that are known are replaced first.
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from hermes.config import Home

__all__ = ["PastLines"]

#: Lines that are read, characters of one that are kept, and bytes above which the file is shortened.
MOST, MOST_TEXT, MOST_BYTES = 500, 10_000, 1_000_000


class PastLines:
    """The lines of one home. Losing one is no harm: nothing here raises."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._file = home.path / "composer_history.jsonl"

    def load(self) -> list[str]:
        """The newest lines, oldest first."""
        try:
            rows = self._file.read_bytes().splitlines()[-MOST:]
        except OSError:
            return []
        lines: list[str] = []
        for row in rows:
            with contextlib.suppress(msgspec.DecodeError):  # cut off by a crash
                lines.append(msgspec.json.decode(row, type=str))
        return lines

    def add(self, line: str) -> None:
        """Keep one more (blocking)."""
        with contextlib.suppress(OSError):
            if self._file.exists() and self._file.stat().st_size > MOST_BYTES:
                self._shorten()
            data = msgspec.json.encode(line[:MOST_TEXT].encode("utf-8", "replace").decode()) + b"\n"
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)

    def _shorten(self) -> None:
        rows = self._file.read_bytes().splitlines(keepends=True)[-MOST:]
        new = self._file.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines(rows)
        new.replace(self._file)
