"""What a person sees when a run has ended: tables of what came out of it, from its `statistics.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["print_tables"]

#: Tools that are listed.
MOST_TOOLS = 12


def print_tables(console: Console, folder: Path) -> None:
    """Print the tables of the run in `folder`, and where its page is; nothing where it has no statistics."""
    path = folder / "statistics.json"
    if not path.exists():
        return
    found = msgspec.json.decode(path.read_bytes())
    for table in (_outcomes(found), _tools(found["tool_statistics"]), _scores(found.get("scores"))):
        if table is not None:
            console.print(table)
    console.print(Text(f"page: {folder / 'report.html'}"))


def _outcomes(found: dict[str, Any]) -> Table:
    table = Table(title=Text(found["run_name"]), title_justify="left", box=None, pad_edge=False)
    table.add_column("rollouts")
    table.add_column("", justify="right")
    table.add_row("kept", f"{found['kept']:,}")
    for what, reasons in (("rejected", found["rejected_by_reason"]), ("failed", found["failed_by_kind"])):
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
            table.add_row(Text(f"{what}: {reason}"), f"{count:,}")
    if found["pending"]:
        table.add_row("pending", f"{found['pending']:,}")
    usage = found["usage"]
    table.add_row("model calls", f"{found['api_calls']:,}")
    table.add_row("tokens in / out", f"{usage['input']:,} / {usage['output']:,}")
    if usage.get("cost_usd") is not None:
        table.add_row("cost", f"${usage['cost_usd']:.4f}")
    return table


def _tools(statistics: dict[str, dict[str, Any]]) -> Table | None:
    used = {name: figures for name, figures in statistics.items() if figures["count"]}
    if not used:
        return None
    table = Table(box=None, pad_edge=False)
    for name in ("tool", "calls", "failed", "success %"):
        table.add_column(name, justify="left" if name == "tool" else "right")
    for name, figures in sorted(used.items(), key=lambda item: -item[1]["count"])[:MOST_TOOLS]:
        table.add_row(Text(name), f"{figures['count']:,}", f"{figures['failure']:,}", f"{figures['success_rate']:.1f}")
    if len(used) > MOST_TOOLS:
        table.add_row(f"and {len(used) - MOST_TOOLS} more", "", "", "")
    return table


def _scores(scores: dict[str, Any] | None) -> Table | None:
    if scores is None:
        return None
    table = Table(box=None, pad_edge=False)
    for name in ("scored", "mean", "lowest", "highest", "verified", "errors of verifiers"):
        table.add_column(name, justify="right")
    errors = sum(scores["verifier_errors"].values())
    figures = [f"{scores[name]:.3f}" for name in ("mean", "lowest", "highest")]
    table.add_row(f"{scores['scored']:,}", *figures, f"{scores['verified']:,}", f"{errors:,}")
    return table
