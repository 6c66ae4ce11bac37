"""Counts of ended rollouts: one fold that the index of the records and the progress of a run share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hermes.batch.record import Head

__all__ = ["Counts"]


@dataclass(slots=True, kw_only=True)
class Counts:
    """Each rollout counts once, by how it ended last; what was counted of it before is handed in again and taken
    back, so nothing is kept of any of them."""

    kept: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    #: What one row of each reason or kind said.
    examples: dict[str, str] = field(default_factory=dict)
    #: Calls of all rollouts, and how many of them were denied.
    calls: int = 0
    denied: int = 0
    #: How many rollouts have a known cost, and what they cost together in US dollars.
    priced: int = 0
    paid: float = 0.0

    def count(self, head: Head, before: Head | None = None) -> None:
        """Take a rollout in; `before` is the head that counted for it until now."""
        if before is not None:
            self._add(before, -1)
        if head.cost_usd is not None:
            known = before.cost_usd if before is not None else None
            self.priced += known is None
            self.paid += head.cost_usd - (known or 0.0)
        self._add(head, 1)
        if head.reason:
            self.examples.setdefault(head.reason, head.detail)

    def _add(self, head: Head, step: int) -> None:
        self.calls += step * head.calls
        self.denied += step * head.denied
        if head.outcome == "failed":
            self.failed[head.reason] += step
        elif head.reason:
            self.rejected[head.reason] += step
        else:
            self.kept += step

    def take(self, other: Counts) -> None:
        """Have the counts of another fold."""
        self.kept, self.calls, self.denied = other.kept, other.calls, other.denied
        self.rejected, self.failed = Counter(other.rejected), Counter(other.failed)
        self.examples = dict(other.examples)
        self.priced, self.paid = other.priced, other.paid
