"""The toolsets of every rollout of a run: looked through as a whole before it begins, and one by one as rows start.
Drawing is repeatable, so nothing is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from hermes.batch.distribution import Distribution, Draw, choose
from hermes.batch.plan import Mark

__all__ = ["Drawn", "Draws"]


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """What all rollouts together get: toolsets, those that rows name and that do not exist here, and whether any row
    left the choice to the run."""

    used: frozenset[str]
    missing: tuple[str, ...]
    by_chance: bool


class Draws:
    """Draws from `table` for rows that name none; `available` are the toolsets there are."""

    def __init__(self, table: Distribution, available: Collection[str]) -> None:
        self._table = table
        self._available = available

    def __call__(self, row_id: str, toolsets: tuple[str, ...] | None) -> Draw:
        """The toolsets of a row: the same ones each time."""
        return choose(toolsets, self._table, row_id, self._available)

    def all(self, marks: Iterable[Mark]) -> Drawn:
        """Look all of them through."""
        used: set[str] = set()
        missing: set[str] = set()
        by_chance = False
        for mark in marks:
            draw = self(mark.row_id, mark.toolsets)
            used.update(draw.toolsets)
            missing.update(draw.missing)
            by_chance = by_chance or mark.toolsets is None
        return Drawn(used=frozenset(used), missing=tuple(sorted(missing)), by_chance=by_chance)
