"""What model calls used, as a fold over the calls that are stored: by day, session, task, model or purpose.

Every call stands in the journal once, under the task that made it, so that sums over any grouping are the same and
nothing is counted twice. Reading the journal and printing are done elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Literal, get_args

import msgspec

from hermes.core.messages import Usage

__all__ = ["GROUPINGS", "TURN_ENDED", "Grouping", "UsageLine", "UsageTable", "StoredCall", "fold", "stored_call"]

#: The type of the events that say what a call used.
TURN_ENDED = "turn.ended"
Grouping = Literal["day", "session", "task", "model", "purpose"]
GROUPINGS: tuple[str, ...] = get_args(Grouping)


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    parent_id: str | None = None
    model: str = ""
    usage: Usage = Usage()
    purpose: str = "main"


class StoredCall(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. `at` is seconds since the epoch; `purpose` is main, child (a main call of a task that has a
    parent), summary or compaction."""

    task_id: str
    session_id: str
    parent_id: str | None
    at: float
    model: str
    purpose: str
    usage: Usage


class UsageLine(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one group. `unpriced` of them have no known price, `estimated` no figures of the provider's.
    `subtree` is the use of a task and of everything under it (None for other groups)."""

    key: str
    calls: int = 0
    unpriced: int = 0
    estimated: int = 0
    usage: Usage = Usage()
    subtree: Usage | None = None

    def plus(self, usage: Usage) -> UsageLine:
        """This line with one more call."""
        return msgspec.structs.replace(
            self,
            calls=self.calls + 1,
            unpriced=self.unpriced + (usage.cost_usd is None and usage.total > 0),
            estimated=self.estimated + usage.estimated,
            usage=self.usage + usage,
        )


class UsageTable(msgspec.Struct, frozen=True, kw_only=True):
    """Lines in order (days by date, else the greatest use first) and their sum."""

    by: Grouping
    lines: tuple[UsageLine, ...]
    total: UsageLine


_body = msgspec.json.Decoder(_Body)


def stored_call(task_id: str, session_id: str, at: float, body: bytes) -> StoredCall:
    """Read the stored event of a call. Raises `msgspec.ValidationError` for what is none."""
    read = _body.decode(body)
    child = read.parent_id is not None and read.purpose == "main"
    return StoredCall(
        task_id=task_id,
        session_id=session_id,
        parent_id=read.parent_id,
        at=at,
        model=read.model,
        purpose="child" if child else read.purpose,
        usage=read.usage,
    )


_KEYS: Mapping[str, Callable[[StoredCall], str]] = {
    "day": lambda call: datetime.fromtimestamp(call.at).strftime("%Y-%m-%d"),
    "session": lambda call: call.session_id,
    "task": lambda call: call.task_id,
    "model": lambda call: call.model,
    "purpose": lambda call: call.purpose,
}


def fold(calls: Iterable[StoredCall], by: Grouping) -> UsageTable:
    """Sum calls up; days are local ones."""
    key = _KEYS[by]
    lines: dict[str, UsageLine] = {}
    total = UsageLine(key="total")
    parents: dict[str, str | None] = {}
    for call in calls:
        name = key(call)
        lines[name] = lines.get(name, UsageLine(key=name)).plus(call.usage)
        total = total.plus(call.usage)
        parents[call.task_id] = call.parent_id
    if by == "task":
        subtrees = _subtrees(lines, parents)
        lines = {name: msgspec.structs.replace(line, subtree=subtrees[name]) for name, line in lines.items()}
    if by == "day":
        ordered = sorted(lines.values(), key=lambda line: line.key)
    else:
        ordered = sorted(lines.values(), key=lambda line: (-(line.usage.cost_usd or 0.0), -line.usage.total, line.key))
    return UsageTable(by=by, lines=tuple(ordered), total=total)


def _subtrees(own: Mapping[str, UsageLine], parents: Mapping[str, str | None]) -> dict[str, Usage]:
    """The use of each task and of everything under it; a parent that made no call of its own is passed over."""
    found = {name: Usage() for name in own}
    for name, line in own.items():
        above: str | None = name
        seen: set[str] = set()
        while above is not None and above not in seen:
            seen.add(above)
            if above in found:
                found[above] = found[above] + line.usage
            above = parents.get(above)
    return found
