"""Rows with everything filled in but what a test is about."""

from __future__ import annotations

from typing import Any

from hermes.store.ops import (
    AddEntry,
    AddEvent,
    AddTask,
    DeliveryRow,
    EventRow,
    Fence,
    InboxRow,
    Op,
    SegmentRow,
    SessionRow,
    TaskRow,
    Unit,
)


def session(session_id: str = "s1", **more: Any) -> SessionRow:
    return SessionRow(**{"session_id": session_id, "root_task": "t1", "created_at": 1.0, "updated_at": 1.0, **more})


def task(task_id: str = "t1", **more: Any) -> TaskRow:
    values: dict[str, Any] = {
        "task_id": task_id,
        "session_id": "s1",
        "root_id": "t1",
        "parent_id": None,
        "kind": "main",
        "role": "leaf",
        "depth": 0,
        "goal": "count the lines",
        "state": "queued",
        "spec": b"{}",
        "owner": "o1",
        "epoch": 1,
        "call_key": None,
        "child_index": 0,
        "group_id": "",
        "attempt": 1,
        "created_at": 1.0,
    }
    return TaskRow(**{**values, **more})


def child(task_id: str, index: int = 0, key: str = "3:0", **more: Any) -> TaskRow:
    return task(task_id, parent_id="t1", call_key=key, child_index=index, kind="child", **more)


def segment(number: int = 0, **more: Any) -> SegmentRow:
    values = {"task_id": "t1", "start": 0, "system": "You are.", "nonce": "n", "tools": b"[]", "created_at": 1.0}
    return SegmentRow(**{**values, "segment": number, **more})


def entry(position: int, task_id: str = "t1", body: bytes = b"{}") -> AddEntry:
    return AddEntry(task_id=task_id, position=position, kind="user", at=1.0, body=body)


def event(
    seq: int, session_id: str = "s1", body: bytes = b"{}", type: str = "task.queued", at: float = 1.0
) -> AddEvent:
    return AddEvent(row=EventRow(session_id=session_id, task_id="t1", seq=seq, type=type, at=at, body=body))


def message(receipt: str = "r1", **more: Any) -> InboxRow:
    values = {"task_id": "t1", "verb": "steer", "text": "slower", "sender": "user", "state": "queued"}
    return InboxRow(**{**values, "receipt": receipt, "created_at": 1.0, **more})


def delivery(child_id: str = "c1", target_id: str = "t1") -> DeliveryRow:
    return DeliveryRow(child_id=child_id, target_id=target_id, created_at=1.0)


def fence(task_id: str = "t1", owner: str = "o1", epoch: int = 1) -> Fence:
    return Fence(task_id=task_id, owner=owner, epoch=epoch)


def unit(*ops: Op, fences: tuple[Fence, ...] = ()) -> Unit:
    return Unit(ops=ops, fences=fences)


def made(*ops: Op) -> Unit:
    """A unit that makes task t1 first."""
    return Unit(ops=(AddTask(row=task()), *ops))
