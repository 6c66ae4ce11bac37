"""Ending tasks that no process has: what a cancel of suspended work means. Nothing is run and nothing taken up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import anyio.to_thread
import msgspec

from hermes.core.clock import Hold, held
from hermes.core.codec import decode_entry, encode_envelope, encode_json
from hermes.core.events import Envelope
from hermes.core.messages import Assistant
from hermes.core.result import ENDED, ChildRef, TaskResult, async_status, exit_reason
from hermes.core.scope import CallKey
from hermes.core.views import TaskView, TreeView
from hermes.environments.process import end_leftovers
from hermes.runtime.carrying import carried, spoken
from hermes.runtime.rows import ended_event, stored_spec
from hermes.store.ops import (
    AddEvent,
    AdoptTasks,
    DeliveryRow,
    EndTask,
    EventRow,
    InboxRow,
    MarkInbox,
    Op,
    PutDelivery,
    PutInbox,
    Store,
    TaskRow,
    Unit,
)

__all__ = ["end_cancelled"]


class _Left(msgspec.Struct, frozen=True):
    """What a task left: its newest text, and what was asked of it and not read."""

    text: str
    queued: tuple[InboxRow, ...]


async def end_cancelled(
    store: Store,
    rows: Sequence[TaskRow],
    top: TaskRow,
    text: str,
    *,
    tree: TreeView,
    now: float,
    redact: Callable[[bytes], bytes],
    hold: Hold,
) -> list[str]:
    """End `top` and all unfinished tasks under it as cancelled, with what they have; returns their ids, leaves first.

    `rows` are all tasks of the session, whose owners are all gone; `tree` is what its events say. One transaction:
    if somebody takes the session up first, nothing is changed.

    Raises:
        OwnershipLost: somebody did.
    """
    ending = [row for row in _leaves_first(rows, top) if row.ended_at is None]
    # The owners stay what they are but for the epoch: whoever adopts meanwhile makes this fail.
    ops: list[Op] = [
        AdoptTasks(session_id=top.session_id, from_owner=owner, to_owner=owner)
        for owner in sorted({row.owner for row in rows})
    ]
    last = await store.last_seq(top.session_id)
    for seq, row in enumerate(ending, last + 1):
        left = await _left(store, row, hold)
        result = _result(rows, row, ending, left, text, tree)
        ops.append(EndTask(task_id=row.task_id, state="cancelled", ended_at=now, end=redact(encode_json(result))))
        ops.extend(
            MarkInbox(receipt=message.receipt, state="delivered" if message.verb == "cancel" else "missed")
            for message in left.queued
        )
        ops.append(_message(row, text, now))
        target = _listener(rows, row, ending)
        if target is not None and not stored_spec(row).detached:
            ops.append(PutDelivery(row=DeliveryRow(child_id=row.task_id, target_id=target, created_at=now)))
        ops.append(_event(row, result, seq, now, redact))
    await store.submit(Unit(ops=tuple(ops))).wait()
    return [row.task_id for row in ending]


def _leaves_first(rows: Sequence[TaskRow], top: TaskRow) -> Iterator[TaskRow]:
    for row in rows:
        if row.parent_id == top.task_id:
            yield from _leaves_first(rows, row)
    yield top


def _listener(rows: Sequence[TaskRow], row: TaskRow, ending: Sequence[TaskRow]) -> str | None:
    """The nearest ancestor that goes on, else the root; None for a task without a parent."""
    if row.parent_id is None:
        return None
    known = {other.task_id: other for other in rows}
    above = known.get(row.parent_id)
    while above is not None and (above in ending or above.state in ENDED):
        above = known.get(above.parent_id) if above.parent_id is not None else None
    return above.task_id if above is not None else row.root_id


async def _left(store: Store, row: TaskRow, hold: Hold) -> _Left:
    """End what a task's commands left, and look at what it has."""
    text, last = "", -1
    for position, body in await store.entries(row.task_id):
        entry = decode_entry(body)
        if isinstance(entry, Assistant):
            text = entry.text if entry.text.strip() else text
            last = position if entry.calls else -1
    for call in await store.calls(row.task_id, last) if last >= 0 else ():
        if call.state == "started":
            key = str(CallKey(row.task_id, call.position, call.index))
            with held(hold):
                await anyio.to_thread.run_sync(end_leftovers, key, call.pgid, call.process_started)
    return _Left(text, tuple(message for message in await store.inbox(row.task_id) if message.state == "queued"))


def _result(
    rows: Sequence[TaskRow], row: TaskRow, ending: Sequence[TaskRow], left: _Left, text: str, tree: TreeView
) -> TaskResult:
    view = tree.tasks.get(row.task_id) or TaskView(row.task_id, row.session_id, row.parent_id)
    return TaskResult(
        task_id=row.task_id,
        state="cancelled",
        exit_reason=exit_reason("cancelled"),
        summary=left.text,
        error=text,
        partial=True,
        elapsed=view.lived,
        api_calls=view.api_calls,
        usage=view.usage,
        subtree_usage=tree.subtree_usage(row.task_id),
        model=view.model,
        tool_trace=tuple(view.trace),
        files_read=tuple(view.files_read)[:40],
        files_written=tuple(view.files_written)[:40],
        missed_steer=tuple(spoken(carried(message.text)) for message in left.queued if message.verb == "steer"),
        children=tuple(
            ChildRef(task_id=child.task_id, status="cancelled" if child in ending else async_status(child.state))
            for child in rows
            if child.parent_id == row.task_id
        ),
        output=tuple(view.lines),
    )


def _message(row: TaskRow, text: str, now: float) -> PutInbox:
    """The cancel as a message of the task."""
    return PutInbox(
        row=InboxRow(
            receipt=f"cancel-{row.task_id}-{row.epoch + 1}",
            task_id=row.task_id,
            verb="cancel",
            text=text,
            sender="user",
            state="delivered",
            created_at=now,
        )
    )


def _event(row: TaskRow, result: TaskResult, seq: int, now: float, redact: Callable[[bytes], bytes]) -> AddEvent:
    envelope = Envelope(
        seq=seq,
        at=now,
        session_id=row.session_id,
        task_id=row.task_id,
        parent_id=row.parent_id,
        event=ended_event(result),
    )
    body = redact(encode_envelope(envelope))
    return AddEvent(
        row=EventRow(session_id=row.session_id, task_id=row.task_id, seq=seq, type="task.ended", at=now, body=body)
    )
