"""Whether "done" is done: the final answer of a task held against its schema, its work against its check.

Each may send the task back once with what is wrong. An answer that still does not fit is kept with its errors; a check
that still fails ends the task as failed. How often a task was sent back stands in its history, so a task that another
process takes up is not sent back again.
"""

from __future__ import annotations

import anyio
import anyio.to_thread
import msgspec

from hermes.core.agent import Outcome
from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import OperatorError
from hermes.core.events import TaskPhase
from hermes.core.inbox import Remark
from hermes.core.messages import Notice, User
from hermes.core.result import CheckResult
from hermes.delegation.structured import find_value, validate
from hermes.runtime.approval import Gate
from hermes.runtime.checking import run_check
from hermes.runtime.task import Task

__all__ = ["Acceptance"]


class Acceptance:
    """Judges final answers. `gate` decides whether a check may run, `timeout` is the seconds it may take."""

    def __init__(self, gate: Gate, *, timeout: float, hold: Hold = NO_HOLD) -> None:
        self._gate = gate
        self._hold = hold
        self._timeout = timeout

    async def __call__(self, task: Task, outcome: Outcome) -> None:
        """Judge an answer: nothing happens, or a remark waits in the task's inbox.

        Raises:
            OperatorError: the check failed for the second time, or may not run.
        """
        if task.spec.output_schema is not None:
            remark = await self._schema(task, outcome.text)
            if remark is not None:
                task.inbox.remark(remark)
                return
        if task.spec.check:
            remark = await self._check(task)
            if remark is not None:
                task.inbox.remark(remark)

    async def _schema(self, task: Task, text: str) -> Remark | None:
        schema = task.spec.output_schema or {}
        value, problem = find_value(text)
        with held(self._hold):
            errors = (problem,) if problem else await anyio.to_thread.run_sync(validate, value, schema)
        task.verdict = msgspec.structs.replace(
            task.verdict, schema_valid=not errors, schema_errors=errors, output=None if errors else value
        )
        if not errors or _sent_back(task, "schema"):
            return None
        wrong = "\n".join(f"- {error}" for error in errors)
        return Remark(
            kind="schema",
            text=f"Your answer does not fit the schema it was asked for:\n{wrong}\n"
            "Answer again with one JSON value that fits it, and nothing else.",
        )

    async def _check(self, task: Task) -> Remark | None:
        command = task.spec.check
        task.emit(TaskPhase(phase="check", detail=command[:100]))
        found = await self._run(task, command)
        task.verdict = msgspec.structs.replace(task.verdict, check=found)
        if found.passed:
            return None
        how = f"exit code {found.exit_code}" if found.exit_code is not None else "no exit code"
        if _sent_back(task, "check"):
            last = next((line for line in reversed(found.output.splitlines()) if line.strip()), "it printed nothing")
            raise OperatorError(f"the check `{command[:200]}` failed twice ({how}): {last[:300]}")
        return Remark(
            kind="check",
            text=f"The work is not accepted yet: the check `{command}` failed with {how}. Its last lines:\n"
            f"{found.output or '(nothing)'}\nFix the cause, then report again. The check runs once more after that.",
        )

    async def _run(self, task: Task, command: str) -> CheckResult:
        try:
            return await run_check(self._gate, task, command, timeout=self._timeout)
        except OperatorError as error:
            task.verdict = msgspec.structs.replace(
                task.verdict, check=CheckResult(command=command, passed=False, output=str(error))
            )
            raise


def _sent_back(task: Task, kind: str) -> bool:
    """Whether the task was sent back for this since its input came."""
    for entry in reversed(task.history.full() if task.history is not None else ()):
        if isinstance(entry, Notice) and entry.kind == kind:
            return True
        if isinstance(entry, User):
            return False
    return False
