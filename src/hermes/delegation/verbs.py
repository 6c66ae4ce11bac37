"""The verbs on tasks with the answers that everyone gets: a model through its tools, Python, a command.

Each answer is a plain dictionary. None of them raises for what a caller may have got wrong: a wrong id, a task that has
ended, all are answers with `error`. Who may see which task is decided by `Control.visible`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from hermes.core.messages import opening, plain_text
from hermes.core.result import async_status, short_use
from hermes.core.scope import TaskScope
from hermes.delegation.report import Reports
from hermes.runtime.control import Control
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task

__all__ = ["NOT_YET", "Answer", "TaskVerbs"]

#: Said wherever a task was started and nobody waits for it.
NOT_YET = "No result exists yet. Do not report or guess an outcome; it arrives by itself as a new message."
#: Ended tasks that a listing shows, newest first.
SHOWN_ENDED = 50

Answer = dict[str, Any]


class TaskVerbs:
    """The verbs over one supervisor."""

    def __init__(self, supervisor: Supervisor, control: Control, reports: Reports) -> None:
        self._supervisor = supervisor
        self._control = control
        self._reports = reports

    def find(self, task_id: str, caller: TaskScope | None = None, session_id: str | None = None) -> Task | Answer:
        """The task of an id or of its unique beginning, among those the caller may see; else the answer saying so."""
        found = self._control.find(task_id, caller, session_id)
        if found.task is not None:
            return found.task
        answer: Answer = {"error": f"Task not found: {task_id}"}
        if found.nearest:
            answer["nearest"] = list(found.nearest)
        return answer

    def check(self, task: Task) -> Answer:
        """State, newest output and use of a task. Never waits."""
        control, admission = self._control, self._supervisor.admission
        view = control.view(task)
        lines = list(view.lines)
        answer: Answer = {
            "task_id": task.id,
            "status": async_status(task.state),
            "elapsed": round(control.seconds(task), 2),
            "output_preview": "\n".join(lines[-10:]),
            "output_lines": len(lines),
            "usage": self._supervisor.bus.tree.use(task.id),
        }
        if self._reports.transcript is not None:
            answer["live_transcript"] = self._reports.transcript(task)
        if task.state == "suspended":
            answer |= {"since": view.last_activity, "how_to_resume": _how_to_resume(task)}
        elif task.state == "queued":
            answer["position"] = admission.place(task)
        elif not task.ended:
            answer["phase"] = f"{view.phase} {view.phase_detail}".strip()
            limit = task.spec.limits.turns
            answer["turns"] = f"{task.budget.turns}/{limit}" if limit is not None else str(task.budget.turns)
            quiet = max(0.0, self._supervisor.clock.now() - view.last_activity)
            answer["last_activity_seconds"] = round(quiet, 1)
        if task.result is not None:
            answer |= {"exit_reason": task.result.exit_reason, "truncated": task.result.truncated}
            if task.result.error:
                answer["error"] = task.result.error
        if view.receipts:
            answer["receipts"] = list(view.receipts.values())
        return answer

    async def steer(self, task: Task, message: str, *, sender: str = "user", receipt: str = "") -> Answer:
        """Queue a correction for the task's next boundary; the same `receipt` asks once."""
        if not message.strip():
            return {"error": "message is required: say what the task should do differently"}
        queued = await self._control.steer(task, message, sender=sender, receipt=receipt)
        if queued is None:
            return _not_running(task)
        return {
            "ok": True,
            "message": "Queued; the task reads it before its next request.",
            "receipt": {"id": queued.id, "state": queued.state},
        }

    async def continue_task(self, task: Task, message: str, *, sender: str = "user", receipt: str = "") -> Answer:
        """Let a task that has ended go on with its history and `message`; the same `receipt` asks once."""
        if not message.strip():
            return {"error": "message is required: say what the task should do next"}
        queued = await self._control.continue_task(task, message, sender=sender, receipt=receipt)
        if isinstance(queued, str):
            return {"ok": False, "error": queued}
        return {
            "ok": True,
            "task_id": task.id,
            "attempt": task.attempt,
            "message": f"It goes on with what it knows. {NOT_YET}",
            "receipt": {"id": queued.id, "state": queued.state},
        }

    async def collect(self, task: Task, *, timeout: float | None, caller: Task | None, room_tokens: int) -> Answer:
        """Wait for the end of a task, at most `timeout` seconds, and answer with its report; the task goes on.

        `room_tokens` is what the reader's context has left: the report is cut to a share of it. A suspended task is not
        waited for.
        """
        suspended, _, in_time = await self._awaited([task], "all", timeout, caller)
        answer = self._reports.collected(
            task,
            self._reports.room_for(1, room_tokens),
            timed_out=not in_time,
            elapsed=self._control.seconds(task),
            lines=list(self._control.view(task).lines),
        )
        return answer | ({"how_to_resume": _how_to_resume(task)} if suspended else {})

    async def wait(
        self, tasks: Sequence[Task], *, mode: Literal["all", "any"], timeout: float | None, caller: Task | None
    ) -> Answer:
        """Wait until all (or any) of the tasks ended; says which did, in the order they were asked for.

        A suspended task ends nothing for `all` and counts as ended for `any`; it is named in `suspended`.
        """
        suspended, awaited, in_time = await self._awaited(tasks, mode, timeout, caller)
        answer: Answer = {
            "ended": [task.id for task in tasks if task.ended],
            "running": [task.id for task in awaited if not task.ended],
            "timed_out": not in_time,
        }
        return answer | ({"suspended": [task.id for task in suspended]} if suspended else {})

    async def _awaited(
        self, tasks: Sequence[Task], mode: Literal["all", "any"], timeout: float | None, caller: Task | None
    ) -> tuple[list[Task], list[Task], bool]:
        """Wait; returns those that are suspended, the others, and whether it was over in time."""
        suspended = [task for task in tasks if task.state == "suspended" and not task.ended]
        awaited = [task for task in tasks if task not in suspended]
        limit = None if timeout is None else max(0.0, timeout)
        if not [task for task in awaited if not task.ended]:
            return suspended, awaited, True
        if mode == "any" and (suspended or any(task.ended for task in awaited)):
            return suspended, awaited, True
        return suspended, awaited, await self._control.collect(awaited, mode=mode, timeout=limit, caller=caller)

    async def await_tasks(
        self,
        tasks: Sequence[Task],
        *,
        mode: Literal["all", "any"],
        timeout: float | None,
        caller: Task | None,
        room_tokens: int,
    ) -> Answer:
        """As `wait`, with the reports: those that ended first, in the order they were asked for, then the others."""
        suspended, awaited, in_time = await self._awaited(tasks, mode, timeout, caller)
        ended = [task for task in tasks if task.ended]
        room = self._reports.room_for(max(1, len(ended)), room_tokens)
        reports = [
            self._reports.collected(
                task,
                room,
                timed_out=False,
                elapsed=self._control.seconds(task),
                lines=[],
            )
            for task in ended
        ]
        for task, report in zip(ended, reports, strict=True):
            if task.spec.output_schema is None:  # the lines of several tasks at once are left to check_task
                del report["output"]
        answer: Answer = {
            "tasks": [*reports, *(self._row(task) for task in tasks if not task.ended)],
            "ended": [task.id for task in ended],
            "running": [task.id for task in awaited if not task.ended],
            "timed_out": not in_time,
        }
        if suspended:
            answer["suspended"] = [task.id for task in suspended]
        return answer

    async def cancel(self, task: Task, text: str, *, sender: str = "user") -> Answer:
        """Stop a task and everything under it; partial results are kept."""
        stopped = await self._control.cancel([task], text, sender=sender)
        if not stopped:
            return _not_running(task)
        return {
            "ok": True,
            "cancelled": task.id,
            "message": "The task and everything under it are being stopped; partial work is kept.",
            "receipt": {"id": task.cancels[-1], "state": "queued"},
        }

    def list(self, tasks: Sequence[Task]) -> Answer:
        """Tasks in short: running ones first, then queued, then the newest that ended."""
        order = {"running": 0, "queued": 1, "suspended": 2}
        ended = [task for task in tasks if task.ended][-SHOWN_ENDED:]
        going = sorted((task for task in tasks if not task.ended), key=lambda task: order.get(task.state, 3))
        rows = [self._row(task) for task in (*going, *reversed(ended))]
        return {"tasks": rows, "active": len(going), "limit": self._supervisor.admission.max_children}

    def _row(self, task: Task) -> Answer:
        tree = self._supervisor.bus.tree
        view = tree.tasks[task.id]
        row: Answer = {
            "task_id": task.id,
            "goal": opening(plain_text(task.spec.goal), 60),
            "status": async_status(task.state),
            "elapsed": round(self._control.seconds(task), 2),
            "output_lines": len(view.lines),
            **short_use(view.usage, tree.subtree_usage(task.id) if task.children else None),
        }
        place = self._supervisor.admission.place(task)
        if place:
            row["position"] = place
        return row


def _how_to_resume(task: Task) -> str:
    return f"hermes chat --resume {task.scope.session_id}"


def _not_running(task: Task) -> Answer:
    return {"ok": False, "error": f"Task {task.id} is not running (status: {async_status(task.state)})."}
