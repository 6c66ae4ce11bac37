"""What a task is told of the project it works in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread

from hermes.core.clock import Hold, held
from hermes.runtime.context_files import context_section
from hermes.runtime.task import Task

__all__ = ["project_notes"]

#: Seconds for which a reading serves the next task of the same folder: children come in crowds.
FRESH = 1.0


def project_notes(most: int, hold: Hold) -> Callable[[Task], Awaitable[str]]:
    """Return what reads a project's own file for a task; at most `most` characters of it, 0 reads none."""

    lock = anyio.Lock()
    kept = ("", -FRESH, "")  # folder, when it was read, what it said

    async def notes(task: Task) -> str:
        nonlocal kept
        if most <= 0:
            return ""
        folder = task.scope.workspace
        async with lock:
            if kept[0] != folder or anyio.current_time() - kept[1] >= FRESH:
                with held(hold):
                    text = await anyio.to_thread.run_sync(context_section, folder, most)
                kept = (folder, anyio.current_time(), text)
            return kept[2]

    return notes
