"""Plain text shapes that several commands print: aligned rows, JSON, ages. Knows no command."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import click
import msgspec

from hermes.chat.render import escaped, rows

__all__ = ["print_json", "rows", "terminal_width"]


def print_json(value: Any) -> None:
    """Print a value (structs included) as indented JSON."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    click.echo(escaped(json.dumps(plain, ensure_ascii=False, indent=2)))


def terminal_width() -> int | None:
    """Columns of the terminal that reads stdout; None where none does, so that nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
