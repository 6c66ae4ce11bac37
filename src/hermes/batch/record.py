"""The lossless record of one ended rollout, and the file that holds them: the truth of a run.

`records.jsonl` is append-only, one line a record; a line that is whole is an ended rollout, a torn last line is none.
The last record of a key wins, so a rollout that failed and was run again has two. Rows, checkpoint, statistics and
merged files are all derived from it. Nothing here syncs or schedules.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from hermes.batch.rollout import RolloutResult
from hermes.core.codec import encode_json

__all__ = [
    "Head",
    "Outcome",
    "Record",
    "RecordIndex",
    "Used",
    "decode_record",
    "encode_record",
    "open_index",
    "read_record",
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

    @property
    def lasting(self) -> bool:
        """Whether running the row again would meet the same failure."""
        return self.outcome == "failed" and self.reason in LASTING_FAILURES


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


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a record stands in the file, in bytes."""

    head: Head
    offset: int
    length: int


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


class RecordIndex:
    """The last record of each rollout, by key; `used` counts all of them. `damaged` counts lines that could not be
    read."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.damaged = 0
        self.size = 0
        self.used = Used()
        self._offers: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, head: Head, offset: int, length: int) -> None:
        """Take a record in; it replaces an earlier one of its key, but a failure never replaces a finished rollout.

        Heads of equal offers share one: their names would be most of what a row takes in memory."""
        offered = self._offers.setdefault(head.offered, head.offered)
        if offered is not head.offered:
            msgspec.structs.force_setattr(head, "offered", offered)
        self.used = self.used.plus(head)
        known = self.places.get(head.key)
        if known is None or known.head.outcome == "failed" or head.outcome == "finished":
            self.places[head.key] = Place(head, offset, length)
        self.size = offset + length

    def heads(self) -> list[Head]:
        """All heads, in the order of the dataset."""
        return [place.head for place in self.ordered()]

    def finished(self) -> frozenset[str]:
        """The keys of the rollouts that are done."""
        return frozenset(key for key, place in self.places.items() if place.head.outcome == "finished")

    def ordered(self) -> list[Place]:
        """All places, in the order of the dataset."""
        return sorted(self.places.values(), key=lambda place: (place.head.index, place.head.rollout))


def open_index(path: Path) -> RecordIndex:
    """Read the heads of the records at `path` (a missing file has none)."""
    index = RecordIndex()
    if not path.exists():
        return index
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break  # torn: the process died while it was written, so the rollout never ended
            try:
                head = _heads.decode(line).head
            except msgspec.DecodeError:
                index.damaged += 1
            else:
                index.add(head, offset, len(line))
            offset += len(line)
    index.size = offset
    return index


def cut_torn_tail(path: Path, size: int) -> int:
    """Cut the file at `path` to `size` bytes, the end of its last whole line; return how many bytes went."""
    if not path.exists():
        return 0
    torn = path.stat().st_size - size
    if torn > 0:
        os.truncate(path, size)
    return max(torn, 0)


def read_record(file: int, place: Place) -> Record:
    """Read one record from the open descriptor `file`."""
    return decode_record(os.pread(file, place.length, place.offset))
