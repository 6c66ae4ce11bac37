"""Which runs are worked on with a home: each says so in a small file of the home, since its own folder may be anywhere.

For whoever has to know everybody that uses the home, as an update does. The process holds a lock of the file: what a
killed one left behind says nothing of the one that goes on with its run. Stops and starts nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from hermes.batch.folder import RunFolder
from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError
from hermes.core.ids import random_hex
from hermes.store.filelock import is_held, take_lock

__all__ = ["Announced", "announced", "announced_runs"]


class Announced(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is worked on. `before` and `after` are what its process was told before and after `batch run` and no
    record of the run has, as arguments."""

    pid: int
    data_dir: str
    run_name: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def folder(self) -> RunFolder:
        """Its folder."""
        return RunFolder(Path(self.data_dir), self.run_name)


@contextmanager
def announced(run_dir: Path, folder: RunFolder, before: Sequence[str], after: Sequence[str]) -> Iterator[None]:
    """Within the block the home whose `run_dir` this is knows of the run, which is locked already. A home that cannot
    be written is told nothing: the run works all the same."""
    path = run_dir / f"batch-{random_hex(16)}.json"
    one = Announced(
        pid=os.getpid(),
        data_dir=str(folder.path.parent),
        run_name=folder.run_name,
        before=tuple(before),
        after=tuple(after),
    )
    lock: int | None = None
    with contextlib.suppress(OSError, OperatorError):
        lock = take_lock(path, cure="the home knows nothing of this run")
        if lock is not None:
            os.write(lock, encode_json(one))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        if lock is not None:
            os.close(lock)


def announced_runs(run_dir: Path) -> list[Announced]:
    """The runs that living processes work on with this home. What a killed process left behind is removed.

    Raises:
        OperatorError: one of their files cannot be read.
    """
    found = []
    for path in sorted(run_dir.glob("batch-*.json")):
        try:
            one = msgspec.json.decode(path.read_bytes(), type=Announced)
            held = is_held(path)
        except (FileNotFoundError, msgspec.DecodeError):
            continue  # it has just ended, or is about to say where it is
        except OSError as error:
            raise OperatorError(f"{path} cannot be read ({error}); give this user access") from error
        if held:
            found.append(one)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    return found
