"""Background processes as their task hears of them: what it waits for before it ends, and the notice of an end."""

from __future__ import annotations

from hermes.core.environment import ProcessInfo
from hermes.core.inbox import Remark
from hermes.runtime.task import Task

__all__ = ["awaits_process", "tell_process"]


def awaits_process(task: Task) -> bool:
    """Whether a process runs whose end the task wants to hear of before it ends itself."""
    environment = task.opened
    return environment is not None and any(info.notify for info in environment.processes())


def tell_process(task: Task, info: ProcessInfo) -> None:
    """Let a task know that one of its background processes ended, unless it ended it itself or is ending."""
    if task.ended or task.ending or info.reason in ("request", "the task ended"):
        return
    how = f"was killed ({info.reason})" if info.reason else f"ended with exit code {info.exit_code}"
    output = f" Its last lines:\n{info.tail}" if info.tail.strip() else " It printed nothing."
    command = " ".join(info.command.split())[:200]
    text = f"[Background process {info.process_id} {how} after {info.elapsed:.1f} s: {command}]{output}"
    task.inbox.remark(Remark(kind="process", text=text))
