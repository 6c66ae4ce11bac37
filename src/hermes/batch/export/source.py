"""Reads the records of a run for an export: singly in the order of the dataset, or the rollouts of a row together.

What is kept and rejected follows the filters of the run's last merge, and only whole lines count. A reader holds one
record or one group in memory, never the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from hermes.batch.folder import RunFolder, RunMeta
from hermes.batch.index import Place, RecordIndex, open_index
from hermes.batch.merge import judged_records, offered_tools
from hermes.batch.record import Record

__all__ = ["RunSource", "open_run"]


class RunSource:
    """The records of one run. `tools` are the names of all tools offered anywhere in it, sorted."""

    def __init__(self, folder: RunFolder, meta: RunMeta, index: RecordIndex) -> None:
        self.folder = folder
        self.meta = meta
        self._index = index
        self.tools = tuple(offered_tools(meta, index))

    def kept(self) -> Iterator[Record]:
        """Yield the kept rollouts."""
        for record in self._read(self._index.places(finished=True)):
            if not record.head.reason:
                yield record

    def groups(self) -> Iterator[list[Record]]:
        """Yield, for each row of the dataset that has any, its ended rollouts: kept, rejected and failed ones."""
        records = self._read(self._index.places())
        for _, group in groupby(records, key=lambda item: (item.head.index, item.head.key.rpartition(":")[0])):
            yield list(group)

    def _read(self, places: Iterator[Place]) -> Iterator[Record]:
        return judged_records(self.folder, places, self.meta.filters)


def open_run(data_dir: Path, run_name: str) -> RunSource:
    """Open a run for reading; `run_name` may also be the path of a run's folder.

    Raises:
        UsageError: there is no such run; the runs there are are named.
        OperatorError: its record cannot be read.
    """
    given = Path(run_name)
    folder = RunFolder(given.parent, given.name) if given.parent != Path(".") else RunFolder(data_dir, run_name)
    meta = folder.require_meta()
    index = open_index(folder.records_path, folder.read_rows(), meta.settings.rollouts_per_prompt)
    return RunSource(folder, meta, index)
