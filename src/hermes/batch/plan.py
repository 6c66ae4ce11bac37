"""What a run has to do: the rows of the dataset, laid against what the run knows and has done already.

What a row holds is not in the plan; it is read when the row's turn comes. Starts nothing.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import overload

import msgspec

from hermes.batch.dataset import Dataset, DatasetRow, Rows
from hermes.batch.identity import Changes, rollout_key
from hermes.batch.index import RecordIndex, Slots
from hermes.batch.rowtable import RowTable
from hermes.core.errors import UsageError

__all__ = ["Item", "Items", "Mark", "Plan", "compare", "plan_new", "plan_resume", "total_rollouts"]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Which rollout is to be run. `attempt` counts from 1 over all sessions; `toolsets` are those its row names."""

    key: str
    row_id: str
    index: int
    toolsets: tuple[str, ...] | None = None
    rollout: int = 0
    attempt: int = 1


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout to run, with its row."""

    key: str
    row_id: str
    index: int
    row: DatasetRow
    rollout: int = 0
    attempt: int = 1


class Items(Sequence[Item]):
    """Rollouts to be run, in dataset order, of a run of `rollouts` a row. Reading one reads its row; `marks` reads
    none. All rollouts of all rows take no memory, some of them 8 bytes each, and 4 more where one is run again."""

    def __init__(self, source: Rows, table: RowTable, rollouts: int, *, every: bool = False) -> None:
        self._source = source
        self._table = table
        self._size = rollouts
        self._numbers: Sequence[int] = range(table.present * rollouts) if every else array("Q")
        self._attempts: array[int] | None = None  # None: 1 for all

    def add(self, position: int, rollout: int, attempt: int = 1) -> None:
        """Append a rollout of the row at `position`."""
        assert isinstance(self._numbers, array)  # nothing can be added to all of them
        if attempt > 1 and self._attempts is None:
            self._attempts = array("I", (1).to_bytes(4, sys.byteorder)) * len(self._numbers)
        self._numbers.append(position * self._size + rollout)
        if self._attempts is not None:
            self._attempts.append(attempt)

    def _attempt(self, number: int) -> int:
        return 1 if self._attempts is None else self._attempts[number]

    def marks(self) -> Iterator[Mark]:
        """Which they are, in order."""
        for number, found in enumerate(self._numbers):
            position, rollout = divmod(found, self._size)
            row_id = self._table.row_id(position)
            yield Mark(
                key=rollout_key(row_id, rollout),
                row_id=row_id,
                index=self._table.place(position),
                toolsets=self._source.toolsets(position),
                rollout=rollout,
                attempt=self._attempt(number),
            )

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, number: int) -> Item: ...

    @overload
    def __getitem__(self, number: slice) -> list[Item]: ...

    def __getitem__(self, number: int | slice) -> Item | list[Item]:
        """Read an item. Raises OperatorError where its row is not what it was."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        position, rollout = divmod(self._numbers[number], self._size)
        row_id = self._table.row_id(position)
        return Item(
            key=rollout_key(row_id, rollout),
            row_id=row_id,
            index=self._table.place(position),
            row=self._source[position],
            rollout=rollout,
            attempt=self._attempt(number),
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`rows` is every row of the run with its fixed place, `items` what is to be run now, in dataset order; `lasting`
    counts failures that are left alone because the row would meet them again, `anew` are those of the items that are
    done already."""

    rows: RowTable
    items: Items
    changes: Changes = Changes()
    lasting: int = 0
    anew: Slots | None = None

    def total(self, rollouts: int, index: RecordIndex) -> int:
        """All rollouts of a run of so many `rollouts` a row."""
        return total_rollouts(self.rows, rollouts, index)


def total_rollouts(rows: RowTable, rollouts: int, index: RecordIndex) -> int:
    """Count the rollouts of a run of `rollouts` a row; of rows that are gone those that have ended count."""
    return rows.present * rollouts + index.ended_of(rows, range(rows.present, len(rows)))


def plan_new(dataset: Dataset, rollouts: int = 1) -> Plan:
    """Plan a run from its beginning: everything is to be run, the `rollouts` of a row one after the other."""
    rows = RowTable.of(dataset.rows.digests)
    return Plan(rows=rows, items=Items(dataset.rows, rows, rollouts, every=True))


def plan_resume(
    dataset: Dataset,
    known: RowTable,
    index: RecordIndex,
    *,
    rollouts: int = 1,
    accept_changes: bool = False,
    retry: Collection[str] = (),
    redo: Slots | None = None,
) -> Plan:
    """Plan what is left of a run of `rollouts` a row.

    Rollouts that are done stay done wherever they stand now. Failures are run again, except those that the same row
    would meet again, unless `retry` names their kind (or "all"). Those that are done and stand in `redo` are run again
    too. `index` follows the rows of the plan.

    Raises:
        UsageError: the dataset has changed and `accept_changes` is not set.
    """
    fresh = RowTable.of(dataset.rows.digests)
    changes = Changes()
    if not fresh.same_rows(known):
        before = known.positions_in(fresh)
        changes = compare(known, before)
        rows = _rows(fresh, known, before, index)
    else:
        rows = fresh.placed_as(known)
    if changes and not accept_changes:
        raise UsageError(
            f"{dataset.path} is not the dataset this run began with: {changes}. Give the old file, or "
            "--accept_changes, which keeps what is done and runs only what is new."
        )
    index.follow(rows)
    items = Items(dataset.rows, rows, rollouts)
    lasting, anew = 0, Slots(rollouts)
    for position in range(len(fresh)):
        for number in range(rollouts):
            ended = index.ended(rows, position, number)
            attempt = 1
            if ended is not None:
                if ended.outcome == "finished":
                    if redo is None or not redo.has(rows.place(position), number):
                        continue
                    anew.add(rows.place(position), number)
                if ended.lasting and not {"all", ended.reason} & set(retry):
                    lasting += 1
                    continue
                attempt = ended.attempt + 1
            items.add(position, number, attempt)
    return Plan(rows=rows, items=items, changes=changes, lasting=lasting, anew=anew if anew else None)


def compare(known: RowTable, before: array[int]) -> Changes:
    """What has changed since the rows `known`; `before` says of each row now where it stood among them, -1 for nowhere.
    Rows that were gone then are new."""
    there = bytearray(known.present)
    stayed = 0
    for position in before:
        if 0 <= position < known.present:
            there[position] = 1
            stayed += 1
    now = (position for position in before if 0 <= position < known.present)
    moved = sum(left != right for left, right in zip((at for at, here in enumerate(there) if here), now, strict=True))
    return Changes(added=len(before) - stayed, removed=known.present - stayed, moved=moved)


def _rows(fresh: RowTable, known: RowTable, before: array[int], index: RecordIndex) -> RowTable:
    """Every row of the run: those of the dataset in its order, new ones behind all places ever given, then those that
    have ended and are gone. `before` as in `compare`."""
    following = known.following()
    rows = RowTable()
    there = bytearray(len(known))
    for position, old in enumerate(before):
        if old >= 0:
            there[old] = 1
            rows.copy(fresh, position, known.place(old))
        else:
            rows.copy(fresh, position, following)
            following += 1
    for old, here in enumerate(there):
        if not here and index.ended_of(known, range(old, old + 1)):
            rows.copy(known, old, known.place(old), gone=True)
    return rows
