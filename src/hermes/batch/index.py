"""Which rollouts have ended, how, and where their records stand: all that a run keeps of them in memory.

A rollout takes 14 bytes in arrays, in the slot of its row's place and its number: where its record stands, how long it
is, and the number of a way to end (outcome, reason, attempt, tools). What else a head holds is added up as it passes,
and read again from its record where somebody asks for it. A record whose place is not its row's (a file put together
by hand, a lost `rows.tsv`) is a stray: known by its key, at the price of an object.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hermes.batch.counts import Counts
from hermes.batch.identity import rollout_key
from hermes.batch.record import LASTING_FAILURES, Head, Outcome, RecordFile, Used, decode_head
from hermes.batch.rowtable import RowTable

__all__ = ["Ended", "Place", "RecordIndex", "Slots", "open_index"]

#: Ways to end that have a number; the rollouts of others are strays.
MANY = 65_535


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A way to end. `reason` is the failure's kind or why a finished rollout was rejected."""

    outcome: Outcome
    reason: str
    attempt: int
    offered: tuple[str, ...]

    @property
    def lasting(self) -> bool:
        """Whether running the row again would meet the same failure."""
        return self.outcome == "failed" and self.reason in LASTING_FAILURES


class Place(msgspec.Struct, frozen=True, gc=False):
    """How a rollout ended, and where its record stands in the file, in bytes."""

    index: int
    rollout: int
    offset: int
    length: int
    ended: Ended


class Slots:
    """Some of the rollouts of a run, a byte each."""

    def __init__(self, rollouts: int) -> None:
        self._rollouts = rollouts
        self._marks = bytearray()

    def add(self, index: int, rollout: int) -> None:
        """Take one in; there is none of a number that no row has."""
        slot = self._slot(index, rollout)
        if slot is None:
            return
        if slot >= len(self._marks):
            self._marks.extend(bytes(slot + 1 - len(self._marks)))
        self._marks[slot] = 1

    def has(self, index: int, rollout: int) -> bool:
        """Whether it is among them."""
        slot = self._slot(index, rollout)
        return slot is not None and slot < len(self._marks) and bool(self._marks[slot])

    def _slot(self, index: int, rollout: int) -> int | None:
        return index * self._rollouts + rollout if index >= 0 and 0 <= rollout < self._rollouts else None

    def __bool__(self) -> bool:
        return bool(self._marks)


class RecordIndex:
    """The last record of each rollout, for a run of `rows` and so many `rollouts` a row. `counts` counts each once;
    `used` sums all records up. `damaged` counts lines that could not be read, `size` is where the next one begins."""

    def __init__(self, rows: RowTable | None = None, rollouts: int = 1) -> None:
        self.rollouts = rollouts
        self.damaged = 0
        self.size = 0
        self.used = Used()
        self.counts = Counts()
        self._ways: list[Ended | None] = [None]  # number 0: not ended
        self._numbers: dict[Ended, int] = {}
        self._offsets, self._lengths, self._kinds = array("Q"), array("I"), array("H")
        self._strays: dict[str, Place] = {}
        self.follow(RowTable() if rows is None else rows)

    def follow(self, rows: RowTable) -> None:
        """The rows are these from now on. A row that was known has the place that it had."""
        self._rows = rows
        self._by_place = rows.by_place()
        self._reserve(len(self._by_place) * self.rollouts)

    def _reserve(self, slots: int) -> None:
        more = slots - len(self._kinds)
        if more > 0:
            for column in (self._offsets, self._lengths, self._kinds):
                column.extend(array(column.typecode, bytes(column.itemsize)) * more)

    def _slot(self, head: Head) -> int | None:
        """The slot of a rollout; None where its place is not that of its row."""
        if head.rollout >= self.rollouts or not 0 <= head.index < len(self._by_place):
            return None
        position = self._by_place[head.index]
        if position < 0 or head.key != rollout_key(self._rows.row_id(position), head.rollout):
            return None
        return head.index * self.rollouts + head.rollout

    def before(self, head: Head) -> Place | None:
        """Where the record stands that counts for this rollout until now."""
        if self._strays and (stray := self._strays.get(head.key)) is not None:
            return stray
        slot = self._slot(head)
        return self._place(slot) if slot is not None else None

    def add(self, head: Head, offset: int, length: int, before: Head | None = None) -> None:
        """Take a record in; it replaces that of `before`, the one that counted for its rollout until now, but a failure
        never replaces a finished rollout."""
        self.used = self.used.plus(head)
        if before is None or before.outcome == "failed" or head.outcome == "finished":
            self.counts.count(head, before)
            self._put(head, offset, length)
        self.size = offset + length

    def _put(self, head: Head, offset: int, length: int) -> None:
        ended = Ended(head.outcome, head.reason, head.attempt, head.offered)
        number = self._numbers.get(ended)
        if number is None and len(self._ways) < MANY:
            number = self._numbers[ended] = len(self._ways)
            self._ways.append(ended)
        slot = self._slot(head)
        if slot is None or number is None or head.key in self._strays:
            if slot is not None:
                self._kinds[slot] = 0
            self._strays[head.key] = Place(head.index, head.rollout, offset, length, ended)
            return
        self._offsets[slot], self._lengths[slot], self._kinds[slot] = offset, length, number

    def _place(self, slot: int) -> Place | None:
        ended = self._ways[self._kinds[slot]]
        if ended is None:
            return None
        index, rollout = divmod(slot, self.rollouts)
        return Place(index, rollout, self._offsets[slot], self._lengths[slot], ended)

    def ended(self, rows: RowTable, position: int, rollout: int) -> Ended | None:
        """How a rollout of the row at `position` of `rows` ended; None: it has not."""
        if self._strays and (stray := self._strays.get(rollout_key(rows.row_id(position), rollout))) is not None:
            return stray.ended
        slot = rows.place(position) * self.rollouts + rollout
        return self._ways[self._kinds[slot]] if rollout < self.rollouts and slot < len(self._kinds) else None

    def ended_of(self, rows: RowTable, positions: range) -> int:
        """How many rollouts of some rows have ended."""
        return sum(
            self.ended(rows, position, rollout) is not None
            for position in positions
            for rollout in range(self.rollouts)
        )

    def offered(self) -> set[str]:
        """The names of all tools offered in a last record."""
        ways = [self._ways[number] for number in set(self._kinds)]
        ways += [stray.ended for stray in self._strays.values()]
        return {name for way in ways if way is not None for name in way.offered}

    def places(self, first: int = 0, last: int | None = None, *, finished: bool = False) -> Iterator[Place]:
        """Where the records stand, in the order of the dataset: of the rows in the places from `first` to before `last`
        (None: all), only those that are finished if so wanted."""
        end = len(self._kinds) if last is None else min(last * self.rollouts, len(self._kinds))
        found = (place for slot in range(first * self.rollouts, end) if (place := self._place(slot)) is not None)
        if self._strays:
            strays = [
                stray
                for stray in self._strays.values()
                if first <= stray.index and (last is None or stray.index < last)
            ]
            found = heapq.merge(found, sorted(strays, key=_order), key=_order)
        return (place for place in found if place.ended.outcome == "finished") if finished else found

    def first_finished(self, count: int) -> list[Place]:
        """The finished rollouts whose records were written first."""
        return heapq.nsmallest(count, self.places(finished=True), key=lambda place: place.offset)

    def last_index(self) -> int:
        """The last place of which a record is known, or of which there could be one; -1 for none."""
        return max(max((stray.index for stray in self._strays.values()), default=-1), len(self._by_place) - 1)


def _order(place: Place) -> tuple[int, int]:
    return place.index, place.rollout


def open_index(path: Path, rows: RowTable | None = None, rollouts: int = 1) -> RecordIndex:
    """Read the heads of the records at `path` (a missing file has none) of a run of `rows`."""
    index = RecordIndex(rows, rollouts)
    if not path.exists():
        return index
    offset = 0
    with path.open("rb") as file, RecordFile(path) as records:
        for line in file:
            if not line.endswith(b"\n"):
                break  # torn: the process died while it was written, so the rollout never ended
            try:
                head = decode_head(line)
            except msgspec.DecodeError:
                index.damaged += 1
            else:
                known = index.before(head)
                index.add(head, offset, len(line), None if known is None else records.head(known))
            offset += len(line)
    index.size = offset
    return index
