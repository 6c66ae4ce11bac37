"""Putting the history of a task together again from its rows: for one that lost its process, and for one that ended and
goes on. There is one way, so that both go on from the same place.

It reads and starts nothing; who goes on, and with what, is decided by `recovery.py` and `control.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hermes.core.codec import decode_entry
from hermes.core.events import EntryAdded
from hermes.core.history import History, Journal, Segment
from hermes.core.invoke import stopped_results
from hermes.core.messages import Assistant, Entry, Interrupted, Summary, ToolResult, User
from hermes.core.model import ToolSpec
from hermes.core.toolsets import child_toolsets
from hermes.runtime.policy import Policy
from hermes.runtime.spec import TaskSpec
from hermes.runtime.task import Task
from hermes.store.ops import CallRow, HistoryRow, Store

__all__ = ["Restored", "close_open_work", "load_histories", "narrowed"]

_tools = msgspec.json.Decoder(tuple[ToolSpec, ...])

#: Histories that are read at once: a read waits for the reading thread and what it brings is held in memory.
AT_ONCE = 100


class Restored(msgspec.Struct, frozen=True):
    """The last segment of a task as a history; `began` are its calls that were started and have no result."""

    history: History
    turns: int
    began: tuple[CallRow, ...]


async def load_histories(store: Store, wanted: Sequence[tuple[str, Journal]]) -> list[Restored | None]:
    """Load the last segments of tasks with their open calls; None for one that never came to its first entry.

    Lists of tools that are equal become one object, as they are for tasks that were never interrupted.
    """
    lists: dict[bytes, tuple[ToolSpec, ...]] = {}
    loaded: list[Restored | None] = []
    for first in range(0, len(wanted), AT_ONCE):
        part = wanted[first : first + AT_ONCE]
        rows = await store.histories([task_id for task_id, _ in part])
        for (_, journal), row in zip(part, rows, strict=True):
            loaded.append(await _restored(store, row, journal, lists) if row is not None else None)
    return loaded


async def _restored(
    store: Store, row: HistoryRow, journal: Journal, lists: dict[bytes, tuple[ToolSpec, ...]]
) -> Restored:
    stored, task_id = row.segment, row.segment.task_id
    entries = [(position, decode_entry(body)) for position, body in row.entries]
    if entries and isinstance(entries[0][1], Summary):
        tail = await store.entries(task_id, entries[0][1].upto)
        kept = [(position, decode_entry(body)) for position, body in tail if position < stored.start]
        entries[1:1] = [item for item in kept if not isinstance(item[1], Summary)]  # the first one stands for those
    calls = _open_calls(row, entries)
    if stored.tools not in lists:
        lists[stored.tools] = _tools.decode(stored.tools)
    began = tuple(call for call in calls if call.state == "started")
    history = History(
        journal,
        segment=Segment(
            number=stored.segment,
            start=stored.start,
            system=stored.system,
            nonce=stored.nonce,
            tools=lists[stored.tools],
        ),
        entries=entries,
        results={
            (call.position, call.index): result
            for call in calls
            if call.result is not None and isinstance(result := decode_entry(call.result), ToolResult)
        },
        began=[(call.position, call.index) for call in began],
    )
    return Restored(history, _turns(entries), began)


def _open_calls(row: HistoryRow, entries: Sequence[tuple[int, Entry]]) -> list[CallRow]:
    """The rows of the newest reply's calls that have no result in the history."""
    for position, entry in reversed(entries):
        if isinstance(entry, ToolResult):
            return []
        if isinstance(entry, Assistant):
            return [call for call in row.calls if call.position == position]
    return []


def _turns(entries: Sequence[tuple[int, Entry]]) -> int:
    """Replies since the last input of a person."""
    count = 0
    for _, entry in reversed(entries):
        if isinstance(entry, User):
            break
        if isinstance(entry, Assistant):
            count += 1
    return count


def close_open_work(task: Task, history: History, reason: str, now: float) -> None:
    """Close what an ended task left open, so that the next input is what it reads first."""
    if history.at_rest:
        return
    first = history.next_position
    entries: list[Entry] = [
        *stopped_results(history.open_calls(), reason, now),
        Interrupted(reason=reason, partial="", at=now),
    ]
    history.append(entries)
    for offset, entry in enumerate(entries):
        task.emit(EntryAdded(position=first + offset, entry=entry))


def narrowed(spec: TaskSpec, parent: Task | None, policy: Policy) -> TaskSpec:
    """A specification with no more rights than its parent has now; without a parent it stays as it is."""
    if parent is None:
        return spec
    deep = parent.scope.depth + 1 >= policy.max_spawn_depth and not spec.detached
    role = spec.role if policy.orchestrators and not deep else "leaf"
    above, tools = parent.spec, spec.tools
    if spec.detached:  # a run of its own beside the conversation: it may what that may
        toolsets = tuple(name for name in spec.toolsets if name in above.toolsets)
    else:
        toolsets, _ = child_toolsets(spec.toolsets, above.ceiling, orchestrator=role == "orchestrator")
    if above.tools is not None:
        tools = tuple(name for name in (above.tools if tools is None else tools) if name in above.tools)
    return msgspec.structs.replace(
        spec,
        role=role if not spec.detached else spec.role,
        toolsets=toolsets,
        ceiling=tuple(name for name in spec.ceiling if name in toolsets),
        tools=tools,
        unattended=spec.unattended or above.unattended,
    )
