"""How large the next request is: what the provider last counted, and an estimate of what was added since.

It asks nobody and knows no limit; an estimate is by the bytes of the text.
"""

from __future__ import annotations

import math

from hermes.core.compaction import BYTES_PER_TOKEN, estimate_entries, estimate_tools
from hermes.core.history import History
from hermes.core.messages import Text, Usage, User

__all__ = ["Sizing", "at_most"]

#: Bytes of a token when room is set aside: fewer than in an estimate, so that what is set aside is enough.
SAFE_BYTES_PER_TOKEN = 3.0


def at_most(estimated: int) -> int:
    """Tokens that an estimate may turn out to be."""
    return math.ceil(estimated * BYTES_PER_TOKEN / SAFE_BYTES_PER_TOKEN)


class Sizing:
    """Sizes of the requests of one task, in tokens."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._reported: tuple[int, int] | None = None  # (history position, tokens up to it) as the provider counted
        # of which history, how much of it is counted and how much estimated
        self._known: tuple[tuple[int, int, tuple[int, int] | None], tuple[int, int]] | None = None

    def reported(self, usage: Usage | None) -> None:
        """The provider counted a request and its reply, which joins the history next; None: nobody did."""
        counted = usage is not None and not usage.estimated
        self._reported = (self._history.next_position, usage.total) if usage is not None and counted else None

    def parts(self) -> tuple[int, int]:
        """Tokens of the next request that were counted, and those that are estimated."""
        history = self._history
        key = (history.next_position, history.segment.number, self._reported)
        if self._known is None or self._known[0] != key:
            self._known = (key, self._parts())
        return self._known[1]

    def _parts(self) -> tuple[int, int]:
        if self._reported is not None:
            position, tokens = self._reported
            return tokens, estimate_entries(self._history.behind(position))
        segment = self._history.segment
        system = User(content=(Text(segment.system),))
        return 0, estimate_entries((system, *self._history.view())) + estimate_tools(segment.tools)

    def size(self) -> int:
        """Tokens of the next request."""
        counted, estimated = self.parts()
        return counted + estimated

    def bound(self) -> int:
        """Tokens to set aside for the next request: an upper bound in place of an estimate."""
        counted, estimated = self.parts()
        return counted + at_most(estimated)
