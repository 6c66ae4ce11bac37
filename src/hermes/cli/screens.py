"""Plain text shapes that several commands print: aligned rows, JSON, ages. Knows no command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from hermes.chat.render import escaped, printable

__all__ = ["print_json", "rows"]


def print_json(value: Any) -> None:
    """Print a value (structs included) as indented JSON."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    click.echo(escaped(json.dumps(plain, ensure_ascii=False, indent=2)))


def rows(table: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Lay out rows in aligned columns; the last column is as long as it likes."""
    if not table:
        return ""
    # what models, servers and files wrote must not act on the terminal
    table = [[printable(cell).replace("\n", " ") for cell in row] for row in table]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]) - 1)]
    lines = []
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append((indent + "  ".join([*cells, row[-1]])).rstrip())
    return "\n".join(lines)
