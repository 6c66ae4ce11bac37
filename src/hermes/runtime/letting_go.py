"""Stopping tasks where they stand without an end, so that another process can go on with them.

What is in the middle of a call that must not be made twice may get some time to come to the end of it: cut off, its
effect would be unknown. Everything else stops at once, since it is repeated at no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from hermes.runtime.task import Task

__all__ = ["mid_call", "suspend"]

#: Seconds between two looks at calls that are waited for.
LOOK_EVERY = 0.05
#: Seconds in which stopped tasks have to clean up.
GRACE = 10.0


def mid_call(task: Task) -> bool:
    """Whether a task is inside a call that is not safe to repeat, such as a command."""
    if task.ended or task.ending or task.stop is not None or task.history is None or not task.unsafe:
        return False
    return any(open_.result is None and open_.call.name in task.unsafe for open_ in task.history.open_calls())


async def suspend(tasks: Sequence[Task], reason: str, note: Callable[[Task, str], None], patience: float = 0.0) -> None:
    """Stop tasks; those that are inside such a call get up to `patience` seconds. `note` records each stop."""
    waiting = [task for task in tasks if patience > 0 and mid_call(task)]
    _halt([task for task in tasks if task not in waiting], reason, note)
    with anyio.move_on_after(patience, shield=True):
        while waiting:
            await anyio.sleep(LOOK_EVERY)
            over = [task for task in waiting if not mid_call(task)]
            waiting = [task for task in waiting if task not in over]
            _halt(over, reason, note)
    _halt(waiting, reason, note)
    with anyio.move_on_after(GRACE, shield=True):
        for task in tasks:
            await task.done.wait()


def _halt(tasks: Sequence[Task], reason: str, note: Callable[[Task, str], None]) -> None:
    for task in tasks:
        if task.halt("shutdown", reason):
            note(task, reason)
