"""The end of every run, however it ended: the merged files, the statistics and the checkpoint, made anew from the
records and put in place as whole files. The quality filters act here and only here; raw rows stay in the batch files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from hermes.batch.checkpoint import checkpoint, write_checkpoint
from hermes.batch.filter_settings import FilterSettings
from hermes.batch.filters import Filters
from hermes.batch.folder import RunFolder, RunMeta, replace_file, write_errors
from hermes.batch.index import Place, RecordIndex
from hermes.batch.manifest import ManifestFold, write_manifest
from hermes.batch.record import Record, RecordFile
from hermes.batch.report import ReportFold, write_report
from hermes.batch.statistics import Tally
from hermes.batch.trajectory import build_row, child_rows
from hermes.core.codec import encode_json

__all__ = ["MERGED", "judged_records", "merge", "offered_tools"]

#: The files of every ended run, whatever became of its rows.
MERGED = ("trajectories.jsonl", "rejected.jsonl", "failed.jsonl")
CHILDREN = "children.jsonl"


def offered_tools(meta: RunMeta, index: RecordIndex) -> list[str]:
    """Return the names of all tools offered anywhere in the run, sorted."""
    return sorted({*meta.tools, *index.offered()})


def merge(
    folder: RunFolder,
    meta: RunMeta,
    index: RecordIndex,
    total: int,
    earlier: int,
    clock: Callable[[], float],
) -> Tally:
    """Write the merged files, statistics and checkpoint; return the counts, taken after the filters.

    `total` counts the rollouts of the run, the first `earlier` bytes of the records are
    older than this session. `clock` gives seconds since
    the epoch.

    Raises:
        StoreFull, OperatorError: a file could not be written; the old ones stand.
    """
    tools = offered_tools(meta, index)
    tally, manifest, page = Tally(), ManifestFold(), ReportFold()
    with write_errors(folder.path), _Outputs(folder.path) as outputs:
        for record in judged_records(folder, index.places(), meta.filters):
            tally.add(record)
            manifest.add(record)
            page.add(record)
            row = build_row(record, tools, meta.settings.batch_size)
            head = record.head
            if head.outcome == "failed":
                outputs.write("failed.jsonl", {**row, "reason": head.reason, "detail": head.detail})
            elif head.reason:
                outputs.write("rejected.jsonl", {**row, "reason": head.reason, "detail": head.detail})
            else:
                outputs.write("trajectories.jsonl", row)
            for child in child_rows(record):
                outputs.write(CHILDREN, child)
        outputs.keep()
    now = clock()
    report = tally.report(meta, total, tools, now)
    replace_file(folder.path / "statistics.json", [msgspec.json.format(encode_json(report), indent=2) + b"\n"])
    write_manifest(folder, meta, manifest, tools)
    ended = tally.kept + tally.rejected.total() + tally.failed.total()
    write_report(folder, meta, tally, page, total - ended)
    write_checkpoint(folder.path, checkpoint(meta.run_name, index, meta.settings.batch_size, earlier, now))
    return tally


def judged_records(folder: RunFolder, places: Iterable[Place], settings: FilterSettings) -> Iterator[Record]:
    """Read the records at `places`, filtered again: the rules may have changed since they were written."""
    with RecordFile(folder.records_path) as records, Filters(settings) as filters:
        for place in places:
            yield _judged(records.read(place), filters)


def _judged(record: Record, filters: Filters) -> Record:
    if record.head.outcome == "failed":
        return record
    rejection = filters.judge(record)
    reason, detail = ("", "") if rejection is None else (rejection.reason, rejection.detail)
    return msgspec.structs.replace(record, head=msgspec.structs.replace(record.head, reason=reason, detail=detail))


class _Outputs:
    """The merged files under temporary names until `keep`; children have a file only if there are any."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[str, BinaryIO] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Outputs:
        for name in MERGED:
            self._open(name)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stack.close()  # writes what is buffered, which a full disk refuses
        finally:
            for name in self._files:
                self._temporary(name).unlink(missing_ok=True)

    def _temporary(self, name: str) -> Path:
        return self._path / f".{name}.tmp"

    def _open(self, name: str) -> BinaryIO:
        file = self._stack.enter_context(self._temporary(name).open("wb"))
        self._files[name] = file
        return file

    def write(self, name: str, row: dict[str, Any]) -> None:
        (self._files.get(name) or self._open(name)).write(encode_json(row) + b"\n")

    def keep(self) -> None:
        for file in self._files.values():
            file.flush()
            os.fdatasync(file.fileno())
        for name in self._files:
            self._temporary(name).replace(self._path / name)
