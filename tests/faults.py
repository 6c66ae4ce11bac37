"""The table of `tests/faults.md` beside the marks in the tests: what holds which fault, and what is missing.

    python -m tests.faults          list what does not fit together
    python -m tests.faults --write  bring the table in line with the marks; words and reasons are kept

A fault with a mark stands in the first table with the tests that hold it, one without a mark in the second with what it
waits for.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent
TABLE = ROOT / "faults.md"
UNNAMED = "(say in a line what the fault is)"
OPEN = "nothing holds it yet"
_ROW = re.compile(r"^\| (?P<id>[A-Z]\d+) \| (?P<words>[^|]*) \| (?P<last>[^|]*) \|$", re.MULTILINE)
_LATER = "## Later"


class Row(NamedTuple):
    """A row of either table. `tests` is empty in the second one, `reason` in the first."""

    words: str
    tests: tuple[str, ...] = ()
    reason: str = ""


def marks(root: Path = ROOT) -> dict[str, list[str]]:
    """The tests that carry a mark, by the fault's id: `tests/area/test_x.py::test_name`."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.fault":
                    for argument in decorator.args:
                        name = f"{path.relative_to(root.parent).as_posix()}::{node.name}"
                        found.setdefault(str(ast.literal_eval(argument)), []).append(name)
    return found


def rows(text: str) -> dict[str, Row]:
    """The rows of both tables."""
    now, _, later = text.partition(_LATER)
    held = {row["id"]: Row(row["words"], tuple(re.findall(r"`([^`]+)`", row["last"]))) for row in _ROW.finditer(now)}
    waiting = {row["id"]: Row(row["words"], reason=row["last"]) for row in _ROW.finditer(later)}
    twice = held.keys() & waiting.keys()
    if twice:
        raise ValueError(f"{TABLE.name}: {', '.join(sorted(twice))} stands in both tables")
    return held | waiting


def missing(found: dict[str, list[str]], table: dict[str, Row]) -> list[str]:
    """What does not fit together, a line each."""
    faults = [f"{fault}: marked in {found[fault][0]}, but it has no row" for fault in found.keys() - table.keys()]
    for fault, row in table.items():
        marked = found.get(fault, [])
        faults += [f"{fault}: {test} carries no such mark" for test in row.tests if test not in marked]
        if row.reason and marked:
            faults.append(f"{fault}: stands under Later, but {marked[0]} holds it")
        if not row.reason and not row.tests:
            faults.append(f"{fault}: neither a test nor a reason")
        if row.words == UNNAMED:
            faults.append(f"{fault}: has no words")
    return sorted(faults)


def render(text: str, found: dict[str, list[str]]) -> str:
    """`text` with both tables made anew."""
    table = rows(text)
    head = text.partition("| id |")[0]
    middle = _LATER + text.partition(_LATER)[2].partition("| id |")[0]
    held, later = ["| id | fault | held by |", "|---|---|---|"], ["| id | fault | waits for |", "|---|---|---|"]
    for fault in sorted(table.keys() | found.keys()):
        row = table.get(fault, Row(UNNAMED))
        if fault in found:
            held.append(f"| {fault} | {row.words} | {', '.join(f'`{test}`' for test in found[fault])} |")
        else:
            later.append(f"| {fault} | {row.words} | {row.reason or OPEN} |")
    return "\n".join([head.rstrip("\n"), "", *held, "", middle.rstrip("\n"), "", *later, ""])


def main(arguments: list[str]) -> int:
    """List what is missing; with `--write` put right what can be."""
    found, text = marks(), TABLE.read_text(encoding="utf-8")
    if "--write" in arguments:
        text = render(text, found)
        TABLE.write_text(text, encoding="utf-8")
    left = missing(found, rows(text))
    print("\n".join(left) if left else f"{len(found)} faults are held, {len(rows(text)) - len(found)} wait")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
