"""`hermes --version` and `hermes --help`, answered before anything else is imported.

The help text is a file made by `python -m hermes.cli.docs` from the commands themselves.
"""

from __future__ import annotations

import os
import sys

import hermes

__all__ = ["HELP_FILE", "answer"]

HELP_FILE = os.path.join(os.path.dirname(__file__), "help.txt")


def answer(args: list[str]) -> int | None:
    """Print the version or the top-level help; None if something else is asked."""
    if args in (["--version"], ["-V"]):
        sys.stdout.write(f"hermes {hermes.__version__}\n")
        return 0
    if args in (["--help"], ["-h"]):
        with open(HELP_FILE, encoding="utf-8") as file:
            sys.stdout.write(file.read())
        return 0
    return None
