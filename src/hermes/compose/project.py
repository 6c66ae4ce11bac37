"""What a task is told of the project it works in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio.to_thread

from hermes.core.clock import Hold, held
from hermes.runtime.context_files import context_section
from hermes.runtime.task import Task

__all__ = ["project_notes"]


def project_notes(most: int, hold: Hold) -> Callable[[Task], Awaitable[str]]:
    """Return what reads a project's own file for a task; at most `most` characters of it, 0 reads none."""

    async def notes(task: Task) -> str:
        if most <= 0:
            return ""
        with held(hold):
            return await anyio.to_thread.run_sync(context_section, task.scope.workspace, most)

    return notes
