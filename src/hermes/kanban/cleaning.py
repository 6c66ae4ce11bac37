"""What a board keeps of work that ended long ago, and removing the rest: events, logs, scratch folders, files of runs.

Cards, runs, comments and attachments stay. Nothing that is open loses anything. Blocking.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hermes.kanban.board import Board
from hermes.kanban.placing import remove_scratch
from hermes.kanban.reading import CardFilter
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
    wanted = CardFilter(status=("done", "archived"), archived=True)
    ended = {card.id: card.completed_at or card.updated_at for card in board.cards(wanted)}
    logs, log_bytes = (0, 0) if log_days is None else _logs(folder / "logs", ended, time.time() - log_days * _DAY)
    return Cleaned(
        rows=0 if event_days is None else board.prune(keep_days=event_days),
        logs=logs,
        log_bytes=log_bytes,
        folders=remove_scratch(folder, ended, board.clock()),
        run_files=_run_files(board, folder / "runs"),
    )


def _logs(folder: Path, ended: Mapping[str, float], before: float) -> tuple[int, int]:
    """Remove logs of ended cards that nobody wrote since; how many, and their bytes."""
    count, size = 0, 0
    for path in sorted(folder.glob("t_*.log*")):
        found = _status(path)
        if found is not None and path.name.partition(".")[0] in ended and found.st_mtime < before:
            path.unlink(missing_ok=True)
            count, size = count + 1, size + found.st_size
    return count, size


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
