"""A process that works for a run whose folder is elsewhere: the folder it has instead, and an engine that makes the
workspaces there.

What is half-done stays in that folder when the process dies, and goes on in the next one that finds it, be it of a
later start of the run. Results go to the run, which alone keeps them; nothing is left here once all of them stand.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from hermes.batch.attempt import failure
from hermes.batch.folder import RunFolder, replace_file
from hermes.batch.identity import session_name
from hermes.batch.rollout import Engine, RolloutRequest, RolloutResult
from hermes.batch.settings import BatchSettings
from hermes.batch.workplace import Workplace
from hermes.batch.workspace import WorkspaceError
from hermes.core.errors import OperatorError
from hermes.core.model import ModelProfile

__all__ = ["AwayEngine", "Outpost", "id_away"]

#: Seconds that the process whose journal is to be taken over gets to end.
BEFORE = 10.0
#: Journals of one run on one machine that are tried.
MOST = 10_000


def id_away(folder: RunFolder) -> str:
    """What the machines that work for a run call it: the same at every start, another one for every folder.

    Raises:
        OperatorError: the folder cannot be read or written.
    """
    try:
        known = folder.away_path.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        known = ""
    except OSError as error:
        raise OperatorError(f"cannot read {folder.away_path}: {error.strerror}. Give this user access.") from error
    if not re.fullmatch(r"[0-9a-f]{32}", known):
        known = uuid.uuid4().hex
        replace_file(folder.away_path, [known.encode()])
    return known


class Outpost(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of one process on this machine: `data_dir` is where its journal and workspaces are, `home` holds no
    settings of anybody. The open descriptor `lock` keeps others out."""

    journal: str
    path: Path
    lock: int

    @property
    def data_dir(self) -> Path:
        """Where the run has its folder."""
        return self.path / "data"

    @property
    def home(self) -> Path:
        """A home for this process alone."""
        return self.path / "home"

    @classmethod
    def take(cls, run_id: str, journal: str = "", base: Path | None = None) -> Outpost:
        """Take the folder of the process that had `journal`, waiting for its end, else the first that is free.

        Raises:
            OperatorError: no folder can be made here, or somebody else made it.
        """
        folder = _private(base or Path(tempfile.gettempdir()) / f"hermes-{os.getuid()}")
        folder = _private(folder / run_id)
        wanted = folder / journal
        deadline = time.monotonic() + BEFORE
        while journal and wanted.is_dir() and time.monotonic() < deadline:
            lock = _lock(wanted.with_suffix(".lock"))
            if lock is not None:
                return cls(journal=journal, path=_private(wanted), lock=lock)
            time.sleep(0.05)
        for number in range(MOST):
            path = folder / str(number)
            lock = _lock(path.with_suffix(".lock"))
            if lock is not None:
                return cls(journal=str(number), path=_private(path), lock=lock)
        raise OperatorError(f"{folder} holds {MOST} journals in use. End what uses them.")

    def leave(self, run_name: str, half_done: bool, keep_workspaces: bool) -> None:
        """Give the folder up: it stays for what is half-done, and workspaces stay where they are wanted."""
        if not half_done:
            folder = RunFolder(self.data_dir, run_name)
            shutil.rmtree(self.home, ignore_errors=True)
            if keep_workspaces and folder.workspaces.exists():
                folder.remove_journal()
                shutil.rmtree(folder.state, ignore_errors=True)
            else:
                shutil.rmtree(self.path, ignore_errors=True)
                self.path.with_suffix(".lock").unlink(missing_ok=True)
                with suppress(OSError):  # others of the run are still there
                    self.path.parent.rmdir()
        os.close(self.lock)


def _private(folder: Path) -> Path:
    """Make a folder that nobody else can write into."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise OperatorError(f"cannot make {folder}: {error.strerror}. Set TMPDIR to a folder of yours.") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OperatorError(
            f"{folder} is not a folder of this user's alone. Remove it, or set TMPDIR to another place."
        )
    return folder


def _lock(path: Path) -> int | None:
    """Hold a lock until the descriptor is closed; None: another process has it."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)  # the last to leave removes it
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None  # and did so just now
    except OSError as error:
        raise OperatorError(f"cannot write {path}: {error.strerror}. Set TMPDIR to a folder of yours.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(descriptor).st_ino:  # its last owner may have removed it meanwhile
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass  # somebody has it, or had it until now: the next one is looked at
    os.close(descriptor)
    return None


class AwayEngine:
    """`engine` on a machine where the run's folder is not: rollouts get their workspaces in `folder`; `note` is told
    what of a `cwd` is left out."""

    def __init__(
        self, engine: Engine, folder: RunFolder, settings: BatchSettings, note: Callable[[str], object] | None = None
    ) -> None:
        self._engine = engine
        self._workplace = Workplace(folder, settings, note=note)
        self._left: dict[str, list[Path]] = {}
        self._gone: list[Path] = []
        self._news = anyio.Event()

    @property
    def model(self) -> str:
        """The model's name."""
        return self._engine.model

    @property
    def profile(self) -> ModelProfile:
        """What is known of the model."""
        return self._engine.profile

    @property
    def toolsets(self) -> Mapping[str, tuple[str, ...]]:
        """The toolsets there are, with the names of their tools."""
        return self._engine.toolsets

    @property
    def taped(self) -> bool:
        """Whether rollouts are recorded or replayed."""
        return self._engine.taped

    async def run(self, request: RolloutRequest) -> RolloutResult:
        """Carry one rollout out in a workspace of this machine."""
        self._left[session_name(request.key, request.attempt)] = self._workplace.left_by(
            request.key, request.attempt, request.index, request.rollout
        )
        request.report("workspace")
        try:
            placed = await self._workplace.enter(request, self._engine.begun())
        except WorkspaceError as error:
            return failure("environment_unavailable", f"on {os.uname().nodename}: {error}")
        return await self._engine.run(placed)

    def begun(self) -> Collection[str]:
        """The half-done rollouts."""
        return self._engine.begun()

    def keep_only(self, names: Collection[str]) -> None:
        """Let go of all half-done rollouts but these."""
        self._engine.keep_only(names)

    def settled(self, key: str, attempt: int) -> None:
        """The run has the record of an attempt: what is here of it goes."""
        self._engine.settled(key, attempt)
        self._gone += self._left.pop(session_name(key, attempt), [])
        self._news.set()

    async def clear(self) -> None:
        """Remove what ended rollouts leave, until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            gone, self._gone = self._gone, []
            await self._workplace.clear(gone)

    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars used by this process."""
        return self._engine.spent()

    def redact(self, data: bytes) -> bytes:
        """Replace known secrets in encoded JSON."""
        return self._engine.redact(data)

    def waiting_for(self) -> str:
        """What everything waits for."""
        return self._engine.waiting_for()
