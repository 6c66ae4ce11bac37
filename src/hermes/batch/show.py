"""Rows of a run for people to read. Control characters are shown as such, so that no tool output can play with the
terminal; long texts are cut. Changes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from hermes.batch.folder import RunFolder, no_such_run, run_names
from hermes.batch.settings import check_run_name
from hermes.batch.steering import is_held
from hermes.core.errors import OperatorError, UsageError

__all__ = ["readable_row", "rows_of", "show_rows"]

#: The merged files in which a row may stand.
FILES = ("trajectories", "rejected", "failed")
#: Characters of one text that are shown.
CUT = 1_200

_TITLES = {"human": "user", "gpt": "model", "tool": "tool"}


def show_rows(data_dir: Path, run_name: str, which: str, count: int, index: int | None = None) -> Iterator[str]:
    """Yield lines for rows of a run, as `rows_of` finds them.

    Raises:
        UsageError, OperatorError: as `rows_of`.
    """
    folder = RunFolder(data_dir, check_run_name(run_name))
    found = rows_of(data_dir, run_name, which, count, index)
    first = next(found, None)
    if not _merged(folder, which):
        yield f"run {run_name!r} has not ended: its rows as they stand before the filters"
        yield ""
    if first is None:
        yield f"{_merged_path(folder, which)} has no rows" if _merged(folder, which) else "none has ended yet"
    else:
        yield from readable_row(first)
    for row in found:
        yield from readable_row(row)


def rows_of(
    data_dir: Path, run_name: str, which: str, count: int, index: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the first `count` rows of a merged file: `which` is trajectories, rejected or failed. With an `index` those
    are all rollouts of that row, and an empty `which` looks for them in all three files. Before the first merge, and
    while the run goes on, the rows of the batch files stand in for the kept ones: those that ended and did not fail.

    Raises:
        UsageError: there is no such run, it has not been merged yet, or it has no such row.
        OperatorError: the file holds something else than rows.
    """
    folder = RunFolder(data_dir, check_run_name(run_name))
    paths = [_merged_path(folder, name) for name in ((which,) if which else FILES)]
    missing = next((path for path in paths if not path.exists()), None)
    if missing is not None and run_name not in run_names(data_dir):
        raise no_such_run(data_dir, run_name)
    if not _merged(folder, which):
        paths = [folder.batch_path(number) for number in sorted(folder.batch_numbers())]
    elif missing is not None:
        raise _not_yet(folder, missing)
    rows = (row for path in paths for row in _rows(path))
    if index is None:
        yield from islice(rows, count)
        return
    found = False
    for row in rows:
        if row["prompt_index"] == index:
            found = True
            yield row
    if not found:
        where = ", ".join(path.name for path in paths) or "its folder yet"
        raise UsageError(
            f"run {run_name!r} has no row {index} in {where}. Rows are counted from 0; `hermes batch status` says how "
            "many are pending."
        )


def _merged_path(folder: RunFolder, name: str) -> Path:
    return folder.path / f"{name}.jsonl"


def _merged(folder: RunFolder, which: str) -> bool:
    """Whether the merged files are what is to be read: a run that goes on has rows that are not in them."""
    return which not in ("", FILES[0]) or (_merged_path(folder, FILES[0]).exists() and not is_held(folder))


def _not_yet(folder: RunFolder, path: Path) -> UsageError:
    name = shlex.quote(folder.run_name)
    how = (
        f"it is made when the run ends; `hermes batch show {name}` prints what has ended so far."
        if is_held(folder)
        else f"`hermes batch merge {name}` makes it."
    )
    return UsageError(f"run {folder.run_name!r} has no {path.name} yet: {how}")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # it is being written, or was cut off
            try:
                row = msgspec.json.decode(line, type=dict[str, Any])
                _ = row["prompt_index"], row["conversations"], row["tool_stats"]
            except (msgspec.DecodeError, KeyError) as error:
                raise OperatorError(f"{path}:{number} is no row: {error}") from error
            yield row


def readable_row(row: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one row."""
    used = ", ".join(f"{name} {stats['count']}" for name, stats in row["tool_stats"].items() if stats["count"])
    state = "completed" if row["completed"] else row["finish_reason"]
    reason = f" · {row['reason']}: {row['detail']}" if row.get("reason") else ""
    rollout = f".{row['rollout_index']}" if row.get("rollout_index") else ""
    score = f" · score {row['score']:.3g}" if row.get("score") is not None else ""
    name = f"row {row['prompt_index']}{rollout}"
    yield _clean(f"── {name} · {row['model']} · {state}{score} · tools: {used or 'none'}{reason}")
    for turn in row["conversations"]:
        yield f"[{_TITLES.get(turn['from'], turn['from'])}]"
        text = turn["value"].removeprefix("<think>\n</think>").strip()
        if turn["from"] == "tool":
            yield from map(_indented, _results(text))
        elif text:
            yield _indented(text)
        for call in turn.get("tool_calls", ()):
            arguments = msgspec.json.encode(call["arguments"]).decode()
            yield _indented(f"→ {call['name']} {arguments}")
    yield ""


def _results(text: str) -> Iterator[str]:
    """What tools brought, for a person: an object field by field, its texts in lines of their own; else as it is."""
    try:
        result = msgspec.json.decode(text)
    except msgspec.DecodeError:
        result = None
    if not isinstance(result, dict):
        yield text
        return
    for name, value in result.items():
        said = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        lines = said.rstrip("\n")  # the last one ends with the field
        yield f"{name}:\n{lines}" if "\n" in lines else f"{name}: {lines}"


def _indented(text: str) -> str:
    cut = text if len(text) <= CUT else f"{text[:CUT]} … ({len(text) - CUT} more characters)"
    return "\n".join(f"  {_clean(line)}" for line in cut.splitlines())


def _clean(text: str) -> str:
    return "".join(ch if ch.isprintable() or ch == "\t" else f"\\x{ord(ch):02x}" for ch in text)
