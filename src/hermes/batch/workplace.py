"""Where the rollouts of a run work on this machine: each is given a workspace of its own before it begins, and nothing
of one stays once its record is synced.

Which rollouts there are is not known here, nor what a copy is made of (`workspace`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from hermes.batch.checkout import borrowed, remark
from hermes.batch.folder import RunFolder
from hermes.batch.identity import session_name
from hermes.batch.rollout import RolloutRequest
from hermes.batch.settings import BatchSettings
from hermes.batch.threads import Threads
from hermes.batch.workspace import prepare, remove
from hermes.core.clock import NO_HOLD, Hold

__all__ = ["Workplace"]

#: Threads that copy and remove workspaces, apart from those in which tools block.
COPY_THREADS = 4
#: Directories of rows that something is said about.
MOST_NOTED = 20


class Workplace:
    """Workspaces below `folder`, as the settings of the run want them; `note` is told what of a `cwd` is left out."""

    def __init__(
        self,
        folder: RunFolder,
        settings: BatchSettings,
        hold: Hold = NO_HOLD,
        note: Callable[[str], object] | None = None,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._checkout = settings.cwd_mode == "auto"
        self._note = note
        self._noted: set[str] = set()
        self._threads = Threads(COPY_THREADS, hold)
        self._ready: set[Path] = set()  # made, and nobody has worked there

    def make_ready(self, places: Sequence[tuple[int, int]]) -> None:
        """Make empty workspaces, by index and rollout, that are about to be entered (blocking): a change of threads
        for each of them cost more than the folder. One that is there, or cannot be made, is left to `enter`."""
        if self._settings.keep_workspaces:  # none is to be found of a row that did not begin
            return
        with contextlib.suppress(OSError):
            self._folder.workspaces.mkdir(parents=True, exist_ok=True)
            for index, rollout in places:
                target = self._folder.workspace(index, rollout)
                with contextlib.suppress(FileExistsError):
                    os.mkdir(target)
                    self._ready.add(target)

    async def enter(self, request: RolloutRequest, begun: Collection[str]) -> RolloutRequest:
        """Return the request with a workspace that is there; a rollout among those `begun` goes on in what it had.

        Raises:
            WorkspaceError: none can be made.
        """
        inplace = self._settings.cwd_mode == "inplace" and request.cwd is not None
        target = self._folder.workspace(request.index, request.rollout)
        if target in self._ready:
            self._ready.discard(target)
            if request.cwd is None:
                return msgspec.structs.replace(request, workspace=str(target))
        if not inplace and session_name(request.key, request.attempt) in begun and target.exists():
            return await self._threads.run(_working, request, target)
        made = await self._threads.run(
            lambda: _working(
                request,
                prepare(
                    request.cwd,
                    target,
                    self._folder.path,
                    inplace=inplace,
                    most_mb=self._settings.max_copy_mb,
                    checkout=self._checkout,
                ),
            )
        )
        await self._remark(request.cwd)
        return made

    async def _remark(self, cwd: str | None) -> None:
        note = self._note
        if note is None or not self._checkout or cwd is None or cwd in self._noted or len(self._noted) >= MOST_NOTED:
            return
        self._noted.add(cwd)
        said = await self._threads.run(remark, Path(cwd))
        if said:
            note(said)

    def left_by(self, key: str, attempt: int, index: int, rollout: int) -> list[Path]:
        """What an ended rollout would have gone on with, and what its shells kept, which would fill the disk in a long
        run."""
        gone = [self._folder.state / session_name(key, attempt)]
        return gone if self._settings.keep_workspaces else [*gone, self._folder.workspace(index, rollout)]

    async def clear(self, gone: Sequence[Path]) -> None:
        """Remove folders that nobody works in any more."""
        if gone:
            await self._threads.run(remove, *gone)


def _working(request: RolloutRequest, workspace: Path) -> RolloutRequest:
    return msgspec.structs.replace(request, workspace=str(workspace), borrows=borrowed(workspace))
