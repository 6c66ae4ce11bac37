"""What a child was doing that ran out of time before its model answered once: a file for people to read.

It is taken in the moment before the child is stopped, since afterwards its stack is gone. It holds no text of the
conversation and no value of a variable, only names, places and sizes.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio

from hermes.core.compaction import estimate_entries, estimate_tools
from hermes.core.messages import Text, User
from hermes.core.views import TaskView
from hermes.runtime.task import Task

__all__ = ["diagnose", "running_coroutines", "write_diagnosis"]


def running_coroutines() -> Mapping[str, Any]:
    """The coroutines of the running loop by the names of their tasks."""
    return {info.name: info.coro for info in anyio.get_running_tasks() if info.name is not None}


def diagnose(task: Task, view: TaskView | None, reason: str, now: float, running: Mapping[str, Any]) -> str:
    """Describe a task that is about to be stopped; `now` is the loop's clock, `running` from `running_coroutines`."""
    phase = view.phase if view is not None else ""
    detail = view.phase_detail if view is not None else ""
    seconds = now - task.started_at if task.started_at is not None else 0.0
    prompt = estimate_entries((User(content=(Text(task.spec.system),)), User(content=task.spec.goal)))
    lines = [
        f"task: {task.id} (parent {task.scope.parent_id or 'none'}, depth {task.scope.depth}, attempt {task.attempt})",
        f"reason: {reason}",
        f"phase: {phase or 'building'} {detail}".rstrip(),
        f"running for: {seconds:.1f} s",
        f"model: {task.model.name if task.model is not None else task.spec.model.name or '(not chosen yet)'}",
        f"toolsets: {', '.join(task.spec.toolsets) or 'none'}",
        f"prompt: about {prompt} tokens",
        f"tools: {len(task.offered)}, about {estimate_tools(task.offered)} tokens",
        "",
        "stack of the task, outermost first:",
        *_stack(running.get(task.id)),
        "",
        "threads:",
        *_threads(),
    ]
    return "\n".join(lines) + "\n"


async def write_diagnosis(logs: Path, task_id: str, at: float, text: bytes) -> str:
    """Write a diagnosis and return its path. `at` is seconds since the epoch.

    Raises:
        OSError: the file cannot be written.
    """
    path = logs / f"subagent-timeout-{task_id}-{datetime.fromtimestamp(at):%Y%m%d_%H%M%S}.log"
    target = anyio.Path(path)
    await target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    await target.touch(mode=0o600)
    await target.write_bytes(text)
    return str(path)


def _stack(found: Any) -> list[str]:
    """Where a coroutine and those it waits for stand."""
    lines = []
    while found is not None:
        frame = getattr(found, "cr_frame", None) or getattr(found, "gi_frame", None) or getattr(found, "ag_frame", None)
        if frame is None:
            break
        lines.append(f"  {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})")
        found = getattr(found, "cr_await", None) or getattr(found, "gi_yieldfrom", None)
    return lines or ["  (it is not on the loop)"]


def _threads() -> list[str]:
    """Where every thread stands, this one left out: a blocking call shows here."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():
        if ident == threading.get_ident():
            continue
        lines.append(f"  {names.get(ident, ident)}:")
        lines += [f"    {entry.name} ({entry.filename}:{entry.lineno})" for entry in traceback.extract_stack(frame)]
    return lines or ["  none but this one"]
