"""Where the tree of a session comes from, and what can be asked of its tasks: of this process, or of another one.

Both kinds answer every verb with a sentence for a person. Nothing is adopted, and nothing is drawn here.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from hermes.compose import Assembly
from hermes.core.codec import decode_entry
from hermes.core.messages import Entry
from hermes.core.result import async_status
from hermes.core.views import TaskView, TreeView
from hermes.runtime.remote import Remote
from hermes.runtime.task import Task
from hermes.store.ops import TaskRow
from hermes.store.owner import is_gone
from hermes.store.wake import ring

__all__ = ["LiveTasks", "StoredTasks", "TaskSource", "remote_of", "task_source"]

STOPPED = "stopped by the user"


class TaskSource(Protocol):
    """The tasks of one session. `here`: they belong to this process, and the view changes by itself."""

    session_id: str
    tree: TreeView
    here: bool

    async def refresh(self) -> bool:
        """Bring the view up to date; whether it changed."""

    async def stop(self, views: list[TaskView]) -> str:
        """Stop tasks with everything under them."""

    async def steer(self, view: TaskView, text: str) -> tuple[str, str]:
        """Correct a task: the receipt (empty where it was refused) and what to tell."""

    async def entries(self, task_id: str, start: int) -> list[tuple[int, Entry]]:
        """The history of a task from a position on."""

    def pause(self) -> str:
        """Hold back tasks that have not started, or let them start."""

    @property
    def paused(self) -> bool:
        """Whether nothing new is started."""


class _Reading:
    """What both kinds read from the journal."""

    def __init__(self, remote: Remote, session_id: str) -> None:
        self.session_id = session_id
        self._remote = remote

    async def entries(self, task_id: str, start: int) -> list[tuple[int, Entry]]:
        """The history of a task from a position on."""
        found = await self._remote.store.entries(task_id, start)
        return [(position, decode_entry(body)) for position, body in found]


class LiveTasks(_Reading):
    """The tasks of a session that this process runs."""

    here = True

    def __init__(self, assembly: Assembly, session_id: str) -> None:
        super().__init__(remote_of(assembly), session_id)
        self._control = assembly.runtime.control
        self._admission = assembly.runtime.supervisor.admission
        self.tree = assembly.runtime.bus.tree

    async def refresh(self) -> bool:
        """The view is the one that the events of this process are folded into."""
        return True

    def _task(self, view: TaskView) -> Task | None:
        return self._control.find(view.task_id, session_id=self.session_id).task

    async def stop(self, views: list[TaskView]) -> str:
        """Stop tasks with everything under them; what they have is kept."""
        tasks = [task for view in views if (task := self._task(view)) is not None]
        stopped = await self._control.cancel(tasks, STOPPED)
        if stopped:
            return f"stopping {_names([task.id for task in stopped])}"
        return f"{_names([view.task_id for view in views])}: not running ({async_status(views[0].state)})"

    async def steer(self, view: TaskView, text: str) -> tuple[str, str]:
        """Queue a correction, read at the task's next step."""
        task = self._task(view)
        receipt = await self._control.steer(task, text) if task is not None else None
        if receipt is None:
            return "", f"{view.task_id} is not running ({async_status(view.state)})"
        return receipt.id, f"steer {receipt.id}: {receipt.state}"

    def pause(self) -> str:
        """Hold back every task of this process that has not started, or let them start."""
        paused = not self._admission.paused
        self._admission.pause(paused)
        return "nothing new is started until p is pressed again" if paused else "new tasks are started again"

    @property
    def paused(self) -> bool:
        """Whether nothing new is started."""
        return self._admission.paused


class StoredTasks(_Reading):
    """The tasks of a session that another process runs, or none: read from the journal, asked through it.

    A task whose process is gone is shown as suspended, and its clock stands where its last event left it.
    """

    here = False
    paused = False

    def __init__(self, remote: Remote, session_id: str) -> None:
        super().__init__(remote, session_id)
        self.tree = TreeView()
        self._read = -1
        self._states: tuple[tuple[str, str], ...] = ()

    async def refresh(self) -> bool:
        """Read the events again where there are new ones, and look whose process still lives."""
        store = self._remote.store
        rows = await store.tasks(self.session_id)
        states = tuple([(row.task_id, await self._remote.state(row)) for row in rows])
        newest = await store.last_seq(self.session_id)
        if (newest, states) == (self._read, self._states):
            return False
        tree = await self._remote.tree(self.session_id)
        self.tree, self._read, self._states = tree, newest, states
        return True

    async def _row(self, view: TaskView) -> TaskRow | None:
        return await self._remote.store.task(view.task_id)

    async def _send(self, view: TaskView, verb: str, text: str) -> dict[str, Any]:
        row = await self._row(view)
        if row is None:
            return {"error": f"{view.task_id} is gone; was its session deleted?"}
        return await self._remote.send(row, verb, text)

    async def stop(self, views: list[TaskView]) -> str:
        """Ask whoever has the tasks to stop them; without a living process they are ended here."""
        told = [_answer(view.task_id, "stop", await self._send(view, "cancel", STOPPED)) for view in views]
        return "; ".join(told)

    async def steer(self, view: TaskView, text: str) -> tuple[str, str]:
        """Write a correction for whoever has the task."""
        answer = await self._send(view, "steer", text)
        receipt = answer.get("receipt") or {}
        return str(receipt.get("id", "")), _answer(view.task_id, "steer", answer)

    def pause(self) -> str:
        """Another process starts its tasks by itself."""
        return "these tasks belong to another process: only that one can hold back what it starts"


def _answer(task_id: str, verb: str, answer: dict[str, Any]) -> str:
    if "error" in answer:
        return str(answer["error"])
    receipt = answer.get("receipt")
    if receipt:
        return f"{verb} {receipt['id']}: {receipt['state']}"
    return str(answer.get("message") or f"{verb} {task_id}: done")


def _names(ids: list[str]) -> str:
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def remote_of(assembly: Assembly) -> Remote:
    """The verbs over the journal of an open runtime, for sessions that are not its own."""
    runtime, home = assembly.runtime, assembly.home.path
    return Remote(
        runtime.store,
        is_gone=partial(is_gone, home),
        ring=partial(ring, home),
        clock=runtime.clock,
        redact=runtime.redact,
    )


def task_source(assembly: Assembly, session_id: str) -> TaskSource:
    """The tasks of a session, wherever they are."""
    tree = assembly.runtime.bus.tree
    if not session_id or any(view.session_id == session_id for view in tree.tasks.values()):
        return LiveTasks(assembly, session_id)
    return StoredTasks(remote_of(assembly), session_id)
