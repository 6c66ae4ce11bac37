"""How large the next request is: what the provider last counted, and an estimate of what was added since.

It asks nobody and knows no limit; an estimate is by the bytes of the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hermes.core.compaction import BYTES_PER_TOKEN, estimate_entries, estimate_tools
from hermes.core.history import History
from hermes.core.messages import Text, Usage, User
from hermes.core.model import ToolSpec

__all__ = ["Sizing", "ToolSizes", "at_most"]

#: Bytes of a token when room is set aside: fewer than in an estimate, so that what is set aside is enough.
SAFE_BYTES_PER_TOKEN = 3.0


def at_most(estimated: int) -> int:
    """Tokens that an estimate may turn out to be."""
    return math.ceil(estimated * BYTES_PER_TOKEN / SAFE_BYTES_PER_TOKEN)


class ToolSizes:
    """Estimates of lists of tools. Tasks share their lists, so a thousand children estimate one."""

    def __init__(self) -> None:
        self._last: tuple[tuple[ToolSpec, ...], int] = ((), 0)

    def __call__(self, tools: tuple[ToolSpec, ...]) -> int:
        """Estimate a list, or return what it was estimated at just before."""
        if self._last[0] is not tools:
            self._last = (tools, estimate_tools(tools))
        return self._last[1]


class Sizing:
    """Sizes of the requests of one task, in tokens. `tools` estimates its list of tools."""

    __slots__ = ("_bound", "_history", "_reported", "_seen", "_size", "_tools")

    def __init__(self, history: History, tools: Callable[[tuple[ToolSpec, ...]], int] = estimate_tools) -> None:
        self._history = history
        self._tools = tools
        self._reported: tuple[int, int] | None = None  # (history position, tokens up to it) as the provider counted
        self._seen = -1  # the revision of the history that was looked at
        self._size = self._bound = 0

    def reported(self, usage: Usage | None) -> None:
        """The provider counted a request and its reply, which joins the history next; None: nobody did."""
        counted = usage is not None and not usage.estimated
        self._reported = (self._history.next_position, usage.total) if usage is not None and counted else None
        self._seen = -1

    def _look(self) -> None:
        self._seen = self._history.revision
        counted, estimated = self._parts()
        self._size, self._bound = counted + estimated, counted + at_most(estimated)

    def _parts(self) -> tuple[int, int]:
        """Tokens of the next request that were counted, and those that are estimated."""
        if self._reported is not None:
            position, tokens = self._reported
            return tokens, estimate_entries(self._history.behind(position))
        segment = self._history.segment
        system = User(content=(Text(segment.system),))
        return 0, estimate_entries((system, *self._history.view())) + self._tools(segment.tools)

    def size(self) -> int:
        """Tokens of the next request."""
        if self._seen != self._history.revision:
            self._look()
        return self._size

    def bound(self) -> int:
        """Tokens to set aside for the next request: an upper bound in place of an estimate."""
        if self._seen != self._history.revision:
            self._look()
        return self._bound
