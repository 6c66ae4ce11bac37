"""The sentences with which both stores refuse a unit, so that they cannot drift apart.

It only words errors; which operation is refused is decided by the stores.
"""

from __future__ import annotations

from hermes.core.errors import OwnershipLost, StoreError
from hermes.store.ops import (
    AddEntry,
    AddEvent,
    AddOwner,
    AddSession,
    AddTask,
    AdoptTasks,
    ConsumeDelivery,
    DeleteSession,
    Fence,
    Op,
    PutInbox,
    PutSegment,
)

__all__ = ["closed", "consumed", "duplicate", "fresh", "lost", "not_adopted", "unfinished", "unfit"]


def duplicate(op: Op) -> StoreError:
    """A row with the key of `op` stands already."""
    if isinstance(op, AddTask):
        row = op.row
        return StoreError(
            f"task {row.task_id} is not added: its id, or child {row.child_index} of call {row.call_key} of "
            f"{row.parent_id}, is recorded already; read the task that stands instead"
        )
    return StoreError(f"{_subject(op)} is recorded already and is never overwritten; read what stands instead")


def _subject(op: Op) -> str:
    if isinstance(op, AddSession):
        return f"session {op.row.session_id}"
    if isinstance(op, PutSegment):
        return f"segment {op.row.segment} of {op.row.task_id}"
    if isinstance(op, AddEntry):
        return f"position {op.position} of the history of {op.task_id}"
    if isinstance(op, PutInbox):
        return f"control message {op.row.receipt}"
    if isinstance(op, AddEvent):
        return f"event {op.row.seq} of session {op.row.session_id}"
    if isinstance(op, AddOwner):
        return f"owner {op.row.owner_id}"
    return f"the row of {type(op).__name__}"


def consumed(op: ConsumeDelivery) -> StoreError:
    """The delivery is somebody else's, or there is none."""
    return StoreError(
        f"the end of {op.child_id} cannot be delivered by {op.by}: it was delivered before, or is not pending; "
        "read the stored result instead"
    )


def lost(fence: Fence) -> OwnershipLost:
    """The fence does not hold any more."""
    return OwnershipLost(
        f"task {fence.task_id} is not owned by {fence.owner} at epoch {fence.epoch} any more: another process took "
        "it up; stop it here without another write"
    )


def not_adopted(op: AdoptTasks) -> OwnershipLost:
    """Nothing was left to adopt."""
    return OwnershipLost(
        f"session {op.session_id} has no task of {op.from_owner} left to take up: another process was first; "
        "read its tasks again"
    )


def unfit(op: Op, error: Exception) -> StoreError:
    """A value of `op` cannot be stored. The value itself stays out of the text: it may be anything."""
    return StoreError(f"{type(op).__name__} cannot be stored ({type(error).__name__}: {error}); check its fields")


def closed(what: str) -> StoreError:
    """The store was closed before."""
    return StoreError(f"the journal {what} is closed; nothing more can be written or read through it")


def fresh(cause: StoreError) -> StoreError:
    """A new error of the same kind and words; raise it `from` the cause: one instance is not raised twice."""
    return type(cause)(str(cause))


def unfinished(op: DeleteSession) -> StoreError:
    """The session has work that goes on, or an end that nobody was told of."""
    return StoreError(
        f"session {op.session_id} is not deleted: it has a task that has not ended, or a result that nobody saw; "
        "look at it with `hermes sessions show`"
    )
