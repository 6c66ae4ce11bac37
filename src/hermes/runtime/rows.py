"""A task as a row of the journal and as its first and last event, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio.to_thread
import msgspec

from hermes.core.clock import Hold, held
from hermes.core.codec import decode_event, encode_json
from hermes.core.events import Envelope, TaskEnded, TaskPhase, TaskQueued, TaskSuspended
from hermes.core.messages import is_large, plain_text
from hermes.core.result import TaskResult, async_status
from hermes.core.scope import CallKey
from hermes.core.views import TreeView
from hermes.runtime.spec import SpawnRequest, TaskSpec
from hermes.runtime.task import Task
from hermes.store.ops import Store, TaskRow

__all__ = [
    "ended_event",
    "fold_events",
    "large_specs",
    "queued_event",
    "resting",
    "stored_result",
    "stored_spec",
    "suspend_lost",
    "task_row",
]

#: Characters of a goal that stand in a row and in an event; the whole is in the specification.
GOAL_CHARS = 2_000
#: Characters of a summary that stand in an event; the whole is in the result.
SUMMARY_CHARS = 500

_spec = msgspec.json.Decoder(TaskSpec)
_result = msgspec.json.Decoder(TaskResult)


async def large_specs(
    requests: Sequence[SpawnRequest], redact: Callable[[bytes], bytes], hold: Hold
) -> dict[int, bytes]:
    """The specifications that take long to encode, without secrets, by the id of their request: everything else goes
    on meanwhile."""
    found: dict[int, bytes] = {}
    for request in requests:
        if is_large(request.spec.goal):
            with held(hold):
                found[id(request)] = await anyio.to_thread.run_sync(
                    lambda spec: redact(encode_json(spec)), request.spec
                )
    return found


def task_row(
    task: Task,
    request: SpawnRequest,
    key: CallKey | None,
    now: float,
    redact: Callable[[bytes], bytes],
    spec: bytes | None = None,
) -> TaskRow:
    """The row of a new task, without secrets. `spec` is its specification where that was encoded before."""
    scope = task.scope
    return TaskRow(
        task_id=scope.task_id,
        session_id=scope.session_id,
        root_id=scope.root_id,
        parent_id=scope.parent_id,
        kind=scope.kind,
        role=scope.role,
        depth=scope.depth,
        goal=redact(plain_text(task.spec.goal)[:GOAL_CHARS].encode("utf-8", "replace")).decode(),
        state="queued",
        spec=redact(encode_json(task.spec)) if spec is None else spec,
        owner=task.owner,
        epoch=task.epoch,
        call_key=f"{key.position}:{key.index}" if key is not None else None,
        child_index=request.index,
        group_id=request.group,
        attempt=1,
        created_at=now,
    )


def queued_event(task: Task, request: SpawnRequest, position: int) -> TaskQueued:
    """The first event of a task; `position` is its place in the queue."""
    spec = request.spec
    return TaskQueued(
        kind=spec.kind,
        goal=plain_text(spec.goal)[:GOAL_CHARS],
        depth=task.scope.depth,
        role=spec.role,
        model=spec.model.name,
        toolsets=spec.toolsets,
        position=0 if spec.interactive else position,
        group=request.group,
        index=request.index,
        count=request.count,
        label=spec.label,
    )


def ended_event(result: TaskResult) -> TaskEnded:
    """The last event of a task."""
    return TaskEnded(
        state=result.state,
        status=async_status(result.state),
        exit_reason=result.exit_reason,
        summary=result.summary[:SUMMARY_CHARS],
        error=result.error,
        elapsed=round(result.elapsed, 3),
        usage=result.usage,
        api_calls=result.api_calls,
        truncated=result.truncated,
    )


async def fold_events(store: Store, session_id: str, rows: Sequence[TaskRow], tree: TreeView) -> None:
    """Fold the kept events of a session, whose tasks are `rows`, into a view."""
    parents = {row.task_id: row.parent_id for row in rows}
    after = 0
    while events := await store.events(session_id, after=after, limit=5_000):
        for row in events:
            if row.task_id in parents:
                tree.apply(
                    Envelope(
                        seq=row.seq,
                        at=row.at,
                        session_id=session_id,
                        task_id=row.task_id,
                        parent_id=parents[row.task_id],
                        event=decode_event(row.body),
                    )
                )
        after = events[-1].seq


async def resting(store: Store, session_id: str, rows: Sequence[TaskRow]) -> set[str]:
    """Conversations of a session, whose tasks are `rows`, that wait for their person: none began to work since."""
    if all(row.parent_id is not None or row.ended_at is not None for row in rows):
        return set()
    begun = {turn.task_id: turn.seq for turn in await store.events_of_type("turn.started", session_id=session_id)}
    found = set()
    for row in await store.events_of_type("task.phase", session_id=session_id):
        event = decode_event(row.body)
        if isinstance(event, TaskPhase) and event.phase == "idle" and row.seq > begun.get(row.task_id, 0):
            found.add(row.task_id)
    return found


async def paused(store: Store, session_id: str) -> bool:
    """Whether tasks of a session did not run all the time since they began: the machine slept, or another process had
    them before."""
    if await store.events_of_type("task.adopted", session_id=session_id):
        return True
    phases = [decode_event(row.body) for row in await store.events_of_type("task.phase", session_id=session_id)]
    return any(isinstance(event, TaskPhase) and event.slept for event in phases)


def stored_spec(row: TaskRow) -> TaskSpec:
    """The specification in a row. Raises `msgspec.ValidationError` for what an unknown version wrote."""
    return _spec.decode(row.spec)


def stored_result(row: TaskRow) -> TaskResult | None:
    """The result in a row, None while the task has not ended."""
    return _result.decode(row.end) if row.end is not None else None


def suspend_lost(tree: TreeView, row: TaskRow) -> None:
    """Let the view of a task say that its process is gone, which ended without a word; its clock stands where its last
    event left it."""
    view = tree.tasks.get(row.task_id)
    if view is None or view.ended or view.state == "suspended":
        return
    tree.apply(
        Envelope(
            seq=0,
            at=max(view.last_activity, view.started_at or 0.0),
            session_id=row.session_id,
            task_id=row.task_id,
            parent_id=row.parent_id,
            event=TaskSuspended(reason="its process is gone"),
        )
    )
