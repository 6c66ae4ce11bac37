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
from hermes.store.ops import CallRow, Store

__all__ = ["Restored", "close_open_work", "load_history", "narrowed"]

_tools = msgspec.json.Decoder(tuple[ToolSpec, ...])


class Restored(msgspec.Struct, frozen=True):
    """The last segment of a task as a history; `began` are its calls that were started and have no result."""

    history: History
    turns: int
    began: tuple[CallRow, ...]


async def load_history(store: Store, task_id: str, journal: Journal) -> Restored | None:
    """Load the last segment of a task with its open calls; None when it never came to its first entry."""
    stored = await store.segment(task_id)
    if stored is None:
        return None
    entries = [(position, decode_entry(body)) for position, body in await store.entries(task_id, stored.start)]
    if entries and isinstance(entries[0][1], Summary):
        tail = await store.entries(task_id, entries[0][1].upto)
        kept = [(position, decode_entry(body)) for position, body in tail if position < stored.start]
        entries[1:1] = [item for item in kept if not isinstance(item[1], Summary)]  # the first one stands for those
    calls = await _open_calls(store, task_id, entries)
    began = tuple(call for call in calls if call.state == "started")
    history = History(
        journal,
        segment=Segment(
            number=stored.segment,
            start=stored.start,
            system=stored.system,
            nonce=stored.nonce,
            tools=_tools.decode(stored.tools),
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


async def _open_calls(store: Store, task_id: str, entries: Sequence[tuple[int, Entry]]) -> list[CallRow]:
    """The rows of the newest reply's calls that have no result in the history."""
    for position, entry in reversed(entries):
        if isinstance(entry, ToolResult):
            return []
        if isinstance(entry, Assistant):
            return await store.calls(task_id, position) if entry.calls else []
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
