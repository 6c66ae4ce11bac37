"""Running one command that judges a folder, with no task and no model: held and judged as the commands of tasks are.

What it runs may have been written by a task, so it gets the environment of the settings and passes their gate; nobody
is asked. Nothing of it is stored.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
import msgspec

from hermes.compose.consents import gate_of
from hermes.compose.opening import redactor_of
from hermes.compose.parts import Parts
from hermes.compose.places import Places
from hermes.core.events import Event
from hermes.core.ids import random_hex, task_id
from hermes.core.limits import Budget, Limits
from hermes.core.result import CheckResult
from hermes.core.scope import TaskScope
from hermes.runtime.checking import run_check
from hermes.runtime.isolation import Isolation
from hermes.runtime.spec import TaskSpec
from hermes.runtime.task import Task
from hermes.store.memory import MemoryStore

__all__ = ["judge"]

#: Seconds that ending what a check left running may take.
_GRACE = 10.0


def _unheard(_task: Task, _event: Event) -> None:
    """There is no runtime, so nobody listens to what the check would say on the stream."""


async def judge(parts: Parts, workspace: str, command: str, *, isolation: Isolation | None = None) -> CheckResult:
    """Run `command` in `workspace`, an absolute directory; `isolation` says of a worktree that it is one.

    Raises:
        OperatorError: it may not run by the rules, or the environment cannot be had.
    """
    redactor, store, owner = redactor_of(parts), MemoryStore(), random_hex(12)
    home, settings = parts.loaded.home, parts.loaded.settings
    with tempfile.TemporaryDirectory(prefix="hermes-check-") as state:
        places = Places(
            parts, redactor, store, owner, lambda task: str(Path(state, task.id)), home.path / "cache" / "sandbox"
        )
        spec = TaskSpec(kind="main", check=command, unattended=True, workspace=workspace, isolation=isolation)
        new = task_id(spec.kind)
        scope = TaskScope(task_id=new, session_id="check", root_id=new, workspace=workspace)
        task = Task(
            scope, spec, parent=None, budget=Budget(Limits(), new), owner=owner, emit=lambda _task, _event: None
        )
        try:
            await places.prepare(task)
            task.environment = places.make(task)
            gate = gate_of(msgspec.structs.replace(parts, replay=None), redactor, store)
            return await run_check(gate, task, command, timeout=settings.terminal.timeout)
        finally:
            with anyio.CancelScope(shield=True):
                if task.opened is not None:
                    with anyio.move_on_after(_GRACE):
                        await task.opened.close()
                await places.close()
