"""Workspaces of a task's own: planned when it is spawned, made when it starts, looked at when it ends.

Nothing falls back: a workspace that cannot be made is an error. One is removed only when it is proven empty (no commit,
nothing changed, nothing untracked), and never by force. What holds commands inside it is the environment's business.
Making and looking blocks and runs on a thread.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import OperatorError
from hermes.core.result import WorkspaceReport
from hermes.environments.trees import copy_tree, short_error
from hermes.runtime import worktree
from hermes.runtime.isolation import Isolation, WorkspaceMode
from hermes.runtime.task import Task

__all__ = ["Workspaces"]


class _Look:
    """A look at a folder that is under way; `found` is None where it came to nothing."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.found: bool | None = None


class Workspaces:
    """Makes the workspaces of one home below `root`."""

    def __init__(self, root: Path, hold: Hold = NO_HOLD) -> None:
        self.root = root
        self._hold = hold
        self._locks: dict[str, anyio.Lock] = {}
        self._making: dict[str, anyio.Event] = {}
        self._looks: dict[str, _Look] = {}

    async def plan(self, mode: WorkspaceMode, origin: str, task_id: str) -> tuple[str, Isolation | None, list[str]]:
        """Where a task will work that stands for `origin`: (workspace, how it is its own, notes for the caller).

        Nothing is made yet, but what will keep it from being made is found now.

        Raises:
            OperatorError: it cannot be had; the text begins with `environment_unavailable`.
        """
        if mode == "shared":
            return origin, None, []
        with held(self._hold):
            return await anyio.to_thread.run_sync(self._plan, mode, origin, task_id)

    def _plan(self, mode: WorkspaceMode, origin: str, task_id: str) -> tuple[str, Isolation | None, list[str]]:
        top = str(self.root / task_id)
        if not os.path.isdir(origin):
            raise OperatorError(f"environment_unavailable: the workspace {origin} does not exist")
        checkout = worktree.checkout_of(origin)
        if mode == "worktree":
            return worktree.plan(origin, top, checkout)
        if mode == "copy" and _inside(str(self.root), origin):
            raise OperatorError(
                f"environment_unavailable: {origin} holds the workspaces themselves and cannot be copied into one. "
                "Start in the project's own directory."
            )
        return top, Isolation(mode=mode, origin=origin, top=top, checkout=checkout or ""), []

    async def make(self, task: Task) -> None:
        """See that the task's workspace is there; a task that goes on finds its own again.

        Raises:
            OperatorError: it cannot be made, or it was deleted under a task that had begun.
        """
        isolation = task.spec.isolation
        begun = task.history is not None
        if isolation is None:
            await self._whole(task.scope.workspace)
            if begun and not await self._is_folder(task.scope.workspace):
                raise OperatorError(_gone(task.scope.workspace, "make it again before the task goes on"))
            return
        made = self._making.setdefault(isolation.top, anyio.Event())
        try:
            async with self._lock(isolation):
                with held(self._hold):
                    await anyio.to_thread.run_sync(_make, isolation, begun)
        finally:
            made.set()
            self._making.pop(isolation.top, None)

    async def _whole(self, workspace: str) -> None:
        """Wait while another task's workspace, which this one shares, is being made: git fills a checkout in steps, and
        the last of them takes away what was written meanwhile."""
        for top, made in list(self._making.items()):
            if _inside(workspace, top):
                await made.wait()

    def _lock(self, isolation: Isolation) -> anyio.Lock:
        """One at a time for a repository: git prunes records of checkouts that are just being made."""
        return self._locks.setdefault(isolation.repository, anyio.Lock()) if isolation.repository else anyio.Lock()

    async def _is_folder(self, path: str) -> bool:
        """Whether a folder is there. A crowd that goes on in one folder shares a look, which takes a thread."""
        while (under_way := self._looks.get(path)) is not None:
            await under_way.over.wait()
            if under_way.found is not None:
                return under_way.found
        look = self._looks[path] = _Look()
        try:
            with held(self._hold):
                look.found = found = await anyio.to_thread.run_sync(os.path.isdir, path)
            return found
        finally:
            del self._looks[path]
            look.over.set()

    async def settle(self, task: Task) -> WorkspaceReport | None:
        """What became of the task's workspace; an empty one is removed. None for one that it shares."""
        isolation = task.spec.isolation
        if isolation is None:
            return None
        async with self._lock(isolation):
            with held(self._hold):
                try:
                    return await anyio.to_thread.run_sync(_settle, isolation)
                except (OSError, OperatorError) as error:
                    return WorkspaceReport(
                        mode=isolation.mode, path=isolation.top, branch=isolation.branch, dirty=True, error=str(error)
                    )


def _gone(path: str, then: str) -> str:
    return f"workspace_missing: the workspace {path} was deleted while the task worked in it: {then}."


def _make(isolation: Isolation, begun: bool) -> None:
    if isolation.mode == "worktree":
        worktree.make(isolation, begun)
        return
    if os.path.isdir(isolation.top):
        return
    if begun and os.path.exists(_manifest(isolation)):
        raise OperatorError(_gone(isolation.top, "what it held is lost; start the task again"))
    try:
        os.makedirs(os.path.dirname(isolation.top), exist_ok=True, mode=0o700)
        if isolation.mode == "scratch":
            os.mkdir(isolation.top, 0o700)
        else:
            _copy(isolation)
        _manifest(isolation).write_text(_fingerprint(isolation.top), encoding="ascii")
    except (OSError, shutil.Error) as error:
        raise OperatorError(
            f"environment_unavailable: the workspace {isolation.top} could not be made from {isolation.origin}: "
            f"{short_error(error)}"
        ) from None


def _copy(isolation: Isolation) -> None:
    """Copy beside and rename, so that half a copy is never taken for a whole one."""
    building = f"{isolation.top}.new"
    shutil.rmtree(building, ignore_errors=True)
    copy_tree(isolation.origin, building)
    # The .git of a linked checkout is a file that leads to the repository: commits in a copy would move the original.
    link = os.path.join(building, ".git")
    if os.path.isfile(link) or os.path.islink(link):
        os.unlink(link)
    os.rename(building, isolation.top)


def _manifest(isolation: Isolation) -> Path:
    return Path(f"{isolation.top}.made")


def _settle(isolation: Isolation) -> WorkspaceReport:
    if isolation.mode == "worktree":
        return worktree.settle(isolation)
    report = WorkspaceReport(mode=isolation.mode, path=isolation.top)
    manifest = _manifest(isolation)
    if not os.path.isdir(isolation.top):
        return msgspec.structs.replace(report, error=f"{isolation.top} was deleted while the task worked in it")
    if manifest.exists() and manifest.read_text(encoding="ascii") == _fingerprint(isolation.top):
        shutil.rmtree(isolation.top)
        manifest.unlink()
        return msgspec.structs.replace(report, removed=True)
    return msgspec.structs.replace(report, dirty=True)


def _fingerprint(top: str) -> str:
    """A tree by the names, kinds, sizes and times of its files."""
    digest = hashlib.sha256()
    for path, status in _statuses(top):
        times = (status.st_size, status.st_mtime_ns) if not stat.S_ISDIR(status.st_mode) else ()
        digest.update(repr((os.path.relpath(path, top), status.st_mode, times)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _statuses(top: str) -> Iterator[tuple[str, os.stat_result]]:
    for folder, below, files in os.walk(top):
        below.sort()
        for name in sorted((*below, *files)):
            path = os.path.join(folder, name)
            yield path, os.lstat(path)


def _inside(path: str, folder: str) -> bool:
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return path == folder or path.startswith(folder.rstrip("/") + "/")
