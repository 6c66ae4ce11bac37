"""How processes that ask with one key divide what its provider allows: by what each has to do right now.

Requests that a person waits for come first, then the others, each process by the number of its trees of tasks, so that
a process with one tree does not stand back behind one with many requests of one tree. What nobody needs is divided
evenly, for what comes before the next division. It reads no clock and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

__all__ = ["Demand", "divide"]

#: Part of an even share that every process has, so that a first request need not wait for the next division.
LEAST = 0.1


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a process has to do: requests with a person before them, others, and the trees these belong to."""

    owner: str
    front: float
    back: float
    trees: int = 1


def divide(demands: Sequence[Demand], amount: float) -> dict[str, float]:
    """Each owner's share of `amount` requests; the shares sum to 1."""
    if not demands or amount <= 0:
        return {each.owner: 1 / len(demands) for each in demands}
    given = {each.owner: LEAST * amount / len(demands) for each in demands}
    left = amount * (1 - LEAST)
    left = _fill({each.owner: each.front for each in demands}, {}, given, left)
    left = _fill({each.owner: each.back for each in demands}, {each.owner: each.trees for each in demands}, given, left)
    total = sum(given.values()) + left
    return {owner: (got + left / len(demands)) / total for owner, got in given.items()}


def _fill(wanted: Mapping[str, float], weights: Mapping[str, int], given: dict[str, float], left: float) -> float:
    """Give everybody as much as possible of what is wanted, by weight; returns what is left."""
    open_ = {owner: want for owner, want in wanted.items() if want > 0}
    while open_ and left > 1e-9:
        unit = left / sum(max(1, weights.get(owner, 1)) for owner in open_)
        full = {owner for owner, want in open_.items() if want <= unit * max(1, weights.get(owner, 1))}
        for owner in full or set(open_):
            part = open_[owner] if full else unit * max(1, weights.get(owner, 1))
            given[owner] += part
            left -= part
            del open_[owner]
    return max(0.0, left)
