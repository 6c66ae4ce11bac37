"""What goes after a while: sessions with their rows and files, and live transcripts.

Unfinished work and results nobody saw never go by age. Rows are deleted first and files after, so that a process that
stops in between leaves files without a session, which the next time removes. Only folders named like a session are
looked at: a home may be shared with another program.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from hermes.config import Home
from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import HermesError, StoreError
from hermes.observe.transcript import LIVE
from hermes.store.ops import DeleteSession, SessionRow, Store, Unit

__all__ = ["DAY", "Keep", "Pruned", "Retention", "disk_size"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

DAY = 86_400.0
_SESSION = re.compile(r"\d{8}_\d{6}_[0-9a-f]{6}")
#: Sessions that go in one run at start-up, and the seconds it may take.
_MOST_AT_START, _SECONDS_AT_START = 200, 60.0
#: Seconds between two sessions, so that the work of a running program comes first.
_PAUSE = 0.05


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """How many days sessions (None: for ever) and transcripts stay."""

    sessions: float | None
    transcripts: float


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What went, or would go. `folders` are files without a session; `bytes` counts files, not rows. `failed` are
    folders that could not be removed. `unfinished` and `unseen` are tasks and results that keep their sessions."""

    sessions: tuple[SessionRow, ...] = ()
    transcripts: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    bytes: int = 0
    unfinished: int = 0
    unseen: int = 0


class _Tally:
    def __init__(self) -> None:
        self.sessions: list[SessionRow] = []
        self.transcripts: list[str] = []
        self.folders: list[str] = []
        self.failed: list[str] = []
        self.bytes = 0


class Retention:
    """Keeps the house of one home. `now` returns seconds since the epoch."""

    def __init__(self, store: Store, home: Home, *, now: Callable[[], float], hold: Hold = NO_HOLD) -> None:
        self._store = store
        self._tasks = home.tasks_dir
        self._live = home.path.joinpath(*LIVE)
        self._marker = home.path / "cache" / "last-prune"
        self._now = now
        self._hold = hold

    def folders(self, session_id: str) -> list[Path]:
        """Where files of a session may stand."""
        if Path(session_id).name != session_id:
            return []
        return [self._tasks / session_id, self._live / session_id]

    async def size(self, session_id: str) -> int:
        """Bytes of a session's files."""
        return await self._in_thread(lambda: sum(disk_size(folder) for folder in self.folders(session_id)))

    async def delete(self, session_id: str, *, unfinished: bool = False) -> tuple[int, list[str]]:
        """Delete a session with its files; returns (bytes of files, folders that could not be removed).

        Raises:
            StoreError: it has unfinished work or an unseen result, and `unfinished` is not set. Nothing is deleted.
        """
        await self._store.submit(Unit(ops=(DeleteSession(session_id=session_id, unfinished=unfinished),))).wait()
        tally = _Tally()
        await self._in_thread(lambda: _remove(self.folders(session_id), tally))
        return tally.bytes, tally.failed

    async def prune(self, keep: Keep, *, dry_run: bool = False, most: int = 100_000, pause: float = 0.0) -> Pruned:
        """Remove what is old, at most `most` sessions; with `dry_run` only tell.

        Raises:
            StoreError: the journal cannot be read or written.
        """
        now, tally = self._now(), _Tally()
        if keep.sessions is not None:
            for row in await self._store.stale_sessions(now - keep.sessions * DAY, most):
                await self._let_go(row, tally, dry_run)
                if pause:
                    await anyio.sleep(pause)
            await self._orphans(now - keep.sessions * DAY, tally, dry_run)
        # Where none are written any more, those of a program that still runs keep a day.
        await self._transcripts(now - max(1.0, keep.transcripts) * DAY, tally, dry_run)
        counts = await self._store.counts()
        return Pruned(
            sessions=tuple(tally.sessions),
            transcripts=tuple(tally.transcripts),
            folders=tuple(tally.folders),
            failed=tuple(tally.failed),
            bytes=tally.bytes,
            unfinished=counts.unfinished,
            unseen=counts.unseen,
        )

    async def daily(self, keep: Keep) -> Pruned | None:
        """Prune at most once a day, within bounds; what fails is logged. None where nothing was due or it failed."""
        try:
            if not await self._in_thread(self._claim):
                return None
            with anyio.move_on_after(_SECONDS_AT_START):
                return await self.prune(keep, most=_MOST_AT_START, pause=_PAUSE)
        except (HermesError, OSError) as error:
            _log.warning("old sessions were not removed: %s", error)
        return None

    async def _let_go(self, row: SessionRow, tally: _Tally, dry_run: bool) -> None:
        if dry_run:
            tally.bytes += await self.size(row.session_id)
        else:
            try:
                size, failed = await self.delete(row.session_id)
            except StoreError as error:
                await self._store.flush()  # raises where the journal itself is broken
                _log.info("session %s stays: %s", row.session_id, error)
                return
            tally.bytes += size
            tally.failed += failed
        tally.sessions.append(row)

    async def _orphans(self, before: float, tally: _Tally, dry_run: bool) -> None:
        for folder in await self._in_thread(lambda: _old(self._tasks, before)):
            if await self._store.session(folder.name) is None:
                await self._in_thread(partial(_remove, [folder], tally, tally.folders, dry_run))

    async def _transcripts(self, before: float, tally: _Tally, dry_run: bool) -> None:
        await self._in_thread(lambda: _remove(_old(self._live, before), tally, tally.transcripts, dry_run))

    def _claim(self) -> bool:
        now = self._now()
        try:
            if 0 <= now - self._marker.stat().st_mtime < DAY:
                return False
        except FileNotFoundError:
            self._marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._marker.touch(mode=0o600)
        os.utime(self._marker, (now, now))
        return True

    async def _in_thread(self, job: Callable[[], _T]) -> _T:
        with held(self._hold):
            return await anyio.to_thread.run_sync(job)


def disk_size(path: Path) -> int:
    """Bytes of a file, or of all files under a folder; 0 where there is nothing."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size if path.exists() else 0
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # a running program removed it meanwhile
    return total


def _old(root: Path, before: float) -> list[Path]:
    """Folders of sessions under `root` in which nothing changed since `before`, down to their tasks' folders."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for entry in entries:
        if not _SESSION.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
            continue
        newest = entry.stat(follow_symlinks=False).st_mtime
        with os.scandir(entry.path) as inside:
            newest = max([newest, *(inner.stat(follow_symlinks=False).st_mtime for inner in inside)])
        if newest < before:
            found.append(Path(entry.path))
    return found


def _remove(folders: Iterable[Path], tally: _Tally, gone: list[str] | None = None, dry_run: bool = False) -> None:
    """Remove folders that are there; links are left alone."""
    for folder in folders:
        if folder.is_symlink() or not folder.is_dir():
            continue
        size = disk_size(folder)
        try:
            if not dry_run:
                shutil.rmtree(folder)
        except OSError as error:
            _log.warning("%s cannot be removed: %s", folder, error.strerror or error)
            tally.failed.append(str(folder))
            continue
        tally.bytes += size
        if gone is not None:
            gone.append(str(folder))
