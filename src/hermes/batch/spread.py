"""How numbers are spread, in a size of its own that does not grow with them: for the plots of a run and its means."""

from __future__ import annotations

import math
from collections import Counter

__all__ = ["Spread"]

#: Different values that are told apart.
CELLS = 4_096


class Spread:
    """Counts numbers by value. Where there are too many different ones they are counted in cells of one width, which
    doubles as often as it has to; a plot of some bars does not show it. Sum and ends are exact."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.low, self.high = math.inf, -math.inf
        self._width = 0.0  # 0: each value by itself
        self._cells: Counter[float] = Counter()

    def add(self, value: float) -> None:
        """Take a number in."""
        self.count += 1
        self.sum += value
        self.low, self.high = min(self.low, value), max(self.high, value)
        self._cells[self._cell(value)] += 1
        while len(self._cells) > CELLS:
            self._widen()

    def _cell(self, value: float) -> float:
        return value // self._width * self._width if self._width else value

    def _widen(self) -> None:
        """Have about half as many cells; a power of two, so that cells of whole numbers begin at whole ones."""
        fine = 2.0 ** math.ceil(math.log2((self.high - self.low) / CELLS))
        self._width = max(2 * self._width, fine)
        before, self._cells = self._cells, Counter()
        for value, count in before.items():
            self._cells[self._cell(value)] += count

    def counts(self) -> Counter[float]:
        """How often each value came, those of a cell by where it begins."""
        return Counter({max(value, self.low): count for value, count in self._cells.items()})
