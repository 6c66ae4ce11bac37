"""Parents and children for tests: scripts by goal, and what a request shows of the last results."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from hermes.core.messages import Assistant, Notice, ToolResult, plain_text
from hermes.core.model import ModelProfile, ModelRequest
from hermes.runtime.task import Task
from hermes.testing.lab import Lab
from hermes.testing.scripted import ScriptedModel, Step, call, first_user_text, reply

STEP = reply(calls=[call("todo", todos=[])], delay=1)


def family(parent: Sequence[Step], profile: ModelProfile | None = None, **children: Sequence[Step]) -> ScriptedModel:
    """A model with a script for the task whose goal holds the word `parent`, and one for each child's goal."""
    return ScriptedModel("m", scripts={"parent": parent, **children}, profile=profile)


def answers(request: ModelRequest) -> list[dict[str, Any]]:
    """The tool results after the last reply of a request, decoded."""
    found: list[dict[str, Any]] = []
    for entry in reversed(request.entries):
        if isinstance(entry, Assistant):
            break
        if isinstance(entry, ToolResult):
            found.insert(0, json.loads(plain_text(entry.content)))
    return found


def asked_by(model: ScriptedModel, word: str) -> list[ModelRequest]:
    """The requests of the task whose goal holds `word`."""
    return [request for request in model.requests if word in first_user_text(request)]


def child_of(lab: Lab, word: str) -> Task:
    """The task whose goal holds `word`."""
    (found,) = [task for task in lab.runtime.supervisor.tasks.values() if word in plain_text(task.spec.goal)]
    return found


def told(task: Task) -> list[str]:
    """Ids of children whose ends stand as notices in a task's history, each as often as it stands there."""
    assert task.history is not None
    return [name for entry in task.history.full() if isinstance(entry, Notice) for name in entry.tasks]


async def until(condition: Callable[[], object], seconds: float = 600.0) -> None:
    """Let time pass until the condition holds; fails after `seconds`."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.05)


async def in_background(work: Callable[[], Awaitable[object]], meanwhile: Callable[[], Awaitable[object]]) -> None:
    """Run `work` and beside it `meanwhile`."""
    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await meanwhile()
