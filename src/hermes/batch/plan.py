"""What a run has to do: the rows of the dataset, laid against what the run knows and has done already.

Pure: reads no file and starts nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from hermes.batch.dataset import Dataset, DatasetRow
from hermes.batch.folder import RowEntry
from hermes.batch.identity import Changes, compare, rollout_key, row_hash, row_ids
from hermes.batch.record import RecordIndex
from hermes.core.errors import UsageError

__all__ = ["Item", "Plan", "plan_new", "plan_resume", "total_rollouts"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout to run. `attempt` counts from 1 over all sessions."""

    key: str
    row_id: str
    index: int
    row: DatasetRow
    rollout: int = 0
    attempt: int = 1


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`rows` is every row of the run with its fixed place, `items` what is to be run now, in dataset order; `lasting`
    counts failures that are left alone because the row would meet them again."""

    rows: tuple[RowEntry, ...]
    items: tuple[Item, ...]
    changes: Changes = Changes()
    lasting: int = 0

    def total(self, rollouts: int, index: RecordIndex) -> int:
        """All rollouts of a run of so many `rollouts` a row."""
        return total_rollouts(self.rows, rollouts, index)


def total_rollouts(rows: Sequence[RowEntry], rollouts: int, index: RecordIndex) -> int:
    """Count the rollouts of a run of `rollouts` a row; of rows that are gone those that have ended count."""
    gone = {row.row_id for row in rows if row.gone}
    ended = sum(1 for key in index.places if key.rpartition(":")[0] in gone) if gone else 0
    return (len(rows) - len(gone)) * rollouts + ended


def plan_new(dataset: Dataset, rollouts: int = 1) -> Plan:
    """Plan a run from its beginning: everything is to be run, the `rollouts` of a row one after the other."""
    ids = row_ids(row_hash(row.source) for row in dataset.rows)
    rows = tuple(RowEntry(row_id, index) for index, row_id in enumerate(ids))
    items = tuple(
        Item(key=rollout_key(entry.row_id, number), row_id=entry.row_id, index=entry.index, row=row, rollout=number)
        for entry, row in zip(rows, dataset.rows, strict=True)
        for number in range(rollouts)
    )
    return Plan(rows=rows, items=items)


def plan_resume(
    dataset: Dataset,
    known: Sequence[RowEntry],
    index: RecordIndex,
    *,
    rollouts: int = 1,
    accept_changes: bool = False,
    retry: Collection[str] = (),
    redo: Collection[str] = (),
) -> Plan:
    """Plan what is left of a run of `rollouts` a row.

    Rollouts that are done stay done wherever they stand now. Failures are run again, except those that the same row
    would meet again, unless `retry` names their kind (or "all"). Those that are
    done and whose keys are in `redo` are run again too.

    Raises:
        UsageError: the dataset has changed and `accept_changes` is not set.
    """
    ids = row_ids(row_hash(row.source) for row in dataset.rows)
    changes = compare([entry.row_id for entry in known if not entry.gone], ids)
    if changes and not accept_changes:
        raise UsageError(
            f"{dataset.path} is not the dataset this run began with: {changes}. Give the old file, or "
            "--accept_changes, which keeps what is done and runs only what is new."
        )
    rows = _rows(ids, known, index)
    places = {entry.row_id: entry.index for entry in rows}
    items: list[Item] = []
    lasting = 0
    wanted = (
        (row_id, row, number) for row_id, row in zip(ids, dataset.rows, strict=True) for number in range(rollouts)
    )
    for row_id, row, number in wanted:
        key = rollout_key(row_id, number)
        place = index.places.get(key)
        attempt = 1
        if place is not None:
            if place.head.outcome == "finished" and key not in redo:
                continue
            if place.head.lasting and not {"all", place.head.reason} & set(retry):
                lasting += 1
                continue
            attempt = place.head.attempt + 1
        items.append(Item(key=key, row_id=row_id, index=places[row_id], row=row, rollout=number, attempt=attempt))
    return Plan(rows=tuple(rows), items=tuple(items), changes=changes, lasting=lasting)


def _rows(ids: Sequence[str], known: Sequence[RowEntry], index: RecordIndex) -> list[RowEntry]:
    """Every row of the run: those of the dataset in its order, new ones behind all places ever given, then those that
    have ended and are gone."""
    places = {entry.row_id: entry.index for entry in known}
    following = max(places.values(), default=-1) + 1
    rows = []
    for row_id in ids:
        if row_id not in places:
            places[row_id] = following
            following += 1
        rows.append(RowEntry(row_id, places[row_id]))
    present = set(ids)
    begun = {key.rpartition(":")[0] for key in index.places}
    ended = (entry for entry in known if entry.row_id not in present and entry.row_id in begun)
    return [*rows, *(RowEntry(entry.row_id, entry.index, True) for entry in ended)]
