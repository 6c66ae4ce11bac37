"""Starting the process of a worker: its command, its variables, its log. Nothing here decides who works on what.

A worker is `hermes -p PROFILE kanban work CARD`, the leader of a session of its own, so that no terminal and no
dispatcher takes it along. It is told board, card, run and claim by variables, so that it never looks for its card on
another board.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from hermes.core.errors import OperatorError
from hermes.core.program import program_path
from hermes.environments.process import CALL_KEY, DEPTH, start_time
from hermes.kanban.card import Card
from hermes.kanban.claiming import Claimed
from hermes.kanban.run_process import RUN_ID, RunFiles
from hermes.kanban.store import Location

__all__ = ["DATABASE_URL", "TOLD", "Launcher", "Outliving", "ProcessLauncher", "Started", "bound_log", "open_log"]

#: Variable that carries the address of a board in PostgreSQL to a worker.
DATABASE_URL = "HERMES_KANBAN_DATABASE_URL"
#: Variable that says to a worker that its questions are told by whoever serves the board.
TOLD = "HERMES_KANBAN_TOLD"
#: Variables of a process that is itself somebody's: a worker is nobody's child.
_OWN = (CALL_KEY, DEPTH, "HERMES_PROFILE")


class Started(Protocol):
    """A worker's process."""

    pid: int
    started: str

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def wait(self, timeout: float) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""


class Launcher(Protocol):
    """What starts workers."""

    def start(self, claimed: Claimed, profile: str, files: RunFiles) -> Started:
        """Start the worker of a claim. Raises `OperatorError`; nothing runs then."""


class Outliving(subprocess.Popen[bytes]):
    """A process that may outlive whoever started it: dropping the object is no mistake."""

    def __del__(self) -> None:
        super().__del__(_warn=lambda *_args, **_named: None)  # type: ignore[call-arg]


class _Process:
    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid
        self.started = start_time(popen.pid)

    def poll(self) -> int | None:
        return self._popen.poll()

    def wait(self, timeout: float) -> int:
        return self._popen.wait(timeout)


class ProcessLauncher:
    """Starts workers of one board; `folder` is the board's, `root` the base of all profiles.

    `options` stand before a worker's command, `planner` before the one that plans a card. `tells`: whoever starts them
    tells a person what they ask, so that they need not. HERMES_BIN in `environ` replaces the program.
    """

    def __init__(
        self,
        location: Location,
        *,
        folder: Path,
        root: Path,
        environ: Mapping[str, str],
        options: Sequence[str] = (),
        planner: Sequence[str] = (),
        tells: bool = False,
        log_bytes: int = 2_097_152,
    ) -> None:
        self._location = location
        self._folder = folder
        self._root = root
        self._environ = environ
        self._options = tuple(options)
        self._planner = tuple(planner) or self._options
        self._tells = tells
        self._log_bytes = log_bytes
        named = shlex.split(environ.get("HERMES_BIN", ""))
        self._program = named or [sys.executable, "-m", "hermes.cli.main"]

    def log_path(self, card_id: str) -> Path:
        """Where a card's log is."""
        return self._folder / "logs" / f"{card_id}.log"

    def variables(self, claimed: Claimed, profile: str) -> dict[str, str]:
        """The variables of a worker."""
        claim, location = claimed.claim, self._location
        found = {
            name: value
            for name, value in self._environ.items()
            if name not in _OWN and (not name.startswith("HERMES_KANBAN_") or name in _KEPT)
        }
        found |= {
            **program_path(found),
            "HERMES_HOME": str(self._root),
            "HERMES_PROFILE": profile,
            "HERMES_KANBAN_TASK": claim.card_id,
            RUN_ID: claim.run_id,
            "HERMES_KANBAN_CLAIM_LOCK": claim.token,
            "HERMES_KANBAN_BOARD": location.slug,
            "HERMES_SESSION_SOURCE": "kanban",
        }
        if self._tells:
            found[TOLD] = "1"
        if location.path is not None:
            found["HERMES_KANBAN_DB"] = str(location.path)
        if location.url is not None:
            found[DATABASE_URL] = location.url
        if claimed.card.tenant:
            found["HERMES_TENANT"] = claimed.card.tenant
        return found

    def start(self, claimed: Claimed, profile: str, files: RunFiles) -> Started:
        """Start the worker of a claim.

        Raises:
            OperatorError: lock or log cannot be written, or nothing can be started.
        """
        lock = files.take(claimed.claim.run_id)
        command = [*self._options, "-p", profile, "kanban", "work", claimed.card.id]
        try:
            return self._start(claimed.card.id, command, self.variables(claimed, profile), (lock,))
        except OSError as error:
            raise OperatorError(f"the worker of {claimed.card.id} could not be started ({error})") from error
        finally:
            os.close(lock)

    def plan(self, card: Card) -> Started:
        """Start the process that plans a card, as this program's own profile.

        Raises:
            OperatorError: its log cannot be written, or nothing can be started.
        """
        known = {name: value for name, value in self._environ.items() if name not in _OWN}
        command = [*self._planner, "kanban", "--board", self._location.slug, "decompose", card.id]
        environ = {**known, **program_path(known), "HERMES_HOME": str(self._root)}
        try:
            return self._start(card.id, command, environ)
        except OSError as error:
            raise OperatorError(f"planning {card.id} could not be started ({error})") from error

    def _start(
        self, card_id: str, arguments: Sequence[str], environ: Mapping[str, str], passed: tuple[int, ...] = ()
    ) -> Started:
        """Start the program in a session of its own, what it says going to the card's log. Raises OSError."""
        with open_log(self.log_path(card_id), self._log_bytes) as out:
            popen = Outliving(
                [*self._program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self._root,
                env=environ,
                start_new_session=True,
                pass_fds=passed,
            )
        return _Process(popen)


#: Variables for the board that a worker keeps of whoever starts it.
_KEPT = frozenset({"HERMES_KANBAN_HOME", "HERMES_KANBAN_HOST_ID", "HERMES_KANBAN_CLAIM_TTL_SECONDS"})


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def open_log(path: Path, most: int) -> BinaryIO:
    """A log to append to, which only this user may read; one of more than `most` bytes is put aside. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    bound_log(path, most)
    out = open(path, "ab", opener=_private)
    os.fchmod(out.fileno(), 0o600)  # one that was there already
    return out


def bound_log(path: Path, most: int) -> None:
    """Put a log aside once it has more than `most` bytes; one old log is kept. Its writers go on in the same file."""
    try:
        if path.stat().st_size <= most:
            return
        data = path.read_bytes()
        with open(path.with_name(f"{path.name}.1"), "wb", opener=_private) as old:
            os.fchmod(old.fileno(), 0o600)
            old.write(data[-most:])
        os.truncate(path, 0)  # writers append, so they go on at the new beginning
    except FileNotFoundError:
        return
