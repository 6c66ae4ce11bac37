"""The dataset of a batch: a JSONL file of prompts, packed or not, checked as a whole before anything runs. What rows
hold is not kept: it is read again when a row's turn comes, and compared with what was checked.

A line that cannot be used is refused with its number: a run that leaves rows out in silence is worse than one that
does not start. Byte-order mark, CRLF and blank lines are fine; lone surrogates are replaced and counted. Nothing here
knows about runs or models.
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, NoReturn, cast, overload

import msgspec

from hermes.batch.dataset_line import BadLine, DatasetRow, read_row, stripped
from hermes.batch.identity import row_hash
from hermes.batch.rowtable import DIGEST
from hermes.core.errors import OperatorError, UsageError

__all__ = ["Dataset", "DatasetRow", "read_dataset"]

#: Different choices of toolsets that are remembered by number.
MANY = 65_535
#: How many broken lines one message names.
NAMED_LINES = 20


class Rows(Sequence[DatasetRow]):
    """The rows of a file, read when they are asked for: kept are where they stand and what they are (a hash), 24 bytes
    each; blank lines between them cost four more, different choices of toolsets two. Those of a packed file are read
    fastest in their order. `close` it."""

    def __init__(self, path: Path, modules: Collection[str]) -> None:
        self.path = path
        self._modules = modules
        self._offsets = array("Q")
        self._end = 0  # of the last row; what stands between two others is blank
        self._lines: array[int] | None = None  # None: a row in each line
        self._named: array[int] | None = None  # None: all of the first choice
        self._choices: dict[tuple[str, ...] | None, int] = {}
        self._chosen: list[tuple[str, ...] | None] = []
        self.digests = bytearray()
        self._file: IO[bytes] | None = None

    def note(self, row: DatasetRow, offset: int, length: int) -> None:
        """Remember where a row stands."""
        before = len(self._offsets)
        self._offsets.append(offset)
        self._end = offset + length
        if row.line != before + 1 and self._lines is None:
            self._lines = array("I", range(1, before + 1))
        if self._lines is not None:
            self._lines.append(row.line)
        choice = self._choice(row.toolsets)
        if choice and self._named is None:
            self._named = array("H", bytes(2)) * before
        if self._named is not None:
            self._named.append(choice)
        self.digests += bytes.fromhex(row_hash(row.source))

    def _choice(self, toolsets: tuple[str, ...] | None) -> int:
        """The number of a choice; more different ones than fit are read from the row again."""
        known = self._choices.get(toolsets)
        if known is None and len(self._chosen) < MANY:
            known = self._choices[toolsets] = len(self._chosen)
            self._chosen.append(toolsets)
        return MANY if known is None else known

    def toolsets(self, position: int) -> tuple[str, ...] | None:
        """The toolsets that a row names."""
        number = 0 if self._named is None else self._named[position]
        return self[position].toolsets if number == MANY else self._chosen[number]

    def cut(self, count: int) -> None:
        """Keep the first `count` rows."""
        if count >= len(self):
            return
        self._end = self._offsets[count]
        for kept in (self._offsets, self._lines, self._named):
            if kept is not None:
                del kept[count:]
        del self.digests[count * DIGEST :]

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, position: int) -> DatasetRow: ...

    @overload
    def __getitem__(self, position: slice) -> list[DatasetRow]: ...

    def __getitem__(self, position: int | slice) -> DatasetRow | list[DatasetRow]:
        """Read a row.

        Raises:
            OperatorError: it is not what it was when the dataset was checked.
        """
        if isinstance(position, slice):
            return [self[one] for one in range(*position.indices(len(self)))]
        if not -len(self) <= position < len(self):
            raise IndexError(position)
        position %= len(self)
        number = position + 1 if self._lines is None else self._lines[position]
        start = self._offsets[position]
        end = self._offsets[position + 1] if position + 1 < len(self) else self._end
        try:
            row, _ = read_row(number, stripped(number, self._read(start, end - start)), self._modules)
            same = bytes.fromhex(row_hash(row.source)) == self.digests[position * DIGEST : (position + 1) * DIGEST]
        except (OSError, EOFError, zlib.error, BadLine):
            same = False
        if not same:
            raise OperatorError(
                f"{self.path} was changed while the run read it: line {number} is another than at the start. What has "
                "ended stands. Put the old file back and use --resume, or go on with the new one by --resume "
                "--accept_changes."
            )
        return row

    def _read(self, offset: int, length: int) -> bytes:
        if self._file is None:
            file = _open(self.path)
            if not isinstance(file, gzip.GzipFile):
                with file:
                    file.seek(offset)
                    return file.read(length)
            self._file = file  # going on in a packed file is cheap, beginning anew is not
        self._file.seek(offset)
        return self._file.read(length)

    def close(self) -> None:
        """Close the file; a row that is asked for later opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a file in order. `replaced_surrogates` counts texts in which lone surrogates were replaced."""

    path: str
    rows: Rows
    replaced_surrogates: int = 0


def read_dataset(path: Path, max_samples: int | None = None, modules: Collection[str] = ()) -> Dataset:
    """Read and check the dataset at `path`, all of it, then keep the first `max_samples` rows. `modules` are the Python
    modules that verifiers may name.

    Raises:
        UsageError: the file cannot be read, has no rows, or has lines that cannot be used (up to 20 are named).
    """
    rows = Rows(path, modules)
    problems: list[str] = []
    replaced = 0
    for number, offset, raw in _lines(path):
        line = stripped(number, raw)
        if not line:
            continue
        try:
            row, scrubbed = read_row(number, line, modules)
        except BadLine as error:
            problems.append(f"  {path}:{number}: {error}")
        else:
            rows.note(row, offset, len(raw))
            replaced += scrubbed
    if problems:
        _refuse(path, problems)
    if not rows:
        raise UsageError(
            f"{path}: the dataset has no rows. Each line has to be an object such as "
            '{"prompt": "Write a palindrome function"}.'
        )
    if max_samples is not None:
        rows.cut(max_samples)
    return Dataset(path=str(path), rows=rows, replaced_surrogates=replaced)


def _refuse(path: Path, problems: list[str]) -> NoReturn:
    shown = problems[:NAMED_LINES]
    more = len(problems) - len(shown)
    if more:
        shown.append(f"  and {more} more")
    count = "1 line" if len(problems) == 1 else f"{len(problems)} lines"
    raise UsageError(
        "\n".join(
            [
                f"{path}: {count} cannot be used, so nothing was run:",
                *shown,
                "Correct or remove them, then start again.",
            ]
        )
    )


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset (in the unpacked file) and bytes of each line."""
    try:
        with _open(path) as file:
            before = _looks(path)
            offset = 0
            for number, raw in enumerate(file, start=1):
                yield number, offset, raw
                offset += len(raw)
            after = _looks(path)
    except EOFError as error:
        raise UsageError(
            f"{path} is cut short: it is packed, and its end is missing. Nothing was run. Bring it here again; "
            "`gzip -dc` prints what there is of it."
        ) from error
    except (OSError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(
            f"cannot read the dataset {path}: {why}. Give the path of a JSONL file (it may be packed, as .gz) with "
            "--dataset_file."
        ) from error
    if before != after:
        raise UsageError(
            f"{path} was changed while it was read: it had {before[0]:,} bytes and now has {after[0]:,}. Nothing was "
            "run. Start again once it is complete."
        )


def _open(path: Path) -> IO[bytes]:
    """Open a file of lines, packed or not, by what it is and not by its name."""
    file = path.open("rb")
    packed = file.peek(2)[:2] == b"\x1f\x8b"
    if not packed:
        return file
    file.close()
    return cast("IO[bytes]", gzip.open(path, "rb"))


def _looks(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino
