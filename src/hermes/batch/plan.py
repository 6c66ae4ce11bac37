"""What a run has to do: the rows of the dataset, laid against what the run knows and has done already.

What a row holds is not in the plan; it is read when the row's turn comes. Starts nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import overload

import msgspec

from hermes.batch.dataset import Dataset, DatasetRow, Rows
from hermes.batch.identity import Changes, compare, rollout_key
from hermes.batch.record import RecordIndex
from hermes.batch.rowtable import RowEntry, RowTable
from hermes.core.errors import UsageError

__all__ = ["Item", "Items", "Mark", "Plan", "plan_new", "plan_resume", "total_rollouts"]


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
    """Rollouts to be run, in dataset order. Reading one reads its row; `marks` reads none."""

    def __init__(self, source: Rows, table: RowTable) -> None:
        self._source = source
        self._table = table
        self._positions = array("Q")
        self._rollouts = array("L")
        self._attempts = array("L")

    def add(self, position: int, rollout: int, attempt: int = 1) -> None:
        """Append a rollout of the row at `position`."""
        self._positions.append(position)
        self._rollouts.append(rollout)
        self._attempts.append(attempt)

    def marks(self) -> Iterator[Mark]:
        """Which they are, in order."""
        for position, rollout, attempt in zip(self._positions, self._rollouts, self._attempts, strict=True):
            row_id = self._table.row_id(position)
            yield Mark(
                key=rollout_key(row_id, rollout),
                row_id=row_id,
                index=self._table.place(position),
                toolsets=self._source.toolsets(position),
                rollout=rollout,
                attempt=attempt,
            )

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, number: int) -> Item: ...

    @overload
    def __getitem__(self, number: slice) -> list[Item]: ...

    def __getitem__(self, number: int | slice) -> Item | list[Item]:
        """Read an item. Raises OperatorError where its row is not what it was."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        position, rollout = self._positions[number], self._rollouts[number]
        row_id = self._table.row_id(position)
        return Item(
            key=rollout_key(row_id, rollout),
            row_id=row_id,
            index=self._table.place(position),
            row=self._source[position],
            rollout=rollout,
            attempt=self._attempts[number],
        )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`rows` is every row of the run with its fixed place, `items` what is to be run now, in dataset order; `lasting`
    counts failures that are left alone because the row would meet them again."""

    rows: RowTable
    items: Items
    changes: Changes = Changes()
    lasting: int = 0

    def total(self, rollouts: int, index: RecordIndex) -> int:
        """All rollouts of a run of so many `rollouts` a row."""
        return total_rollouts(self.rows, rollouts, index)


def total_rollouts(rows: RowTable, rollouts: int, index: RecordIndex) -> int:
    """Count the rollouts of a run of `rollouts` a row; of rows that are gone those that have ended count."""
    gone = rows.gone_ids()
    ended = sum(1 for key in index.places if key.rpartition(":")[0] in gone) if gone else 0
    return rows.present * rollouts + ended


def plan_new(dataset: Dataset, rollouts: int = 1) -> Plan:
    """Plan a run from its beginning: everything is to be run, the `rollouts` of a row one after the other."""
    rows = RowTable.of(dataset.rows.digests)
    items = Items(dataset.rows, rows)
    for position in range(len(rows)):
        for number in range(rollouts):
            items.add(position, number)
    return Plan(rows=rows, items=items)


def plan_resume(
    dataset: Dataset,
    known: RowTable,
    index: RecordIndex,
    *,
    rollouts: int = 1,
    accept_changes: bool = False,
    retry: Collection[str] = (),
    redo: Collection[str] = (),
) -> Plan:
    """Plan what is left of a run of `rollouts` a row.

    Rollouts that are done stay done wherever they stand now. Failures are run again, except those that the same row
    would meet again, unless `retry` names their kind (or "all"). Those that are done and whose keys are in `redo` are
    run again too.

    Raises:
        UsageError: the dataset has changed and `accept_changes` is not set.
    """
    fresh = RowTable.of(dataset.rows.digests)
    rows, changes = known, Changes()
    if not fresh.same_rows(known):
        changes = compare([entry.row_id for entry in known if not entry.gone], [entry.row_id for entry in fresh])
        rows = _rows(fresh, known, index)
    if changes and not accept_changes:
        raise UsageError(
            f"{dataset.path} is not the dataset this run began with: {changes}. Give the old file, or "
            "--accept_changes, which keeps what is done and runs only what is new."
        )
    items = Items(dataset.rows, rows)
    lasting = 0
    for position in range(len(fresh)):
        row_id = rows.row_id(position)
        for number in range(rollouts):
            place = index.places.get(rollout_key(row_id, number))
            attempt = 1
            if place is not None:
                if place.head.outcome == "finished" and place.head.key not in redo:
                    continue
                if place.head.lasting and not {"all", place.head.reason} & set(retry):
                    lasting += 1
                    continue
                attempt = place.head.attempt + 1
            items.add(position, number, attempt)
    return Plan(rows=rows, items=items, changes=changes, lasting=lasting)


def _rows(fresh: RowTable, known: RowTable, index: RecordIndex) -> RowTable:
    """Every row of the run: those of the dataset in its order, new ones behind all places ever given, then those that
    have ended and are gone."""
    places = {entry.row_id: entry.index for entry in known}
    following = max(places.values(), default=-1) + 1
    rows = RowTable()
    present = set()
    for row in fresh:
        present.add(row.row_id)
        if row.row_id not in places:
            places[row.row_id] = following
            following += 1
        rows.add(RowEntry(row.row_id, places[row.row_id]))
    begun = {key.rpartition(":")[0] for key in index.places}
    for entry in known:
        if entry.row_id not in present and entry.row_id in begun:
            rows.add(RowEntry(entry.row_id, entry.index, True))
    return rows
