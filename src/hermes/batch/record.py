"""The lossless record of one ended rollout, and the file that holds them: the truth of a run.

`records.jsonl` is append-only, one line a record; a line that is whole is an ended rollout, a torn last line is none.
The last record of a key wins, so a rollout that failed and was run again has two. Rows, checkpoint, statistics and
merged files are all derived from it. Nothing here syncs or schedules.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from hermes.batch.rollout import RolloutResult
from hermes.core.codec import encode_json

__all__ = [
    "LASTING_FAILURES",
    "Head",
    "Outcome",
    "Record",
    "RecordFile",
    "Used",
    "cut_torn_tail",
    "decode_head",
    "decode_record",
    "encode_record",
]

Outcome = Literal["finished", "failed"]

#: Failures that the same row would meet again: run again only when asked for.
LASTING_FAILURES = frozenset(
    {"environment_unavailable", "context_overflow", "payload_too_large", "content_policy_blocked", "format_error"}
)


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The first fields of a record: what resume and counting need. `reason` is the failure's kind or why a finished
    rollout was rejected, empty if it was kept. `score` is what the row's verifier gave, 0 to 1, None without one.
    `at` is seconds since the epoch."""

    key: str
    index: int
    rollout: int = 0
    attempt: int = 1
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    offered: tuple[str, ...] = ()
    tokens: int = 0
    cost_usd: float | None = None
    score: float | None = None
    at: float = 0.0
    calls: int = 0
    denied: int = 0


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A head, the dataset row as it was read, the toolsets it ran with, and the whole result."""

    head: Head
    source: dict[str, Any]
    toolsets: tuple[str, ...]
    result: RolloutResult


class _HeadOnly(msgspec.Struct, frozen=True):
    head: Head


_heads = msgspec.json.Decoder(_HeadOnly)
_records = msgspec.json.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode a record as one line with its newline."""
    return encode_json(record) + b"\n"


def decode_record(line: bytes) -> Record:
    """Decode one line. Raises `msgspec.DecodeError`."""
    return _records.decode(line)


def decode_head(line: bytes) -> Head:
    """Decode the head of one line, which has to be a whole one. Raises `msgspec.DecodeError`."""
    return _heads.decode(line).head


class Used(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What ended rollouts used, failed ones and earlier attempts included; `cost_usd` as far as prices are known."""

    rollouts: int = 0
    tokens: int = 0
    cost_usd: float = 0.0

    def plus(self, head: Head) -> Used:
        """This and one rollout more."""
        return Used(
            rollouts=self.rollouts + 1,
            tokens=self.tokens + head.tokens,
            cost_usd=self.cost_usd + (head.cost_usd or 0.0),
        )


def cut_torn_tail(path: Path, size: int) -> int:
    """Cut the file at `path` to `size` bytes, the end of its last whole line; return how many bytes went."""
    if not path.exists():
        return 0
    torn = path.stat().st_size - size
    if torn > 0:
        os.truncate(path, size)
    return max(torn, 0)


class Span(Protocol):
    """Where a record stands in the file, in bytes."""

    @property
    def offset(self) -> int: ...

    @property
    def length(self) -> int: ...


class RecordFile:
    """The records of a run, read where they stand. Open for the length of a `with`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *_: object) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _line(self, span: Span) -> bytes:
        if self._file is None:  # a run of which nothing has ended has no such file
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._file, span.length, span.offset)

    def head(self, span: Span) -> Head:
        """Read the head of one record."""
        return decode_head(self._line(span))

    def read(self, span: Span) -> Record:
        """Read one record."""
        return decode_record(self._line(span))
