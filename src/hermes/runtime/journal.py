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

__all__ = ["EncodedTools", "Journals", "TaskJournal"]

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


class Journals:
    """What the journals of all tasks have in common. `consumed(child_id)` marks a child's end as told, `delivered` says
    at which position a control message stands in the history of a task."""

    __slots__ = ("consumed", "delivered", "keeps", "now", "redact", "store", "tools")

    def __init__(
        self,
        store: Store,
        *,
        redact: Redact,
        now: Callable[[], float],
        consumed: Callable[[str], bool],
        delivered: Callable[[Task, str, int], None],
        tools: Callable[[tuple[ToolSpec, ...]], bytes] = encode_json,
    ) -> None:
        self.store = store
        self.keeps = store.keeps
        self.tools = tools
        self.redact = redact
        self.now = now
        self.consumed = consumed
        self.delivered = delivered

    def of(self, task: Task) -> TaskJournal:
        """Where the history of a task is written."""
        return TaskJournal(task, self)


class TaskJournal:
    """Writes the history of one task. Made by `Journals.of`."""

    __slots__ = ("_common", "_prepared", "_results", "_task")

    def __init__(self, task: Task, common: Journals) -> None:
        self._task = task
        self._common = common
        # None where there is nothing: a table for each of a thousand tasks adds up.
        self._prepared: dict[int, bytes] | None = None  # by the entry's id, until it is written
        self._results: dict[tuple[int, int], bytes] | None = None  # encoded as they arrived, written again as entries

    async def prepare(self, entries: Sequence[Entry], hold: Hold) -> None:
        """Encode those of the entries that are to be written next that take long, while everything else goes on."""
        for entry in entries if self._common.keeps else ():
            if isinstance(entry, User) and is_large(entry.content):
                with held(hold):
                    encoded = await anyio.to_thread.run_sync(self._encoded, entry)
                self._prepared = {**(self._prepared or {}), id(entry): encoded}

    def _encoded(self, entry: Entry) -> bytes:
        return self._common.redact(encode_entry(entry))

    def _submit(self, ops: list[Op]) -> Pending:
        task = self._task
        fence = Fence(task_id=task.id, owner=task.owner, epoch=task.epoch)
        return self._common.store.submit(Unit(ops=tuple(ops), fences=(fence,), urgent=task.spec.interactive))

    def _entry(self, position: int, entry: Entry) -> AddEntry:
        body = None
        if isinstance(entry, ToolResult):
            if self._results is not None:
                body = self._results.pop((entry.position, entry.index), None)
                self._results = self._results or None
        elif self._prepared is not None:
            body = self._prepared.pop(id(entry), None)
            self._prepared = self._prepared or None
        return AddEntry(
            task_id=self._task.id,
            position=position,
            kind=type(entry).__name__.lower(),
            at=entry.at,
            body=self._encoded(entry) if body is None else body,
        )

    def segment(self, segment: Segment, entries: Sequence[tuple[int, Entry]]) -> Pending:
        """Write a segment with its first entries."""
        common = self._common
        if not common.keeps:
            return DONE
        ops: list[Op] = [
            PutSegment(
                row=SegmentRow(
                    task_id=self._task.id,
                    segment=segment.number,
                    start=segment.start,
                    system=common.redact(segment.system.encode()).decode(),
                    nonce=segment.nonce,
                    tools=common.tools(segment.tools),
                    created_at=common.now(),
                )
            )
        ]
        ops.extend([self._entry(position, entry) for position, entry in entries])
        return self._submit(ops)

    def entries(
        self, entries: Sequence[tuple[int, Entry]], started: Sequence[tuple[int, int, str]], taken: Taken
    ) -> Pending:
        """Write entries, the marks of calls that start with them, and what they take out of the inbox."""
        common = self._common
        ops: list[Op] = [self._entry(position, entry) for position, entry in entries] if common.keeps else []
        if started:
            now, task = common.now(), self._task.id
            for position, index, name in started:
                ops.append(CallStarted(task_id=task, position=position, index=index, name=name, at=now))
        first = entries[0][0] if entries else 0
        for offset, receipt in enumerate(taken.receipts):
            position = first + offset
            ops.append(MarkInbox(receipt=receipt, state="delivered", position=position))
            common.delivered(self._task, receipt, position)
        last = entries[-1][0] if entries else 0
        for child in taken.children:
            if common.consumed(child):
                ops.append(ConsumeDelivery(child_id=child, by=f"notice:{last}"))
        return self._submit(ops) if common.keeps else DONE

    def call_ended(self, result: ToolResult, delivers: Sequence[str]) -> Pending:
        """Write a call's result and what it delivers."""
        common = self._common
        told = [child for child in delivers if common.consumed(child)]
        if not common.keeps:
            return DONE
        body = common.redact(encode_entry(result))
        if self._results is None:
            self._results = {}
        self._results[(result.position, result.index)] = body
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
