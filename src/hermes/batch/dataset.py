"""The dataset of a batch: a JSONL file of prompts, read once and checked as a whole before anything runs.

A line that cannot be used is refused with its number: a run that leaves rows out in silence is worse than one that
does not start. Byte-order mark, CRLF and blank lines are fine; lone surrogates are replaced and counted. Nothing here
knows about runs or models.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from hermes.batch.verifiers import Verifier, check_modules, parse_verifiers
from hermes.core.codec import scrub_surrogates
from hermes.core.errors import UsageError

__all__ = ["Dataset", "DatasetRow", "read_dataset"]

#: How many broken lines one message names.
NAMED_LINES = 20

_BOM = b"\xef\xbb\xbf"


class DatasetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `line` counts from 1 in the file. `toolsets` is None where the row leaves the choice to the run.

    `source` is the whole row as decoded; what has no meaning here is carried through with it.
    """

    line: int
    prompt: str
    source: dict[str, Any]
    cwd: str | None = None
    toolsets: tuple[str, ...] | None = None
    image: str | None = None
    verifiers: tuple[Verifier, ...] = ()


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a file in order. `replaced_surrogates` counts texts in which lone surrogates were replaced."""

    path: str
    rows: tuple[DatasetRow, ...]
    replaced_surrogates: int = 0


class _BadLine(Exception):
    """One line cannot be used; the text says why."""


def read_dataset(path: Path, max_samples: int | None = None, modules: Collection[str] = ()) -> Dataset:
    """Read and check the dataset at `path`, all of it, then keep the first `max_samples` rows. `modules` are the Python
    modules that verifiers may name.

    Raises:
        UsageError: the file cannot be read, has no rows, or has lines that cannot be used (up to 20 are named).
    """
    rows: list[DatasetRow] = []
    problems: list[str] = []
    replaced = 0
    for number, line in _lines(path):
        try:
            row, scrubbed = _row(number, line, modules)
        except _BadLine as error:
            problems.append(f"  {path}:{number}: {error}")
        else:
            rows.append(row)
            replaced += scrubbed
    if problems:
        _refuse(path, problems)
    if not rows:
        raise UsageError(
            f"{path}: the dataset has no rows. Each line has to be an object such as "
            '{"prompt": "Write a palindrome function"}.'
        )
    return Dataset(path=str(path), rows=tuple(rows[:max_samples]), replaced_surrogates=replaced)


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


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(_BOM)
                line = line.strip()
                if line:
                    yield number, line
    except OSError as error:
        raise UsageError(
            f"cannot read the dataset {path}: {error.strerror}. Give the path of a JSONL file with --dataset_file."
        ) from error


def _row(number: int, line: bytes, modules: Collection[str]) -> tuple[DatasetRow, int]:
    value = _decode(line)
    if not isinstance(value, dict):
        raise _BadLine(f'not an object but {_kind(value)}; write {{"prompt": …}}')
    scrubbed = [0]
    source = _scrub(value, scrubbed)
    if "prompt" not in source:
        raise _BadLine('no "prompt"')
    prompt = source["prompt"]
    if not isinstance(prompt, str):
        raise _BadLine(f'"prompt" is {_kind(prompt)}, not a string')
    if not prompt.strip():
        raise _BadLine('"prompt" is empty')
    image = _text(source, "docker_image") or _text(source, "image")
    return (
        DatasetRow(
            line=number,
            prompt=prompt,
            source=source,
            cwd=_text(source, "cwd"),
            toolsets=_toolsets(source.get("toolsets")),
            verifiers=_verifiers(source.get("verifier"), modules),
            image=image,
        ),
        scrubbed[0],
    )


def _decode(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        pass  # msgspec takes no lone surrogates and names no column: the standard parser decides
    except RecursionError:
        raise _BadLine("nested too deeply") from None
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_no_constant)
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
