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
from hermes.core.errors import OperatorError, UsageError

__all__ = ["readable_row", "show_rows"]

#: The merged files in which a row may stand.
FILES = ("trajectories", "rejected", "failed")
#: Characters of one text that are shown.
CUT = 1_200

_TITLES = {"human": "user", "gpt": "model", "tool": "tool"}


def show_rows(data_dir: Path, run_name: str, which: str, count: int, index: int | None = None) -> Iterator[str]:
    """Yield lines for the first `count` rows of a merged file: `which` is trajectories, rejected or failed. With an
    `index` those are all rollouts of that row, and an empty `which` looks for them in all three files.

    Raises:
        UsageError: there is no such run, it has not been merged yet, or it has no such row.
        OperatorError: the file holds something else than rows.
    """
    folder = RunFolder(data_dir, check_run_name(run_name))
    paths = [folder.path / f"{name}.jsonl" for name in ((which,) if which else FILES)]
    for path in paths:
        if not path.exists():
            if run_name not in run_names(data_dir):
                raise no_such_run(data_dir, run_name)
            raise UsageError(
                f"run {run_name!r} has no {path.name} yet: it is made at the end of the run, and at any time by "
                f"`hermes batch merge {shlex.quote(run_name)}`."
            )
    if index is None:
        shown = False
        for row in islice(_rows(paths[0]), count):
            shown = True
            yield from readable_row(row)
        if not shown:
            yield f"{paths[0]} has no rows"
        return
    found = [row for path in paths for row in _rows(path) if row["prompt_index"] == index]
    if not found:
        where = ", ".join(path.name for path in paths)
        raise UsageError(f"run {run_name!r} has no row {index} in {where}. Rows are counted from 0.")
    for row in found:
        yield from readable_row(row)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
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
        if text:
            yield _indented(text)
        for call in turn.get("tool_calls", ()):
            arguments = msgspec.json.encode(call["arguments"]).decode()
            yield _indented(f"→ {call['name']} {arguments}")
    yield ""


def _indented(text: str) -> str:
    cut = text if len(text) <= CUT else f"{text[:CUT]} … ({len(text) - CUT} more characters)"
    return "\n".join(f"  {_clean(line)}" for line in cut.splitlines())


def _clean(text: str) -> str:
    return "".join(ch if ch.isprintable() or ch == "\t" else f"\\x{ord(ch):02x}" for ch in text)
