"""Limits of time: a task's wall clock, and how long it may go without a step. They hold in whatever phase it is in.

A gap between two looks that is longer than any delay was a suspension (sleep, SIGSTOP): limits do not run through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup

from hermes.core.views import TreeView
from hermes.runtime.diagnosis import diagnose, running_coroutines
from hermes.runtime.standstill import SUSPENSION
from hermes.runtime.task import StopReason, Task

__all__ = ["TICK", "Deadlines"]

#: Seconds between looks at clocks and activity.
TICK = 0.25


class Deadlines:
    """Watches the tasks that have limits of time, and halts those whose limit passed."""

    def __init__(self, tree: TreeView) -> None:
        self._tree = tree
        self._tasks: dict[str, Task] = {}
        self._added = anyio.Event()
        self._running: Mapping[str, Any] | None = None

    def start(self, group: TaskGroup) -> None:
        """Begin watching, in the given task group."""
        group.start_soon(self._run)

    def watch(self, task: Task) -> None:
        """Watch a task that has started, if it has such limits."""
        limits = task.spec.limits
        if limits.clock is not None or limits.inactivity is not None:
            self._tasks[task.id] = task
            self._added.set()

    async def _run(self) -> None:
        while True:
            if not self._tasks:
                self._added = anyio.Event()
                await self._added.wait()
            before = anyio.current_time()
            await anyio.sleep(TICK)
            now = anyio.current_time()
            slept = now - before - TICK if now - before > SUSPENSION else 0.0
            for task in list(self._tasks.values()):
                if task.ended or task.ending:
                    del self._tasks[task.id]
                    continue
                if slept and task.started_at is not None:
                    task.started_at += slept
                    task.last_step += slept
                self._check(task, now)
            self._running = None

    def _check(self, task: Task, now: float) -> None:
        limits, view = task.spec.limits, self._tree.tasks.get(task.id)
        phase = f" in phase {view.phase or 'building'} {view.phase_detail}".rstrip() if view is not None else ""
        started = task.started_at if task.started_at is not None else now
        if limits.clock is not None and now - started >= limits.clock:
            self._halt(task, "clock", f"the time limit of {limits.clock:g} s passed{phase}", now)
        elif limits.inactivity is not None and now - task.last_step >= limits.inactivity:
            if not task.living_children():
                self._halt(task, "inactivity", f"inactive: no step for {limits.inactivity:g} s{phase}", now)

    def _halt(self, task: Task, reason: StopReason, text: str, now: float) -> None:
        view = self._tree.tasks.get(task.id)
        if task.parent is not None and task.stop is None and (view is None or view.api_calls == 0):
            if self._running is None:  # once a look: it goes through every task of the loop
                self._running = running_coroutines()
            task.diagnosis = diagnose(task, view, text, now, self._running)
        task.halt(reason, text)
