"""The working rows of rollouts: what a run that lost its process goes on from.

Each attempt is a session of its own in the journal of the run, named after its rollout, so that a later process finds
it without an index. Once the record of a rollout is synced its session goes; the record is the truth then. Taking a
session up again is the runtime's; what a rollout brought is folded in `execute`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from hermes.batch.trace import Trace
from hermes.core.codec import decode_entry, decode_event
from hermes.core.model import ToolSpec
from hermes.core.result import TaskResult
from hermes.runtime.rows import stored_result
from hermes.store.ops import DeleteSession, Store, TaskRow, Unit

__all__ = ["Begun", "RolloutJournal"]

#: Most sessions that are looked at when a run is taken up: more cannot have been in flight.
MOST = 1_000_000

_tools = msgspec.json.Decoder(tuple[ToolSpec, ...])


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as an earlier process left it. `result` is its end, where it came to one; `offered` are the tools it
    was offered, by task."""

    session: str
    root: TaskRow
    rows: tuple[TaskRow, ...]
    result: TaskResult | None
    offered: Mapping[str, tuple[ToolSpec, ...]]


class RolloutJournal:
    """Finds, reads and removes the sessions of rollouts in `store`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._there: set[str] = set()

    async def look(self) -> None:
        """See what earlier processes left."""
        self._there = {row.session_id for row in await self._store.sessions(limit=MOST)}

    @property
    def names(self) -> Collection[str]:
        """The sessions there are: those under way, and what an earlier process left."""
        return self._there

    def has(self, name: str) -> bool:
        """Whether there is this session."""
        return name in self._there

    def add(self, name: str) -> None:
        """A session begins."""
        if self._store.keeps:
            self._there.add(name)

    def keep_only(self, names: Iterable[str]) -> None:
        """Remove every session that is not among `names`: its rollout has ended, or is not to be run."""
        for name in sorted(self._there.difference(names)):
            self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a session with all that belongs to it. Its tasks run no more."""
        if name in self._there:
            self._there.discard(name)
            self._store.submit(Unit(ops=(DeleteSession(session_id=name, unfinished=True),)))

    async def read(self, name: str, trace: Trace) -> Begun | None:
        """Read a session and fold what it holds into `trace`; None if it never came to a task."""
        rows = await self._store.tasks(name)
        root = next((row for row in rows if row.parent_id is None), None)
        if root is None:
            return None
        trace.root = root.task_id
        offered: dict[str, tuple[ToolSpec, ...]] = {}
        for row in rows:
            trace.entries[row.task_id] = [decode_entry(body) for _, body in await self._store.entries(row.task_id)]
            segment = await self._store.segment(row.task_id)
            offered[row.task_id] = _tools.decode(segment.tools) if segment is not None else ()
        for event in await self._store.events(name, limit=MOST):
            trace.hear(event.task_id, decode_event(event.body))
        return Begun(session=name, root=root, rows=tuple(rows), result=stored_result(root), offered=offered)
