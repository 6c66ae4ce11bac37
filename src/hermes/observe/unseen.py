"""Results that nobody saw: ends of tasks whose conversation was over, or whose process was gone, before it was told.

They are shown to the next person who opens a conversation in the same home. Showing one is noted and is not delivery: a
conversation that is taken up again is told all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio.to_thread
import msgspec

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.result import async_status
from hermes.runtime.rows import stored_result
from hermes.store.ops import ShowDelivery, Store, TaskRow, Unit

__all__ = ["Unseen", "mark_shown", "pending_results"]


class Unseen(msgspec.Struct, frozen=True, kw_only=True):
    """An end that nobody saw. `summary` is the whole text; `resumable` says that its conversation has not ended."""

    task_id: str
    session_id: str
    goal: str
    status: str
    ended_at: float
    elapsed: float = 0.0
    summary: str = ""
    error: str = ""
    resumable: bool = False


async def pending_results(
    store: Store,
    *,
    is_gone: Callable[[str], bool],
    session_id: str | None = None,
    limit: int = 1_000,
    hold: Hold = NO_HOLD,
) -> list[Unseen]:
    """Ends that nobody saw and that no living conversation is about to be told, in order of creation.

    `is_gone(owner)` says whether a process is proven to have ended; it is called on another thread.

    Raises:
        StoreError: the journal cannot be read.
        OperatorError: a lock cannot be looked at.
    """
    found: list[Unseen] = []
    roots: dict[str, TaskRow | None] = {}
    gone: dict[str, bool] = {}
    for row in await store.unseen(session_id, limit):
        if row.root_id not in roots:
            roots[row.root_id] = await store.task(row.root_id)
        root = roots[row.root_id]
        going = root is not None and root.ended_at is None
        if going and root is not None:
            if root.owner not in gone:
                with held(hold):
                    gone[root.owner] = await anyio.to_thread.run_sync(is_gone, root.owner)
            if not gone[root.owner]:
                continue
        result = stored_result(row)
        found.append(
            Unseen(
                task_id=row.task_id,
                session_id=row.session_id,
                goal=row.goal,
                status=async_status(row.state),
                ended_at=row.ended_at or 0.0,
                elapsed=result.elapsed if result is not None else 0.0,
                summary=result.summary if result is not None else "",
                error=result.error if result is not None else "",
                resumable=going,
            )
        )
    return found


async def mark_shown(store: Store, task_ids: Iterable[str], now: float) -> None:
    """Note that a person was shown these ends; `now` is seconds since the epoch.

    Raises:
        StoreError: the journal cannot be written.
    """
    ops = tuple(ShowDelivery(child_id=task_id, at=now) for task_id in task_ids)
    if ops:
        await store.submit(Unit(ops=ops)).wait()
