"""Admission: may a task start now, wait, or not at all?

Two caps on what runs: the direct children of one parent, and all tasks of the process. What is over a cap waits, in
order, visibly. Tasks with a person waiting go before those without; among equals parents take turns, so that no tree
starves another. A task that gave its slot away while it waited for others gets it back before anything new starts;
interactive tasks take no slot. A burst is cut into small steps, since a thousand starts in one instant stay in step for
all their turns.
"""

from __future__ import annotations

from collections import deque

import anyio
from anyio.abc import TaskGroup

from hermes.runtime.pace import Pace
from hermes.runtime.task import Task

__all__ = ["BURST", "BURST_PAUSE", "Admission"]

#: Starts in one step, and seconds between steps: a start costs as much as a step of a child or two.
BURST, BURST_PAUSE = 10, 0.002
#: The lines of tasks without a parent, with and without a person waiting; only the lines of parents have a cap.
_ATTENDED, _ALONE = "attended", ""


class Admission:
    """The queue of one process. `max_running` caps the process, `max_children` the running children of one parent."""

    def __init__(self, *, max_running: int, max_children: int) -> None:
        self.max_running = max_running
        self.max_children = max_children
        self.running = 0
        self.paused = False
        self.pace = Pace()  # of those that run
        self.in_turn = self.pace.wait  # bound once for all of them
        self._running_children: dict[str, int] = {}
        self._returning: deque[tuple[Task, anyio.Event]] = deque()
        self._lines: dict[str, deque[tuple[Task, anyio.Event]]] = {}
        self._turns = (deque[str](), deque[str]())  # whose turn it is next: with a person waiting, and without
        self._kick = anyio.Event()

    async def acquire(self, task: Task) -> None:
        """Wait for a running slot. Cancelled while waiting: the place, or a slot granted just then, is given back."""
        if task.spec.interactive:
            return
        line = self._line_of(task)
        granted = anyio.Event()
        queue = self._lines.setdefault(line, deque())
        if not queue:
            self._turns_of(task).append(line)
        queue.append((task, granted))
        task.waiting = True
        self._kick.set()
        try:
            await granted.wait()
        except BaseException:
            if task.slot:
                self.release(task)
            else:
                self._leave(line, task)
            raise
        finally:
            task.waiting = False

    def release(self, task: Task) -> None:
        """Give the slot back at the end of a task, and its place among its parent's running children."""
        self.pace.let_up(task.id)
        if task.slot:
            task.slot = False
            self.running -= 1
        if task.counted:
            task.counted = False
            line = self._line_of(task)
            self._running_children[line] -= 1
            if not self._running_children[line]:
                del self._running_children[line]
        self._kick.set()

    def lend(self, task: Task) -> None:
        """The task waits for others: its slot may run one of them. Calls nest."""
        task.lent += 1
        self.pace.let_up(task.id)
        if task.lent == 1 and task.slot:
            task.slot = False
            self.running -= 1
            self._kick.set()
        # A call that is about to get the slot back must not take it while this one waits: nothing could run under it.
        for entry in [entry for entry in self._returning if entry[0] is task]:
            self._returning.remove(entry)
            entry[1].set()

    async def take_back(self, task: Task) -> None:
        """The wait is over: take a slot again, before anything new starts."""
        task.lent -= 1
        if not task.lent:
            self.awaited(task)
        if task.lent or task.spec.interactive or task.slot or task.stop is not None:
            return
        granted = anyio.Event()
        entry = (task, granted)
        self._returning.append(entry)
        self._kick.set()
        try:
            await granted.wait()
        except BaseException:
            if not task.slot and entry in self._returning:
                self._returning.remove(entry)
            raise

    def awaited(self, task: Task) -> None:
        """A turn of a task begins, or goes on: others keep it waiting less if somebody waits for its answer."""
        if task.spec.interactive and task.stop is None:
            self.pace.hasten(task.id)

    def place(self, task: Task) -> int:
        """The task's place in its line, 1 is next; 0 when it does not wait."""
        if not task.waiting:
            return 0
        for place, (waiting, _) in enumerate(self._lines.get(self._line_of(task), ()), 1):
            if waiting is task:
                return place
        return 0

    def waiting(self) -> int:
        """How many tasks wait to start."""
        return sum(len(queue) for queue in self._lines.values())

    def pause(self, paused: bool) -> None:
        """Hold back new starts, or let them go on."""
        self.paused = paused
        self._kick.set()

    def start(self, group: TaskGroup) -> None:
        """Begin admitting, in the given task group."""
        group.start_soon(self._run)
        self.pace.start(group)

    async def _run(self) -> None:
        while True:
            self._kick = anyio.Event()
            while self._admit(BURST) == BURST:
                await anyio.sleep(BURST_PAUSE)
            await self._kick.wait()

    def _admit(self, limit: int) -> int:
        """Start up to `limit` tasks; returns how many."""
        started = 0
        while started < limit and self.running < self.max_running and self._returning:
            task, granted = self._returning.popleft()
            task.slot = True
            self.running += 1
            granted.set()
            started += 1
        for turns in self._turns:
            started += self._admit_new(turns, limit - started)
        return started

    def _admit_new(self, turns: deque[str], limit: int) -> int:
        started = skipped = 0
        while started < limit and self.running < self.max_running and turns and not self.paused:
            line = turns.popleft()
            queue = self._lines[line]
            capped = line not in (_ATTENDED, _ALONE)
            if capped and self._running_children.get(line, 0) >= self.max_children:
                turns.append(line)
                skipped += 1
                if skipped >= len(turns):
                    break
                continue
            skipped = 0
            task, granted = queue.popleft()
            if queue:
                turns.append(line)
            else:
                del self._lines[line]
            task.slot = True
            task.counted = True  # among its parent's running children, until its end
            self.running += 1
            self._running_children[line] = self._running_children.get(line, 0) + 1
            granted.set()
            started += 1
        return started

    def _leave(self, line: str, task: Task) -> None:
        queue = self._lines.get(line)
        if queue is None:
            return
        remaining = deque(entry for entry in queue if entry[0] is not task)
        if remaining:
            self._lines[line] = remaining
        else:
            del self._lines[line]
            self._turns_of(task).remove(line)

    def _turns_of(self, task: Task) -> deque[str]:
        """The round in which the line of a task takes turns; all children of one parent stand in one."""
        above = task.parent if task.parent is not None and not task.spec.detached else task
        return self._turns[above.spec.unattended]

    @staticmethod
    def _line_of(task: Task) -> str:
        """Children of one parent stand in one line, tasks without a parent in lines without a cap."""
        if task.parent is not None and not task.spec.detached:
            return task.parent.id
        return _ALONE if task.spec.unattended else _ATTENDED
