"""The rows a run knows, in few bytes each: identity and place, never their content.

A million rows take 41 MB here; as values of their own they would take half a gigabyte.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import msgspec

__all__ = ["RowEntry", "RowTable", "ordinals"]

#: Bytes of a row's hash.
DIGEST = 16


class RowEntry(msgspec.Struct, frozen=True, gc=False):
    """A row the run knows: its identity and its place in the output, which never changes. `gone` marks a row that has
    ended and stands in the dataset no more."""

    row_id: str
    index: int
    gone: bool = False


class RowTable(Sequence[RowEntry]):
    """Rows in order. What is read from it is made for the reader."""

    def __init__(self, entries: Iterable[RowEntry] = ()) -> None:
        self._digests = bytearray()
        self._ordinals = array("Q")
        self._indexes = array("Q")
        self._gone = bytearray()
        for entry in entries:
            self.add(entry)

    def add(self, entry: RowEntry) -> None:
        """Append a row."""
        digest, _, ordinal = entry.row_id.partition(":")
        self._digests += bytes.fromhex(digest)
        self._ordinals.append(int(ordinal))
        self._indexes.append(entry.index)
        self._gone.append(entry.gone)

    @classmethod
    def of(cls, digests: bytes | bytearray) -> RowTable:
        """The table of a new run: the rows with these hashes (16 bytes each), each in the place where it stands."""
        table = cls()
        table._digests = bytearray(digests)
        table._ordinals = ordinals(digests)
        count = len(table._ordinals)
        table._indexes = array("Q", range(count))
        table._gone = bytearray(count)
        return table

    def row_id(self, position: int) -> str:
        """The identity of the row at `position`."""
        digest = self._digests[position * DIGEST : (position + 1) * DIGEST]
        return f"{digest.hex()}:{self._ordinals[position]}"

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Where a row stands in the table."""
        return super().index(value, start, len(self) if stop is None else stop)

    def place(self, position: int) -> int:
        """The place in the output of the row at `position`."""
        return self._indexes[position]

    def same_rows(self, other: RowTable) -> bool:
        """Whether the rows of both, those that are gone left out, are the same in the same order."""
        mine, theirs = self.present, other.present
        return (
            self._digests[: mine * DIGEST] == other._digests[: theirs * DIGEST]
            and self._ordinals[:mine] == other._ordinals[:theirs]
        )

    @property
    def present(self) -> int:
        """How many rows are not gone; those that are stand at the end."""
        return len(self._gone) - sum(self._gone)

    def gone_ids(self) -> set[str]:
        """The identities of the rows that are gone."""
        return {self.row_id(position) for position in range(self.present, len(self))}

    def ids(self) -> Iterator[str]:
        """The identities of all rows, in order."""
        digests = self._digests.hex()
        return (
            f"{digests[2 * DIGEST * at : 2 * DIGEST * (at + 1)]}:{ordinal}" for at, ordinal in enumerate(self._ordinals)
        )

    def __len__(self) -> int:
        return len(self._gone)

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
        return RowEntry(self.row_id(position), self._indexes[position], bool(self._gone[position]))

    def __iter__(self) -> Iterator[RowEntry]:
        return (self[position] for position in range(len(self)))


def ordinals(digests: bytes | bytearray) -> array[int]:
    """For each hash (16 bytes) how many equal ones stand before it."""
    count = len(digests) // DIGEST
    found = array("Q", bytes(8 * count))
    if count < 2:
        return found
    keys = [bytes(digests[start : start + DIGEST]) for start in range(0, len(digests), DIGEST)]
    order = sorted(range(count), key=keys.__getitem__)  # equal ones stay in their order
    for before, here in zip(order, order[1:], strict=False):
        if keys[before] == keys[here]:
            found[here] = found[before] + 1
    return found
