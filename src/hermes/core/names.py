"""Names that were mistyped: which one may have been meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'NAME'?`, the nearest of the known ones, to stand behind a sentence; empty where none is near."""
    near = get_close_matches(name, list(known), 1)
    return f" Did you mean {near[0]!r}?" if near else ""
