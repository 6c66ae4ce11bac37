"""The dataset of a batch: a JSONL file of prompts, packed or not, checked as a whole before anything runs. What rows
hold is not kept: it is read again when a row's turn comes, and compared with what was checked.

A line that cannot be used is refused with its number: a run that leaves rows out in silence is worse than one that
does not start. Byte-order mark, CRLF and blank lines are fine; lone surrogates are replaced and counted. Nothing here
knows about runs or models.
"""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, cast, overload

import msgspec

from hermes.batch.identity import row_hash
from hermes.batch.rowtable import DIGEST
from hermes.batch.verifiers import Verifier, check_modules, parse_verifiers
from hermes.core.codec import scrub_surrogates
from hermes.core.errors import OperatorError, UsageError

__all__ = ["Dataset", "DatasetRow", "read_dataset"]

#: Different choices of toolsets that are remembered by number.
MANY = 65_535
#: How many broken lines one message names.
NAMED_LINES = 20

_BOM = b"\xef\xbb\xbf"


class DatasetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `line` counts from 1 in the file. `prompt` is what the model is asked; of a row of `messages` it is the
    last one, `before` are those of user and assistant before it, `system` the system text. `toolsets` is None where the
    row leaves the choice to the run.

    `source` is the whole row as decoded; what has no meaning here is carried through with it.
    """

    line: int
    prompt: str
    source: dict[str, Any]
    cwd: str | None = None
    toolsets: tuple[str, ...] | None = None
    image: str | None = None
    system: str = ""
    before: tuple[dict[str, str], ...] = ()
    verifiers: tuple[Verifier, ...] = ()


class Rows(Sequence[DatasetRow]):
    """The rows of a file, read when they are asked for: kept are where they stand and what they are (a hash), 42 bytes
    each. Those of a packed file are read fastest in their order. `close` it."""

    def __init__(self, path: Path, modules: Collection[str]) -> None:
        self.path = path
        self._modules = modules
        self._offsets = array("Q")
        self._lengths = array("Q")
        self._lines = array("Q")
        self._named = array("H")
        self._choices: dict[tuple[str, ...] | None, int] = {}
        self.digests = bytearray()
        self._file: IO[bytes] | None = None

    def note(self, row: DatasetRow, offset: int, length: int) -> None:
        """Remember where a row stands."""
        self._offsets.append(offset)
        self._lengths.append(length)
        self._lines.append(row.line)
        # More different choices than fit are read from the row again.
        choice = self._choices.setdefault(row.toolsets, len(self._choices)) if len(self._choices) < MANY else MANY
        self._named.append(self._choices.get(row.toolsets, choice))
        self.digests += bytes.fromhex(row_hash(row.source))

    def toolsets(self, position: int) -> tuple[str, ...] | None:
        """The toolsets that a row names."""
        number = self._named[position]
        if number == MANY:
            return self[position].toolsets
        return next(itertools.islice(self._choices, number, None))

    def cut(self, count: int) -> None:
        """Keep the first `count` rows."""
        for kept in (self._offsets, self._lengths, self._lines, self._named):
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
        number = self._lines[position]
        try:
            raw = self._read(self._offsets[position], self._lengths[position])
            row, _ = _row(number, _stripped(number, raw), self._modules)
            same = bytes.fromhex(row_hash(row.source)) == self.digests[position * DIGEST : (position + 1) * DIGEST]
        except (OSError, EOFError, zlib.error, _BadLine):
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


class _BadLine(Exception):
    """One line cannot be used; the text says why."""


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
        line = _stripped(number, raw)
        if not line:
            continue
        try:
            row, scrubbed = _row(number, line, modules)
        except _BadLine as error:
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
    except (OSError, EOFError, zlib.error) as error:
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


def _stripped(number: int, raw: bytes) -> bytes:
    return (raw.removeprefix(_BOM) if number == 1 else raw).strip()


def _row(number: int, line: bytes, modules: Collection[str]) -> tuple[DatasetRow, int]:
    value, whole = _decode(line)
    if not isinstance(value, dict):
        raise _BadLine(f'not an object but {_kind(value)}; write {{"prompt": …}}')
    scrubbed = [0]
    source = value if whole else _scrub(value, scrubbed)
    prompt, before, system = _asked(source)
    image = _text(source, "docker_image") or _text(source, "image")
    return (
        DatasetRow(
            line=number,
            prompt=prompt,
            source=source,
            cwd=_text(source, "cwd"),
            toolsets=_toolsets(source.get("toolsets")),
            system="\n\n".join(part for part in (_text(source, "system"), system) if part),
            before=before,
            verifiers=_verifiers(source.get("verifier"), modules),
            image=image,
        ),
        scrubbed[0],
    )


def _asked(source: dict[str, Any]) -> tuple[str, tuple[dict[str, str], ...], str]:
    """What a row asks: the prompt, the messages before it, and their system text."""
    if "messages" in source and "prompt" not in source:
        return _conversation(source["messages"])
    if "prompt" not in source:
        raise _BadLine('no "prompt" (or "messages")')
    prompt = source["prompt"]
    if not isinstance(prompt, str):
        raise _BadLine(f'"prompt" is {_kind(prompt)}, not a string')
    if not prompt.strip():
        raise _BadLine('"prompt" is empty')
    return prompt, (), ""


def _conversation(messages: Any) -> tuple[str, tuple[dict[str, str], ...], str]:
    if not isinstance(messages, list) or not messages:
        raise _BadLine(f'"messages" is {_kind(messages)}, not a list of messages')
    system: list[str] = []
    said: list[dict[str, str]] = []
    for number, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if role not in ("system", "user", "assistant") or not isinstance(content, str):
            raise _BadLine(f'message {number} needs "role" (system, user, assistant) and "content", a string')
        if role == "system":
            system.append(content)
        elif bool(said) and said[-1]["role"] == role or not said and role == "assistant":
            raise _BadLine(f"message {number}: user and assistant have to take turns, the user first")
        else:
            said.append({"role": role, "content": content})
    if not said or said[-1]["role"] != "user" or not said[-1]["content"].strip():
        raise _BadLine("the last message has to be a user's, and not empty")
    return said[-1]["content"], tuple(said[:-1]), "\n\n".join(system)


def _decode(line: bytes) -> tuple[Any, bool]:
    """The value of a line, and whether it is known to hold no lone surrogate."""
    try:
        return msgspec.json.decode(line), True
    except msgspec.DecodeError:
        pass  # msgspec takes no lone surrogates and names no column: the standard parser decides
    except RecursionError:
        raise _BadLine("nested too deeply") from None
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_no_constant), False
    except UnicodeDecodeError as error:
        raise _BadLine(f"not UTF-8 (byte {error.start + 1} is 0x{line[error.start]:02x})") from None
    except json.JSONDecodeError as error:
        raise _BadLine(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise _BadLine("nested too deeply") from None


def _no_constant(name: str) -> NoReturn:
    raise _BadLine(f"not JSON: {name} is no JSON value")


def _scrub(value: Any, count: list[int]) -> Any:
    if isinstance(value, str):
        clean = scrub_surrogates(value)
        count[0] += clean != value
        return clean
    if isinstance(value, dict):
        return {_scrub(key, count): _scrub(item, count) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrub(item, count) for item in value]
    return value


def _text(source: dict[str, Any], name: str) -> str | None:
    value = source.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise _BadLine(f'"{name}" is {_kind(value)}, not a string')
    return value


def _toolsets(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _BadLine('"toolsets" is not a list of names')
    return tuple(dict.fromkeys(value))


def _verifiers(value: Any, modules: Collection[str]) -> tuple[Verifier, ...]:
    try:
        verifiers = parse_verifiers(value)
        check_modules(verifiers, modules)
    except ValueError as error:
        raise _BadLine(str(error)) from None
    return verifiers


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, list):
        return "a list"
    return "a string" if isinstance(value, str) else "an object"
