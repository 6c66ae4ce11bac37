"""An early look at what comes out: if the first finished rows would all be rejected for one reason, the rest most
likely would be too, and somebody should know before it is paid for. Decides nothing; it only says so."""

from __future__ import annotations

from collections.abc import Iterable

from hermes.batch.filters import AMBIGUOUS_TAGS, HALLUCINATED_TOOL, NO_REASONING
from hermes.batch.record import Head

__all__ = ["EARLY_ROWS", "EarlyLook"]

#: How many finished rows are looked at.
EARLY_ROWS = 10

_ADVICE = {
    NO_REASONING: "take a model that reasons, or give --reasoning_effort=medium",
    HALLUCINATED_TOOL: "take another --model, or give the rows the toolsets that the model expects",
    AMBIGUOUS_TAGS: "take another --model",
}


class EarlyLook:
    """Looks at the first finished rows of a run, earlier sessions included. Rows that failed are not finished."""

    def __init__(self, heads: Iterable[Head] = ()) -> None:
        self._first: list[Head] = []
        for head in sorted(heads, key=lambda item: item.at):
            self.look(head)

    def look(self, head: Head) -> bool:
        """Take in a row that ended; True if it completes the picture and that is bad."""
        if head.outcome != "finished" or len(self._first) >= EARLY_ROWS:
            return False
        self._first.append(head)
        return self.verdict() is not None

    def verdict(self) -> str | None:
        """What to tell the person if all of the first rows are rejected for one reason, else None."""
        reasons = {head.reason for head in self._first}
        if len(self._first) < EARLY_ROWS or len(reasons) != 1 or "" in reasons:
            return None
        reason = reasons.pop()
        tokens = sum(head.tokens for head in self._first)
        costs = [head.cost_usd for head in self._first if head.cost_usd is not None]
        cost = f" (${sum(costs):.2f})" if costs else ""
        advice = _ADVICE.get(reason, "take another --model")
        return (
            f"The first {EARLY_ROWS} finished rows were all rejected: {reason} ({self._first[0].detail}) "
            f"They cost {tokens:,} tokens{cost}. What helps, under another --run_name: {advice}."
        )
