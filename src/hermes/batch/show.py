"""Rows of a run for people to read. Control characters are shown as such, so that no tool output can play with the
terminal; long texts are cut. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from hermes.batch.folder import RunFolder
from hermes.batch.settings import check_run_name
from hermes.core.errors import OperatorError, UsageError

__all__ = ["readable_row", "show_rows"]

#: Characters of one text that are shown.
CUT = 1_200

_TITLES = {"human": "user", "gpt": "model", "tool": "tool"}


def show_rows(data_dir: Path, run_name: str, which: str, count: int) -> Iterator[str]:
    """Yield lines for the first `count` rows of a merged file: `which` is trajectories, rejected or failed.

    Raises:
        UsageError: there is no such run, or it has not been merged yet.
        OperatorError: the file holds something else than rows.
    """
    folder = RunFolder(data_dir, check_run_name(run_name))
    path = folder.path / f"{which}.jsonl"
    if not path.exists():
        known = ", ".join(sorted(item.parent.name for item in data_dir.glob("*/run.json"))[:10])
        raise UsageError(f"there is no {path}. Runs in {data_dir}: {known or 'none'}.")
    shown = 0
    with path.open("rb") as file:
        for line in islice(file, count):
            try:
                row = msgspec.json.decode(line, type=dict[str, Any])
                yield from readable_row(row)
            except (msgspec.DecodeError, KeyError, TypeError) as error:
                raise OperatorError(f"{path}:{shown + 1} is no row: {error}") from error
            shown += 1
    if not shown:
        yield f"{path} has no rows"


def readable_row(row: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one row."""
    used = ", ".join(f"{name} {stats['count']}" for name, stats in row["tool_stats"].items() if stats["count"])
    state = "completed" if row["completed"] else row["finish_reason"]
    reason = f" · {row['reason']}: {row['detail']}" if row.get("reason") else ""
    yield _clean(f"── row {row['prompt_index']} · {row['model']} · {state} · tools: {used or 'none'}{reason}")
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
