"""The rows a run knows, in few bytes each: identity and place, never their content.

A row takes its hash, 16 bytes. Its number among equal ones and its place take four more each where they are not what
they are in nearly every run: 0, and where the row stands. As values of their own a million rows would take half a
gigabyte.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import msgspec

__all__ = ["DIGEST", "RowEntry", "RowTable", "buckets", "ordinals"]

#: Bytes of a row's hash.
DIGEST = 16
#: Rows whose identities are made at once.
AT_ONCE = 4_096


class RowEntry(msgspec.Struct, frozen=True, gc=False):
    """A row the run knows: its identity and its place in the output, which never changes. `gone` marks a row that has
    ended and stands in the dataset no more."""

    row_id: str
    index: int
    gone: bool = False


class RowTable(Sequence[RowEntry]):
    """Rows in order, those that are gone last. What is read from it is made for the reader."""

    def __init__(self, entries: Iterable[RowEntry] = ()) -> None:
        self._digests = bytearray()
        self._count = self._gone = 0
        self._ordinals: array[int] | None = None  # None: 0 for all
        self._places: array[int] | None = None  # None: each where it stands
        for entry in entries:
            self.add(entry)

    def add(self, entry: RowEntry) -> None:
        """Append a row."""
        digest, _, ordinal = entry.row_id.partition(":")
        self._append(bytes.fromhex(digest), int(ordinal), entry.index, entry.gone)

    def _append(self, digest: bytes | bytearray, ordinal: int, place: int, gone: bool) -> None:
        if ordinal and self._ordinals is None:
            self._ordinals = array("I", bytes(4)) * self._count
        if place != self._count and self._places is None:
            self._places = array("I", range(self._count))
        self._digests += digest
        if self._ordinals is not None:
            self._ordinals.append(ordinal)
        if self._places is not None:
            self._places.append(place)
        self._count += 1
        self._gone += gone

    def copy(self, other: RowTable, position: int, place: int, *, gone: bool = False) -> None:
        """Append the row at `position` of another table, in a place of its own."""
        self._append(other.digest(position), other.ordinal(position), place, gone)

    @classmethod
    def of(cls, digests: bytearray) -> RowTable:
        """The table of a new run: the rows with these hashes (16 bytes each), each in the place where it stands. The
        hashes are not copied."""
        table = cls()
        table._digests = digests
        table._count = len(digests) // DIGEST
        found = ordinals(digests)
        table._ordinals = found if any(found) else None
        return table

    def placed_as(self, known: RowTable) -> RowTable:
        """The rows of this table in the places that they have in `known`, which has the same rows: `known` itself
        where more than the places is to be kept of it."""
        if known._gone:
            return known
        self._places = known._places
        return self

    def digest(self, position: int) -> bytearray:
        """The hash of the row at `position`."""
        return self._digests[position * DIGEST : (position + 1) * DIGEST]

    def ordinal(self, position: int) -> int:
        """How many equal rows stand before the one at `position`."""
        return self._ordinals[position] if self._ordinals is not None else 0

    def row_id(self, position: int) -> str:
        """The identity of the row at `position`."""
        return f"{self.digest(position).hex()}:{self.ordinal(position)}"

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Where a row stands in the table."""
        return super().index(value, start, len(self) if stop is None else stop)

    def place(self, position: int) -> int:
        """The place in the output of the row at `position`."""
        return self._places[position] if self._places is not None else position

    def following(self) -> int:
        """The first place behind all that were given."""
        return max(self._places, default=-1) + 1 if self._places is not None else self._count

    def by_place(self) -> Sequence[int]:
        """The position of the row in each place, -1 where none is; places behind the last one are left out."""
        if self._places is None:
            return range(self._count)
        found = array("i", (-1).to_bytes(4, "little", signed=True)) * self.following()
        for position, place in enumerate(self._places):
            found[place] = position
        return found

    def same_rows(self, other: RowTable) -> bool:
        """Whether the rows of both, those that are gone left out, are the same in the same order."""
        mine = self.present
        return (
            mine == other.present
            and memoryview(self._digests)[: mine * DIGEST] == memoryview(other._digests)[: mine * DIGEST]
            and (self._ordinals is other._ordinals or all(self.ordinal(at) == other.ordinal(at) for at in range(mine)))
        )

    @property
    def present(self) -> int:
        """How many rows are not gone; those that are stand at the end."""
        return self._count - self._gone

    def ids(self) -> Iterator[str]:
        """The identities of all rows, in order."""
        for start in range(0, self._count, AT_ONCE):
            digests = self._digests[start * DIGEST : (start + AT_ONCE) * DIGEST].hex()
            for at in range(min(AT_ONCE, self._count - start)):
                yield f"{digests[2 * DIGEST * at : 2 * DIGEST * (at + 1)]}:{self.ordinal(start + at)}"

    def positions_in(self, other: RowTable) -> array[int]:
        """For each row of `other` where it stands here, -1 for one that does not."""
        found = array("i", (-1).to_bytes(4, "little", signed=True)) * len(other)
        for mine, theirs in zip(buckets(self._digests), buckets(other._digests), strict=True):
            places = {(bytes(self.digest(at)), self.ordinal(at)): at for at in mine}
            for at in theirs:
                found[at] = places.get((bytes(other.digest(at)), other.ordinal(at)), -1)
        return found

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, position: int) -> RowEntry: ...

    @overload
    def __getitem__(self, position: slice) -> list[RowEntry]: ...

    def __getitem__(self, position: int | slice) -> RowEntry | list[RowEntry]:
        if isinstance(position, slice):
            return [self[one] for one in range(*position.indices(len(self)))]
        if position < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(position)
        return RowEntry(self.row_id(position), self.place(position), position >= self.present)

    def __iter__(self) -> Iterator[RowEntry]:
        return (self[position] for position in range(len(self)))


def buckets(digests: bytes | bytearray) -> list[array[int]]:
    """The positions of hashes (16 bytes each), by the first byte of the hash: what is looked up among equal ones is
    looked up in a part of them, so that no dictionary of all rows is needed."""
    found = [array("I") for _ in range(256)]
    for position, first in enumerate(digests[::DIGEST]):
        found[first].append(position)
    return found


def ordinals(digests: bytes | bytearray) -> array[int]:
    """For each hash (16 bytes) how many equal ones stand before it."""
    found = array("I", bytes(4)) * (len(digests) // DIGEST)
    for bucket in buckets(digests):
        seen: dict[bytes, int] = {}
        for position in bucket:
            digest = bytes(digests[position * DIGEST : (position + 1) * DIGEST])
            found[position] = before = seen.get(digest, 0)
            seen[digest] = before + 1
    return found
