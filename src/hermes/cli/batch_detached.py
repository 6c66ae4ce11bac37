"""`hermes batch run --detach`: the same command as a process of its own session, whose words go into a file of the
run's folder. Waits until the run has begun, so that what cannot be started is said here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

import click

from hermes.batch.folder import RunFolder, write_errors
from hermes.batch.steering import is_held, read_status
from hermes.chat.render import printable
from hermes.core.errors import OperatorError, UsageError

__all__ = ["command_line", "run_detached", "without_detach"]

#: Seconds in which a run has to begin: reading a large dataset is most of it.
PATIENCE = 120.0


def command_line() -> list[str]:
    """What this process was started with, as arguments of `hermes`."""
    first = ["batch", "run"] if os.path.basename(sys.argv[0]) == "batch_runner.py" else []
    return [*first, *sys.argv[1:]]


def without_detach(arguments: Sequence[str]) -> list[str]:
    """A command line without the flag."""
    return [item for item in arguments if item.partition("=")[0] != "--detach"]


def run_detached(folder: RunFolder, arguments: Sequence[str]) -> int:
    """Start `hermes` with `arguments` in the background; 0 once it works, else its own exit code.

    Raises:
        UsageError: the run is being worked on already.
        OperatorError: it has not begun in time.
    """
    if is_held(folder):
        raise UsageError(f"run {folder.run_name!r} is being worked on: hermes batch status {folder.run_name}")
    with write_errors(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
        log = os.open(folder.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    begin = os.lseek(log, 0, os.SEEK_END)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "hermes.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None:
        said = read_status(folder) if is_held(folder) else None
        if said is not None and said.pid == process.pid:
            _tell(folder, process.pid)
            return 0
        if time.monotonic() > deadline:
            raise OperatorError(f"the run has not begun within {PATIENCE:g} s: look into {folder.log_path}")
        time.sleep(0.05)
    with folder.log_path.open("rb") as file:
        file.seek(begin)
        click.echo(printable(file.read().decode("utf-8", "replace").rstrip()), err=bool(process.returncode))
    if not folder.has_run():  # it refused to begin: nothing of it stays
        folder.log_path.unlink(missing_ok=True)
        folder.lock_path.unlink(missing_ok=True)
        folder.path.rmdir()
    return process.returncode


def _tell(folder: RunFolder, pid: int) -> None:
    name = folder.run_name
    click.echo(f"run {name} works in the background as process {pid}; its words go to {folder.log_path}")
    click.echo(f"look: hermes batch status {name} · pause, unpause, workers {name} N, stop: hermes batch VERB {name}")
