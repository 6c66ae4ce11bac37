"""The process of a run: its lock, whether it lives, how it ended, and how it is ended with all it started.

A worker holds `<board>/runs/<run>.lock` from the moment it is forked: the lock is taken before the start and handed
down, so there is no moment in which a living worker has none, and the kernel drops it with the process whatever became
of pids. Everything a worker starts carries the run's id in its environment and is found by it. What a worker says last
stands in `<run>.exit`. Decides nothing about cards.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Literal

import msgspec

from hermes.core.codec import decode_json, encode_json
from hermes.core.errors import OperatorError
from hermes.environments.process import end_all, group_members, processes_with, start_time
from hermes.kanban.card import Run, Worker
from hermes.kanban.moves import Outcome
from hermes.store.filelock import is_held, take_lock

__all__ = ["RUN_ID", "ExitNote", "RunFiles", "State", "end_own_commands", "end_run_processes"]

#: Variable that carries the run to which a process belongs.
RUN_ID = "HERMES_KANBAN_RUN_ID"
State = Literal["alive", "gone", "elsewhere", "unknown"]


class ExitNote(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says last: its exit code, why it ended where it failed, and what the end counts as if it knows."""

    code: int
    error: str = ""
    outcome: Outcome | None = None


class RunFiles:
    """The files of a board's runs on this machine, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lock_path(self, run_id: str) -> Path:
        """Where a run's lock is."""
        return self.folder / f"{run_id}.lock"

    def take(self, run_id: str) -> int:
        """Take a run's lock and return the descriptor to hand down. Raises `OperatorError`."""
        path = self.lock_path(run_id)
        descriptor = take_lock(path, cure=f"make {self.folder} writable for this user")
        if descriptor is None:
            raise OperatorError(f"cannot lock {path}: another process works on that run")
        return descriptor

    def held(self, run_id: str) -> bool | None:
        """Whether a process holds a run's lock; None where there is no lock file."""
        return is_held(self.lock_path(run_id))

    def state(self, run: Run, here: Worker) -> State:
        """What is known of a run's process on this machine.

        `elsewhere`: it is another machine's or home's, `unknown`: nothing proves that it is gone.
        """
        if run.host_id != here.host_id or run.home_id != here.home_id:
            return "elsewhere"
        held = self.held(run.id)
        if held is not None:
            return "alive" if held else "gone"
        machine, _, space = run.boot_id.partition("/")
        here_machine, _, here_space = here.boot_id.partition("/")
        if machine != here_machine or run.pid is None:
            return "gone"  # the machine was started anew, or nothing ever was
        if space != here_space:
            return "unknown"  # a pid of another container says nothing
        return "alive" if run.process_started and start_time(run.pid) == run.process_started else "gone"

    def write_note(self, run_id: str, note: ExitNote) -> None:
        """Leave the last word of a worker."""
        path = self.folder / f"{run_id}.exit"
        fresh = path.with_suffix(".new")
        fresh.write_bytes(encode_json(note))
        fresh.replace(path)

    def note(self, run_id: str) -> ExitNote | None:
        """The last word of a worker, None if it had no time for one."""
        try:
            return msgspec.convert(decode_json((self.folder / f"{run_id}.exit").read_bytes()), ExitNote)
        except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
            return None

    def forget(self, run_id: str) -> None:
        """Remove the files of a run that is over."""
        self.lock_path(run_id).unlink(missing_ok=True)
        (self.folder / f"{run_id}.exit").unlink(missing_ok=True)


def end_run_processes(run: Run, here: Worker, *, grace: float) -> bool:
    """End a worker on this machine and whatever it started (blocking); returns whether nothing is left.

    The worker gets TERM and `grace` seconds to write down where it stands before everything is killed.
    """

    def members() -> set[int]:
        found = set(processes_with(RUN_ID, run.id + "\0"))
        if run.pid is not None and run.boot_id == here.boot_id and run.process_started:
            if start_time(run.pid) == run.process_started:
                found.update(group_members(run.pid))
        return found

    leader = run.pid
    if leader is not None and grace > 0 and start_time(leader) == run.process_started and leader in members():
        # First the worker alone: it ends its own commands in order. What is left afterwards is killed.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(leader, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while leader in members() and time.monotonic() < deadline:
            time.sleep(0.02)
    end_all(members, 0.0)
    return not members()


def end_own_commands(run_id: str) -> None:
    """End whatever a run started, called by its own process, which is left out (blocking)."""
    end_all(lambda: set(processes_with(RUN_ID, run_id + "\0")), 0.5)
