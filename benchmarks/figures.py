"""What a benchmark prints: one figure a line with its bar, as a table for people or as JSON lines for `run`.

It judges nothing beyond "ok" and "OVER": a benchmark is not a test, and its exit code says only whether it ran.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TextIO

import anyio
import msgspec

__all__ = ["Figure", "Options", "options", "run", "show"]


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measured value. `bar` is the most it may be, None where it is only told; `unit` such as `x` or `ms`.

    `note` gives what the value was made from.
    """

    name: str
    measured: float
    unit: str
    bar: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """`ok`, `OVER`, or nothing where there is no bar."""
        if self.bar is None:
            return ""
        return "ok" if self.measured <= self.bar else "OVER"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a benchmark was called. `quick` takes a fraction of the size, to see that it runs."""

    quick: bool = False
    json: bool = False
    runs: int = 3


def options(description: str | None, runs: int = 3) -> Options:
    """Read the command line that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fraction of the size")
    parser.add_argument("--json", action="store_true", help="one JSON object a figure")
    parser.add_argument("--runs", type=int, default=runs, help=f"pairs of runs, the median counts ({runs})")
    given = parser.parse_args()
    return Options(quick=given.quick, json=given.json, runs=1 if given.quick else max(1, given.runs))


def show(figures: Iterable[Figure], to: TextIO, *, as_json: bool = False) -> None:
    """Print figures."""
    figures = list(figures)
    if as_json:
        to.writelines(msgspec.json.encode(figure).decode() + "\n" for figure in figures)
        return
    width = max((len(figure.name) for figure in figures), default=0)
    to.write(f"{'figure':{width}}  {'bar':>10}  {'measured':>10}        \n")
    for figure in figures:
        bar = "" if figure.bar is None else f"{figure.bar:g} {figure.unit}"
        measured = f"{figure.measured:.3g} {figure.unit}"
        to.write(f"{figure.name:{width}}  {bar:>10}  {measured:>10}  {figure.verdict:4}  {figure.note}".rstrip() + "\n")


def run(
    description: str | None,
    figures: Callable[[Options], Iterable[Figure]],
    part: Callable[..., Awaitable[object]],
    arguments: Sequence[str],
) -> None:
    """Be a benchmark of several processes: `--part NAME …` is one of them and prints what it found as JSON, anything
    else measures and shows the figures."""
    if arguments[:1] == ["--part"]:
        sys.stdout.write(json.dumps(anyio.run(part, *arguments[1:])) + "\n")
        return
    given = options(description)
    show(figures(given), sys.stdout, as_json=given.json)
