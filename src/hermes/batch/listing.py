"""The runs of a folder and how each of them is: for a person who looks, or a program. Reads only."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hermes.batch.folder import RunFolder, RunMeta, no_such_run, run_names
from hermes.batch.index import open_index
from hermes.batch.plan import total_rollouts
from hermes.batch.progress import Progress
from hermes.batch.settings import check_run_name
from hermes.batch.steering import Status, is_held, read_status
from hermes.core.errors import OperatorError

__all__ = ["RunState", "find_run", "living", "run_state", "run_states"]


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is. `state`: running, paused, starting (its process has said nothing yet), died (its process is gone
    and did not end it), stopped (some of it is pending or failed), finished. `updated_at` is when the figures were
    taken, seconds since the epoch; `cost_usd` is None where no price is known."""

    run_name: str
    state: str
    model: str
    created_at: float
    updated_at: float
    total: int
    kept: int
    rejected: int
    failed: int
    pending: int
    running: int = 0
    workers: int = 0
    pid: int | None = None
    tokens: int = 0
    cost_usd: float | None = None
    expected_usd: float | None = None
    retries: int = 0
    line: str = ""
    exit_code: int | None = None
    folder: str = ""


def find_run(data_dir: Path, run_name: str) -> RunFolder:
    """The folder of a run.

    Raises:
        UsageError: there is no such run.
    """
    folder = RunFolder(data_dir, check_run_name(run_name))
    if not folder.meta_path.exists():
        raise no_such_run(data_dir, run_name)
    return folder


def living(data_dir: Path) -> list[str]:
    """The names of the runs that a living process works on."""
    return [name for name in run_names(data_dir) if is_held(RunFolder(data_dir, name))]


def run_states(data_dir: Path) -> list[RunState]:
    """Every run there, the newest first; what cannot be read is left out."""
    states = []
    for name in run_names(data_dir):
        try:
            states.append(run_state(RunFolder(data_dir, name)))
        except OperatorError:
            continue  # its own command says what is wrong with it
    return sorted(states, key=lambda state: -state.created_at)


def run_state(folder: RunFolder) -> RunState:
    """How a run is.

    Raises:
        UsageError: there is no such run.
        OperatorError: its files cannot be read.
    """
    meta = folder.require_meta()
    alive, status = is_held(folder), read_status(folder)
    if alive and status is not None:
        return _living(folder, meta, status)
    return _at_rest(folder, meta, alive)


def _living(folder: RunFolder, meta: RunMeta, status: Status) -> RunState:
    return RunState(
        run_name=meta.run_name,
        state=status.state,
        model=meta.settings.model or "",
        created_at=meta.created_at,
        updated_at=status.at,
        total=status.total,
        kept=status.kept,
        rejected=status.rejected,
        failed=status.failed,
        pending=status.pending,
        running=status.running,
        workers=status.workers,
        pid=status.pid,
        tokens=status.tokens,
        cost_usd=status.cost_usd,
        expected_usd=status.expected_usd,
        retries=status.retries,
        line=status.line,
        folder=str(folder.path),
    )


def _at_rest(folder: RunFolder, meta: RunMeta, alive: bool) -> RunState:
    """The state by the records: nobody says anything newer."""
    rows, rollouts = folder.read_rows(), meta.settings.rollouts_per_prompt
    index = open_index(folder.records_path, rows, rollouts)
    progress = Progress(total=total_rollouts(rows, rollouts, index), started=0.0)
    progress.take(index.counts)
    last = meta.sessions[-1] if meta.sessions else None
    ended_at = last.ended_at if last is not None else None
    state = "finished"
    if alive:
        state = "starting"
    elif ended_at is None:
        state = "died"
    elif progress.pending or progress.failed.total():
        state = "stopped"
    return RunState(
        run_name=meta.run_name,
        state=state,
        model=meta.settings.model or "",
        created_at=meta.created_at,
        updated_at=ended_at or folder.meta_path.stat().st_mtime,
        total=progress.total,
        kept=progress.kept,
        rejected=progress.rejected.total(),
        failed=progress.failed.total(),
        pending=progress.pending,
        tokens=index.used.tokens,
        cost_usd=progress.cost_usd,
        exit_code=last.exit_code if last is not None else None,
        folder=str(folder.path),
    )
