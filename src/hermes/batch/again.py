"""Merge a finished or stopped run again, with other filters: no model is asked, no rollout is run, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from hermes.batch.filter_settings import FilterSettings
from hermes.batch.folder import RunFolder
from hermes.batch.index import open_index
from hermes.batch.merge import merge
from hermes.batch.plan import total_rollouts
from hermes.batch.settings import check_run_name
from hermes.batch.statistics import Tally

__all__ = ["merge_again"]


def merge_again(
    data_dir: Path, run_name: str, filters: FilterSettings | None, wall: Callable[[], float] = time.time
) -> tuple[Tally, int]:
    """Make the merged files of a run anew and return (counts, pending); None keeps the filters it has.

    Raises:
        UsageError: there is no such run.
        TryLater: another process holds it.
        StoreFull, OperatorError: a file could not be written; the old ones stand.
    """
    folder = RunFolder(data_dir, check_run_name(run_name))
    meta = folder.require_meta()
    with folder.locked():
        if filters is not None and filters != meta.filters:
            meta = msgspec.structs.replace(meta, filters=filters)
            folder.write_meta(meta)
        rows, rollouts = folder.read_rows(), meta.settings.rollouts_per_prompt
        index = open_index(folder.records_path, rows, rollouts)
        total = total_rollouts(rows, rollouts, index)
        tally = merge(folder, meta, index, total, index.size, wall)
    ended = tally.kept + tally.rejected.total() + tally.failed.total()
    return tally, total - ended
