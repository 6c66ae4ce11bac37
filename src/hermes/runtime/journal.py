"""The journal of one task: history and calls as units of the store, redacted and fenced.

Encodes on the loop (the writer encodes nothing) and replaces known secrets in the bytes, so that no row holds one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio.to_thread

from hermes.core.clock import Hold, held
from hermes.core.codec import encode_entry, encode_json
from hermes.core.history import DONE, Pending, Segment, Taken
from hermes.core.messages import Entry, ToolResult, User, is_large
from hermes.core.model import ToolSpec
from hermes.runtime.task import Task
from hermes.store.ops import (
    AddEntry,
    CallEnded,
    CallStarted,
    ConsumeDelivery,
    Fence,
    MarkInbox,
    Op,
    PutSegment,
    SegmentRow,
    Store,
    Unit,
)

__all__ = ["EncodedTools", "TaskJournal"]

Redact = Callable[[bytes], bytes]


class EncodedTools:
    """Lists of tools as bytes. Tasks share their lists, so a thousand children encode one."""

    def __init__(self) -> None:
        self._last: tuple[tuple[ToolSpec, ...], bytes] = ((), encode_json(()))

    def __call__(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """Encode a list, or return what it was encoded to just before."""
        if self._last[0] is not tools:
            self._last = (tools, encode_json(tools))
        return self._last[1]


class TaskJournal:
    """Writes the history of `task`. `consumed(child_id)` marks a child's end as told."""

    def __init__(
        self,
        task: Task,
        store: Store,
        *,
        redact: Redact,
        now: Callable[[], float],
        consumed: Callable[[str], bool],
        delivered: Callable[[str, int], None],
        tools: Callable[[tuple[ToolSpec, ...]], bytes] = encode_json,
    ) -> None:
        self._task = task
        self._store = store
        self._keeps = store.keeps
        self._tools = tools
        self._redact = redact
        self._now = now
        self._consumed = consumed
        self._delivered = delivered
        self._prepared: dict[int, bytes] = {}  # by the entry's id, until it is written
        self._results: dict[tuple[int, int], bytes] = {}  # encoded when they arrived, written again as entries

    async def prepare(self, entries: Sequence[Entry], hold: Hold) -> None:
        """Encode those of the entries that are to be written next that take long, while everything else goes on."""
        for entry in entries:
            if isinstance(entry, User) and is_large(entry.content):
                with held(hold):
                    self._prepared[id(entry)] = await anyio.to_thread.run_sync(self._encoded, entry)

    def _encoded(self, entry: Entry) -> bytes:
        return self._redact(encode_entry(entry))

    def _submit(self, ops: list[Op]) -> Pending:
        task = self._task
        fence = Fence(task_id=task.id, owner=task.owner, epoch=task.epoch)
        return self._store.submit(Unit(ops=tuple(ops), fences=(fence,), urgent=task.spec.interactive))

    def _entry(self, position: int, entry: Entry) -> AddEntry:
        body = None
        if isinstance(entry, ToolResult):
            body = self._results.pop((entry.position, entry.index), None)
        elif self._prepared:
            body = self._prepared.pop(id(entry), None)
        return AddEntry(
            task_id=self._task.id,
            position=position,
            kind=type(entry).__name__.lower(),
            at=entry.at,
            body=self._encoded(entry) if body is None else body,
        )

    def segment(self, segment: Segment, entries: Sequence[tuple[int, Entry]]) -> Pending:
        """Write a segment with its first entries."""
        if not self._keeps:
            return DONE
        ops: list[Op] = [
            PutSegment(
                row=SegmentRow(
                    task_id=self._task.id,
                    segment=segment.number,
                    start=segment.start,
                    system=self._redact(segment.system.encode()).decode(),
                    nonce=segment.nonce,
                    tools=self._tools(segment.tools),
                    created_at=self._now(),
                )
            )
        ]
        ops.extend([self._entry(position, entry) for position, entry in entries])
        return self._submit(ops)

    def entries(
        self, entries: Sequence[tuple[int, Entry]], started: Sequence[tuple[int, int, str]], taken: Taken
    ) -> Pending:
        """Write entries, the marks of calls that start with them, and what they take out of the inbox."""
        ops: list[Op] = [self._entry(position, entry) for position, entry in entries] if self._keeps else []
        if started:
            now, task = self._now(), self._task.id
            for position, index, name in started:
                ops.append(CallStarted(task_id=task, position=position, index=index, name=name, at=now))
        first = entries[0][0] if entries else 0
        for offset, receipt in enumerate(taken.receipts):
            position = first + offset
            ops.append(MarkInbox(receipt=receipt, state="delivered", position=position))
            self._delivered(receipt, position)
        last = entries[-1][0] if entries else 0
        for child in taken.children:
            if self._consumed(child):
                ops.append(ConsumeDelivery(child_id=child, by=f"notice:{last}"))
        return self._submit(ops) if self._keeps else DONE

    def call_ended(self, result: ToolResult, delivers: Sequence[str]) -> Pending:
        """Write a call's result and what it delivers."""
        told = [child for child in delivers if self._consumed(child)]
        if not self._keeps:
            return DONE
        body = self._results[(result.position, result.index)] = self._redact(encode_entry(result))
        ops: list[Op] = [
            CallEnded(
                task_id=self._task.id,
                position=result.position,
                index=result.index,
                name=result.name,
                at=result.at,
                result=body,
            )
        ]
        if told:
            by = f"{self._task.id}:{result.position}:{result.index}"
            ops.extend([ConsumeDelivery(child_id=child, by=by) for child in told])
        return self._submit(ops)
