"""`hermes usage`: what was spent, summed up from the calls in the journal. Nothing is changed."""

from __future__ import annotations

import re
import time
from typing import Any

import anyio
import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text as Cell

from hermes.cli.options import home_of
from hermes.cli.screens import print_json, terminal_width
from hermes.config import Home
from hermes.core.errors import OperatorError
from hermes.core.messages import Usage
from hermes.core.usage import GROUPINGS, TURN_ENDED, Grouping, StoredCall, UsageLine, UsageTable, fold, stored_call
from hermes.store.sqlite import open_store

__all__ = ["usage"]

_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class _Since(click.ParamType[float | None]):
    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        if value is None or isinstance(value, float):
            return value
        if value == "all":
            return None
        match = re.fullmatch(r"(\d+)([mhdw])", str(value).strip().lower())
        if match is None:
            self.fail(f"{value!r} is no span of time: write 30m, 12h, 7d, 4w, or all", param, ctx)
        return float(int(match[1]) * _UNITS[match[2]])


@click.command(
    epilog="\b\nExamples:\n  hermes usage\n  hermes usage --since 30d --by model\n  hermes usage --by task --json"
)
@click.option("--since", type=_Since(), default="7d", show_default=True, metavar="SPAN", help="30m, 12h, 7d, 4w, all.")
@click.option("--by", type=click.Choice(GROUPINGS), default="day", show_default=True, help="What is summed up.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def usage(context: click.Context, /, since: float | None, by: Grouping, as_json: bool) -> None:
    """Show tokens and money of all model calls of this home: of conversations, their tasks, and side calls.

    Each call is counted once, under the task that made it. Batch runs keep their own figures in their folders.
    """
    start = 0.0 if since is None else time.time() - since
    table = fold(anyio.run(_calls, home_of(context), start), by)
    if as_json:
        print_json({"since": start or None, "by": by, "rows": [_plain(line) for line in table.lines]} | _sum(table))
    elif not table.lines:
        click.echo("no model calls in this time")
    else:
        _print(table)


async def _calls(home: Home, start: float) -> list[StoredCall]:
    # a look must not make a journal where there is none
    if not home.database.exists():
        return []
    store = await open_store(home.database)
    try:
        rows = await store.events_of_type(TURN_ENDED, start)
    finally:
        await store.close()
    try:
        return [stored_call(row.task_id, row.session_id, row.at, row.body) for row in rows]
    except msgspec.DecodeError as error:
        raise OperatorError(f"{home.database} holds a call that cannot be read ({error}). Was it changed?") from error


def _print(table: UsageTable) -> None:
    subtree = table.by == "task"
    shown = Table(table.by, box=None, pad_edge=False)
    for name in ("calls", "input", "cached", "output", "reasoning", "cost", *(("with its tasks",) if subtree else ())):
        shown.add_column(name, justify="right")
    for line in (*table.lines, table.total):
        used = line.usage
        mark = "~" if line.estimated else ""
        cells = [line.key, f"{line.calls}", f"{mark}{used.input:,}", f"{used.cached:,}", f"{mark}{used.output:,}"]
        cells += [f"{used.reasoning:,}", _cost(line)]
        if subtree:
            cells.append(_money(line.subtree) if line.subtree is not None else "")
        shown.add_row(*(Cell(cell) for cell in cells), end_section=line is table.lines[-1])
    Console(width=terminal_width() or 1000).print(shown)  # a program or a file that reads gets every id whole
    if table.total.estimated:
        click.echo(f"~ {table.total.estimated} calls whose provider reported nothing are estimated")
    if table.total.unpriced:
        click.echo(
            f"{table.total.unpriced} calls have an unknown price and stand in no sum of money; prices are set under "
            "`models:` in config.yaml"
        )


def _cost(line: UsageLine) -> str:
    if line.unpriced == 0:
        return _money(line.usage) or "$0.0000"
    return f"{_money(line.usage)} + unknown price" if line.usage.cost_usd is not None else "unknown price"


def _money(usage: Usage | None) -> str:
    return f"${usage.cost_usd:.4f}" if usage is not None and usage.cost_usd is not None else ""


def _figures(usage: Usage) -> dict[str, Any]:
    return {
        "input": usage.input,
        "cached": usage.cached,
        "cache_write": usage.cache_write,
        "output": usage.output,
        "reasoning": usage.reasoning,
        "total": usage.total,
        "cost_usd": usage.cost_usd,
    }


def _plain(line: UsageLine) -> dict[str, Any]:
    found = {"key": line.key, "calls": line.calls, **_figures(line.usage)}
    found |= {"unpriced_calls": line.unpriced, "estimated_calls": line.estimated}
    if line.subtree is not None:
        found["subtree"] = _figures(line.subtree)
    return found


def _sum(table: UsageTable) -> dict[str, Any]:
    return {"total": {name: value for name, value in _plain(table.total).items() if name != "key"}}
