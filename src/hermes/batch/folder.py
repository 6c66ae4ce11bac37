"""The folder of a run, `data/<run_name>/`: where its files are, who holds it, and its record of settings and rows.

The lock is the kernel's and goes with the process, however that ended. `run.json` and `rows.tsv` are replaced as a
whole, so a reader never finds half of one. What a rollout brought is not here but in `record` and `output`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import msgspec

from hermes.batch.checkout import REPOSITORIES
from hermes.batch.filter_settings import FilterSettings
from hermes.batch.rowtable import RowEntry, RowTable
from hermes.batch.settings import BatchSettings
from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError, StoreFull, TryLater, UsageError
from hermes.core.model import ModelProfile

__all__ = [
    "Prices",
    "RowEntry",
    "RunFolder",
    "RunMeta",
    "Session",
    "no_such_run",
    "replace_file",
    "run_names",
    "write_errors",
]

#: What a start puts into its folder before it writes down that there is a run.
_EARLY = re.compile(r"run\.lock|run\.log|run(-\d+)?\.db(\.lock|-wal|-shm)?|state|away\.id")
_BATCH = re.compile(r"batch_([0-9]+)\.jsonl")
#: Number of the layout of a run folder.
SCHEMA = 1


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What a model costs, in US dollars for a million tokens; without a price of their own, tokens read from a cache or
    written into it cost what others do. They come from the model's profile."""

    usd_per_million_input: float
    usd_per_million_output: float
    usd_per_million_cached: float | None = None
    usd_per_million_cache_write: float | None = None

    @classmethod
    def of(cls, profile: ModelProfile) -> Prices | None:
        """The prices in `profile`, None where they are not known."""
        if profile.price_input is None or profile.price_output is None:
            return None
        return cls(
            usd_per_million_input=profile.price_input,
            usd_per_million_output=profile.price_output,
            usd_per_million_cached=profile.price_cached,
            usd_per_million_cache_write=profile.price_cache_write,
        )


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a run. Times are seconds since the epoch; `ended_at` is None if its process died. `prices` are those
    its money was counted with."""

    started_at: float
    dataset: str
    rows: int
    ended_at: float | None = None
    exit_code: int | None = None
    cause: str = ""
    base_url: str | None = None
    num_workers: int = 0
    changes: str = ""
    prices: Prices | None = None


class RunMeta(msgspec.Struct, frozen=True, kw_only=True):
    """`run.json`: settings without secrets, the tools known to the run, the history of its sessions, the filters
    its merged files were made with, and the table (toolset -> percent) that toolsets are drawn from."""

    schema: int
    run_name: str
    created_at: float
    settings: BatchSettings
    tools: tuple[str, ...] = ()
    sessions: tuple[Session, ...] = ()
    filters: FilterSettings = FilterSettings()
    table: dict[str, float] | None = None


class RunFolder:
    """Paths and whole-file access of one run folder."""

    def __init__(self, data_dir: Path, run_name: str) -> None:
        self.path = (data_dir / run_name).absolute()
        self.run_name = run_name
        self.meta_path = self.path / "run.json"
        self.rows_path = self.path / "rows.tsv"
        self.records_path = self.path / "records.jsonl"
        self.lock_path = self.path / "run.lock"
        #: What other machines call the run.
        self.away_path = self.path / "away.id"
        #: What a detached run says.
        self.log_path = self.path / "run.log"
        #: What half-done rollouts go on from.
        self.journal_path = self.path / "run.db"
        self.workspaces = self.path / "workspaces"
        #: Of the tasks while they run: state of their shells, output too long to be shown.
        self.state = self.path / "state"

    def batch_path(self, number: int) -> Path:
        """The file of batch `number`."""
        return self.path / f"batch_{number}.jsonl"

    def batch_numbers(self) -> Iterator[int]:
        """The numbers of the batch files there are, in no order."""
        with os.scandir(self.path) as entries:
            for entry in entries:
                if found := _BATCH.fullmatch(entry.name):
                    yield int(found[1])

    def has_run(self) -> bool:
        """Whether a run has been started here (or something else lives here)."""
        try:
            return any(not _EARLY.fullmatch(entry.name) for entry in self.path.iterdir())
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise UsageError(
                f"{self.path} cannot be the folder of a run: a file stands in its way. Move that, or start elsewhere."
            ) from None

    def read_meta(self) -> RunMeta | None:
        """Read `run.json`; None if there is none.

        Raises:
            OperatorError: it cannot be read as the record of a run, or a newer version wrote it.
        """
        try:
            meta = msgspec.json.decode(self.meta_path.read_bytes(), type=RunMeta)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, OSError) as error:
            raise OperatorError(
                f"{self.meta_path} cannot be read ({error}). Take another --run_name, or --overwrite, which moves the "
                "folder aside."
            ) from error
        if meta.schema > SCHEMA:
            raise OperatorError(
                f"{self.meta_path} was written by a newer version (schema {meta.schema}): update first."
            )
        return meta

    def require_meta(self) -> RunMeta:
        """Read `run.json`, which is to be there.

        Raises:
            UsageError: there is no such run; the error names those that there are.
            OperatorError: as for `read_meta`.
        """
        meta = self.read_meta()
        if meta is None:
            raise no_such_run(self.path.parent, self.run_name)
        return meta

    def write_meta(self, meta: RunMeta) -> None:
        """Replace `run.json`."""
        replace_file(self.meta_path, [msgspec.json.format(encode_json(meta), indent=1) + b"\n"])

    def read_rows(self) -> RowTable:
        """Read the rows the run knows, in the order of its dataset, those that are gone last."""
        table = RowTable()
        if self.rows_path.exists():
            with self.rows_path.open(encoding="utf-8") as file:
                for line in file:
                    index, row_id, state = line.rstrip("\n").split("\t")
                    table.add(RowEntry(row_id, int(index), state == "gone"))
        return table

    def write_rows(self, rows: Sequence[RowEntry]) -> None:
        """Replace the rows the run knows."""
        replace_file(
            self.rows_path, (f"{row.index}\t{row.row_id}\t{'gone' if row.gone else ''}\n".encode() for row in rows)
        )

    def workspace(self, index: int, rollout: int) -> Path:
        """Where a rollout works."""
        return self.workspaces / f"{index}-{rollout}"

    def remove_workspaces(self, keep: Collection[Path] = (), *, goes_on: bool = False) -> None:
        """Remove what is left of the rows' working copies and of the state of their tasks, but for what half-done
        rollouts go on with. `goes_on`: others are still to come, which begin at the same commits."""
        borrowed = goes_on and (self.workspaces / REPOSITORIES).exists()
        for parent in (self.workspaces, self.state):
            if not any(path.parent == parent for path in keep) and not (borrowed and parent == self.workspaces):
                shutil.rmtree(parent, ignore_errors=True)
                continue
            for path in parent.iterdir() if parent.exists() else ():
                if path not in keep and path.name != REPOSITORIES:  # which those that stay borrow from
                    shutil.rmtree(path, ignore_errors=True)

    def remove_journal(self) -> None:
        """Remove the journals: nothing is half-done any more."""
        for path in self.path.glob("run*.db*"):
            path.unlink(missing_ok=True)

    def move_aside(self, stamp: str) -> Path:
        """Move the folder to a free name beside it and return that."""
        target = self.path.with_name(f"{self.run_name}.{stamp}")
        number = 1
        while target.exists():
            number += 1
            target = self.path.with_name(f"{self.run_name}.{stamp}-{number}")
        self.path.rename(target)
        return target

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for the length of the block.

        Raises:
            TryLater: another process holds it; the text names it.
            OperatorError: the folder cannot be made or written.
        """
        with write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(file, 500, 0).decode("utf-8", "replace").strip() or "another process"
                raise TryLater(
                    f"run {self.run_name!r} is being worked on by {owner}. Wait for its end; `hermes batch stop` "
                    "ends it, and a run under another --run_name may go on beside it."
                ) from None
            if os.fstat(file).st_nlink == 0:  # removed by a start that was refused, between the two calls above
                raise TryLater(f"another start of run {self.run_name!r} has just been refused. Start it again.")
            with write_errors(self.path):
                os.ftruncate(file, 0)
                os.pwrite(file, _owner().encode(), 0)
            yield
        finally:
            os.close(file)

    def drop_refused(self) -> None:
        """Leave nothing of a start that was refused, while it is held; what it said in the background stays for whoever
        started it. A run is not touched."""
        if self.has_run():
            return
        shutil.rmtree(self.state, ignore_errors=True)
        with contextlib.suppress(OSError):
            for path in self.path.iterdir():
                if path != self.log_path:
                    path.unlink()
            self.path.rmdir()


def run_names(data_dir: Path) -> list[str]:
    """The runs in a folder, by name."""
    return sorted(path.parent.name for path in data_dir.glob("*/run.json"))


def no_such_run(data_dir: Path, run_name: str) -> UsageError:
    """The error that names the runs that are nearest by name, else those that are there."""
    names = run_names(data_dir)
    near = get_close_matches(run_name, names, 3, 0.6)
    known = f"Near: {', '.join(near)}" if near else f"Runs there: {', '.join(names[:10]) or 'none'}"
    return UsageError(f"there is no run {run_name!r} in {data_dir}. {known}.")


def _owner() -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {socket.gethostname()} since {since}"


def replace_file(path: Path, chunks: Iterator[bytes] | Sequence[bytes]) -> None:
    """Write `chunks` to a temporary file beside `path`, sync it, and put it in the place of `path`.

    Raises:
        StoreFull: the disk has no room; `path` is as it was.
        OperatorError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with write_errors(path):
        try:
            with temporary.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fdatasync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn what the system says about writing `path` into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: Path, error: OSError) -> OperatorError:
    """Return the error for a failed write of `path`."""
    if error.errno in (28, 122):  # no space, quota of the disk
        return StoreFull(
            f"no room on the disk for {path}. What is written so far stands; free some, then use --resume."
        )
    return OperatorError(f"cannot write {path}: {error.strerror or error}. Correct that, then use --resume.")
