"""Toolset distributions: which toolsets a row gets when it names none.

Each toolset is drawn independently with its percentage, and if none is drawn the most probable one is taken. The draw
depends on the row alone, so that a row gets the same tools again when it is run again. Toolsets that do not exist in
this installation are left out, and the caller is told which.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

import msgspec

from hermes.core.errors import UsageError
from hermes.core.names import did_you_mean

__all__ = ["DISTRIBUTIONS", "Distribution", "Draw", "choose", "distribution", "table_of"]

#: Name -> toolset -> percent.
DISTRIBUTIONS: dict[str, dict[str, int]] = {
    "default": dict.fromkeys(("web", "vision", "image_gen", "terminal", "file", "moa", "browser"), 100),
    "balanced": dict.fromkeys(("web", "vision", "image_gen", "terminal", "file", "moa", "browser"), 50),
    "image_gen": {"image_gen": 90, "vision": 90, "web": 55, "terminal": 45, "moa": 10},
    "research": {"web": 90, "browser": 70, "vision": 50, "moa": 40, "terminal": 10},
    "science": {"web": 94, "terminal": 94, "file": 94, "vision": 65, "browser": 50, "image_gen": 15, "moa": 10},
    "development": {"terminal": 80, "file": 80, "moa": 60, "web": 30, "vision": 10},
    "safe": {"web": 80, "browser": 70, "vision": 60, "image_gen": 60, "moa": 50},
    "minimal": {"web": 100},
    "terminal_only": {"terminal": 100, "file": 100},
    "terminal_web": {"terminal": 100, "file": 100, "web": 100},
    "creative": {"image_gen": 90, "vision": 90, "web": 30},
    "reasoning": {"moa": 90, "web": 30, "terminal": 20},
    "browser_use": {"browser": 100, "web": 80, "vision": 70},
    "browser_only": {"browser": 100},
    "browser_tasks": {"browser": 97, "terminal": 15, "vision": 12},
    "terminal_tasks": {"terminal": 97, "file": 97, "web": 97, "browser": 75, "vision": 50, "image_gen": 10},
    "mixed_tasks": {"browser": 92, "terminal": 92, "file": 92, "web": 35, "vision": 15, "image_gen": 15},
}


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """The toolsets of one row, and those that were named but do not exist here."""

    toolsets: tuple[str, ...]
    missing: tuple[str, ...] = ()


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution cut down to the toolsets there are. `shares` is toolset -> percent; `seed` gives other draws."""

    name: str
    shares: dict[str, float]
    missing: tuple[str, ...] = ()
    seed: int | None = None

    def draw(self, row_id: str) -> tuple[str, ...]:
        """Draw the toolsets of a row: the same ones for the same `row_id` and seed."""
        of = row_id if self.seed is None else f"{self.seed}/{row_id}"
        drawn = tuple(name for name, percent in self.shares.items() if percent >= 100 or _percent(of, name) < percent)
        if drawn or not self.shares:
            return drawn
        return (max(self.shares, key=lambda name: self.shares[name]),)


def table_of(name: str, more: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the table called `name`, `more` being those beside the built-in ones, before which they come.

    Raises:
        UsageError: no such distribution.
    """
    table = more.get(name) or DISTRIBUTIONS.get(name)
    if table is None:
        known = dict.fromkeys([*more, *DISTRIBUTIONS])
        raise UsageError(
            f"unknown distribution {name!r}.{did_you_mean(name, known)} There are: {', '.join(known)}; or name a .yaml "
            "file with one of your own."
        )
    return dict(table)


def distribution(
    name: str, available: Collection[str], table: Mapping[str, float] | None = None, seed: int | None = None
) -> Distribution:
    """Return the distribution `name` (with its `table`, None for a built-in one) over the toolsets in `available`.

    Raises:
        UsageError: no such distribution, or none of its toolsets exists here.
    """
    table = table_of(name, {}) if table is None else table
    shares = {toolset: percent for toolset, percent in table.items() if toolset in available}
    if not shares:
        raise UsageError(
            f"distribution {name!r} draws from {', '.join(table)}, and none of these toolsets exists here. "
            f"Available: {', '.join(sorted(available)) or 'none'}."
        )
    missing = tuple(item for item in table if item not in shares)
    return Distribution(name=name, shares=shares, missing=missing, seed=seed)


def choose(wanted: tuple[str, ...] | None, drawn_from: Distribution, row_id: str, available: Collection[str]) -> Draw:
    """Return the toolsets of a row: those it names (`wanted`), else a draw."""
    if wanted is None:
        return Draw(toolsets=drawn_from.draw(row_id))
    return Draw(
        toolsets=tuple(name for name in wanted if name in available),
        missing=tuple(name for name in wanted if name not in available),
    )


def _percent(row_id: str, name: str) -> float:
    digest = hashlib.sha256(f"{row_id}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * 100
