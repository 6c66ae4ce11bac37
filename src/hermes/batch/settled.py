"""Whether the files of a run are as its last session left them: then nothing of a finished run has to be looked
through, or made, again. Judges by the times of the files; reads none of the rows."""

from __future__ import annotations

import os
from collections import Counter
from itertools import chain

import msgspec

from hermes.batch.checkpoint import is_damaged
from hermes.batch.folder import RunFolder, RunMeta
from hermes.batch.merge import MERGED
from hermes.batch.progress import Progress

__all__ = ["is_settled", "take_counts"]

#: What every session leaves at its end, the last of them written last.
_LEFT = (*MERGED, "statistics.json", "manifest.json", "report.html", "checkpoint.json")


class _Counts(msgspec.Struct, frozen=True):
    kept: int
    rejected_by_reason: dict[str, int]
    failed_by_kind: dict[str, int]


def is_settled(folder: RunFolder, meta: RunMeta) -> bool:
    """Whether the last session came to its end, left every file, and nobody has touched records or rows since."""
    if is_damaged(folder.path) or not meta.sessions or meta.sessions[-1].ended_at is None:
        return False
    try:
        left = min(os.stat(folder.path / name).st_mtime_ns for name in _LEFT)
        batches = (folder.batch_path(number) for number in folder.batch_numbers())
        sources = chain((folder.records_path, folder.rows_path), batches)
        return all(os.stat(path).st_mtime_ns <= left for path in sources)
    except FileNotFoundError:
        return False


def take_counts(folder: RunFolder, progress: Progress) -> bool:
    """Take the counts of the last session over, its filters included; False where they cannot be read."""
    try:
        counts = msgspec.json.decode((folder.path / "statistics.json").read_bytes(), type=_Counts)
    except (OSError, msgspec.DecodeError):
        return False
    progress.kept = counts.kept
    progress.rejected, progress.failed = Counter(counts.rejected_by_reason), Counter(counts.failed_by_kind)
    return True
