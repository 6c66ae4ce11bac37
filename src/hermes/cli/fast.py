"""`hermes --version` and `hermes --help`, answered before anything else is imported.

The help text is a file made by `python -m hermes.cli.docs` from the commands themselves.
"""

from __future__ import annotations

import os
import sys

import hermes

__all__ = ["HELP_FILE", "answer", "reader_gone"]

HELP_FILE = os.path.join(os.path.dirname(__file__), "help.txt")


def answer(args: list[str]) -> int | None:
    """Print the version or the top-level help; None if something else is asked."""
    if args in (["--version"], ["-V"]):
        return _say(f"hermes {hermes.__version__}\n")
    if args in (["--help"], ["-h"]):
        with open(HELP_FILE, encoding="utf-8") as file:
            return _say(file.read())
    return None


def reader_gone() -> int:
    """The reader went away (`hermes … | head`): a second message at exit about the same pipe would help nobody. Returns
    the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _say(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        return reader_gone()
    return 0
