"""One cassette of several processes: each writes a piece beside its place, and they are joined at the end.

A tree of tasks is of one process. Where a process died, its tree was made anew by another: of each tree only one piece
counts, the one in which it came to its end, or the latest. A last line that a dead process left cut off is passed over.
Nothing of a line is changed: whoever wrote it had taken the secrets out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from hermes.core.errors import OperatorError
from hermes.runtime.cassette import Header, open_part, part_of
from hermes.runtime.taping import root_of

__all__ = ["JoinedCassette", "new_piece"]

#: Lives of one process that are told apart.
MOST = 10_000


class _Mark(msgspec.Struct):
    """What has to be known of a line to decide whose it is."""

    type: str
    task: str = ""


_mark = msgspec.json.Decoder(_Mark)
_header = msgspec.json.Decoder(Header)


def new_piece(path: Path, number: int) -> Path:
    """The place of a piece that process `number` writes of the cassette `path`; one before it, which may have died,
    wrote another."""
    for life in range(MOST):
        piece = path.with_name(f"{path.name}.piece-{number}-{life}")
        if not piece.exists() and not part_of(piece).exists():
            return piece
    raise OperatorError(f"{piece} exists: too many processes have died. Remove {path}.piece-*.")


class JoinedCassette:
    """The cassette `path`, which the processes of a run write together.

    Raises:
        UsageError: there can be no such file, or another run is recording to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_part(path)
        for stale in _pieces(path):  # of a run that was killed
            stale.unlink(missing_ok=True)

    def close(self) -> tuple[int, int]:
        """Join the pieces, once all who wrote them have ended, and put the cassette into its place; returns how many
        replies and calls it holds. Blocks.

        Raises:
            OperatorError: the disk did not take it; an older recording stands as it was, and so do the pieces.
        """
        counts = {"reply": 0, "call": 0}
        try:
            pieces = sorted(_pieces(self.path), key=_when)
            chosen = _chosen(pieces)
            for number, piece in enumerate(pieces):
                for mark, line in _lines(piece):
                    if mark.type == "cassette":
                        if self._file.tell() == 0:
                            self._file.write(line + b"\n")
                    elif chosen[root_of(mark.task)] == number:
                        self._file.write(line + b"\n")
                        if mark.type in counts:
                            counts[mark.type] += 1
            if not self._file.tell():  # no process ever began: what there was stands
                part_of(self.path).unlink()
                return 0, 0
            self._file.flush()
            os.fsync(self._file.fileno())
            part_of(self.path).replace(self.path)
        except OSError as error:
            raise OperatorError(
                f"the recording {self.path} could not be written: {error.strerror}. What there is stands in the files "
                f"{self.path}.piece-*."
            ) from None
        finally:
            with suppress(OSError):  # what it could still say has been said
                self._file.close()
        for piece in pieces:
            with suppress(OSError):  # it costs room, and the next recording here removes it
                piece.unlink()
        return counts["reply"], counts["call"]


def _pieces(path: Path) -> list[Path]:
    name = re.compile(rf"{re.escape(path.name)}\.piece-\d+-\d+(\.part)?")
    return [found for found in path.parent.iterdir() if name.fullmatch(found.name)]


def _when(piece: Path) -> tuple[float, list[int]]:
    """When the process began that wrote a piece, and which one it was."""
    with piece.open("rb") as file:
        try:
            began = _header.decode(file.readline()).recorded_at
        except msgspec.DecodeError:
            began = 0.0  # it died before it had written a line
    return began, [int(number) for number in re.findall(r"\d+", piece.name.rpartition(".piece-")[2])]


def _lines(piece: Path) -> Iterator[tuple[_Mark, bytes]]:
    """The whole lines of a piece."""
    with piece.open("rb") as file:
        for line in file:
            try:
                yield _mark.decode(line), line.rstrip(b"\n")
            except (msgspec.DecodeError, UnicodeDecodeError):
                return


def _chosen(pieces: list[Path]) -> dict[str, int]:
    """Which piece counts for each tree, by the name of its first task."""
    ended: dict[str, int] = {}
    latest: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        for mark, _ in _lines(piece):
            if mark.task:
                latest[root_of(mark.task)] = number
                if mark.type == "end" and "/" not in mark.task:
                    ended[root_of(mark.task)] = number
    return {**latest, **ended}
