"""What a board keeps of work that ended long ago, and removing the rest: events, logs, scratch folders, files of runs.

Cards, runs, comments and attachments stay. Nothing that is open loses anything. Blocking.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from hermes.kanban.board import Board
from hermes.kanban.placing import remove_scratch
from hermes.kanban.run_process import RunFiles

__all__ = ["Cleaned", "clean"]

#: Seconds after which files of a run are too old to belong to one that is just being started.
_FRESH = 3600.0
_DAY = 86_400.0


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed: rows of the database, log files with their bytes, cards' scratch folders, files of runs."""

    rows: int = 0
    logs: int = 0
    log_bytes: int = 0
    folders: list[str] = []
    run_files: int = 0


def clean(board: Board, folder: Path, *, event_days: float | None, log_days: float | None) -> Cleaned:
    """Remove what is older than so many days (None: nothing of that kind); `folder` is the board's on this machine."""
    # A board keeps its ended cards for ever: only those are looked at of which something stands here.
    old = {} if log_days is None else _old_logs(folder / "logs", time.time() - log_days * _DAY)
    scratch = [path.name for path in (folder / "workspaces").glob("t_*")]
    ended = board.ended({*scratch, *(_card_of(path) for path in old)})
    logs, log_bytes = _remove_logs(old, ended)
    return Cleaned(
        rows=0 if event_days is None else board.prune(keep_days=event_days),
        logs=logs,
        log_bytes=log_bytes,
        folders=remove_scratch(folder, {name: ended[name] for name in scratch if name in ended}, board.clock()),
        run_files=_run_files(board, folder / "runs"),
    )


def _card_of(path: Path) -> str:
    return path.name.partition(".")[0]


def _old_logs(folder: Path, before: float) -> dict[Path, int]:
    """The logs that nobody wrote since, with their bytes."""
    found = {path: _status(path) for path in sorted(folder.glob("t_*.log*"))}
    return {path: status.st_size for path, status in found.items() if status is not None and status.st_mtime < before}


def _remove_logs(old: Mapping[Path, int], ended: Collection[str]) -> tuple[int, int]:
    """Remove those of ended cards; how many, and their bytes."""
    gone = {path: size for path, size in old.items() if _card_of(path) in ended}
    for path in gone:
        path.unlink(missing_ok=True)
    return len(gone), sum(gone.values())


def _status(path: Path) -> os.stat_result | None:
    """None where somebody who cleans at the same time, or ends a run, has just removed it."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _run_files(board: Board, folder: Path) -> int:
    """Remove what is left of runs that are over."""
    files, living = RunFiles(folder), {run.id for run in board.live_runs()}
    count = 0
    for path in [*folder.glob("*.lock"), *folder.glob("*.exit")]:
        found = _status(path)
        old = found is not None and time.time() - found.st_mtime > _FRESH
        if old and path.stem not in living and not files.held(path.stem):
            path.unlink(missing_ok=True)
            count += 1
    return count
