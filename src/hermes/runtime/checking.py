"""Running a command that judges the work of a task: in its place, behind the same gate as its own commands."""

from __future__ import annotations

import msgspec

from hermes.core.errors import OperatorError, ToolError
from hermes.core.events import TaskPhase
from hermes.core.messages import plain_text
from hermes.core.result import CheckResult
from hermes.core.scope import CallKey
from hermes.core.tools import CallContext, Tool, ToolOutput, json_output
from hermes.runtime.approval import Gate
from hermes.runtime.task import Task

__all__ = ["run_check"]

#: What is kept of a check's output: its last lines, and characters of them.
LAST_LINES, LAST_CHARS = 40, 4_000


class _Command(msgspec.Struct, frozen=True, kw_only=True):
    command: str


class _Ran(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int | None
    output: str


async def run_check(gate: Gate, task: Task, command: str, *, timeout: float) -> CheckResult:
    """Run the command as the task's own terminal would, at most `timeout` seconds.

    Raises:
        OperatorError: it may not or cannot run.
    """

    async def run(arguments: _Command, context: CallContext) -> ToolOutput:
        if task.environment is None:
            raise ToolError("the task has no place to run commands in")
        result = await task.environment.run(
            arguments.command,
            key=context.key,
            timeout=timeout,
            cwd=task.environment.workspace,
            progress=context.progress,
        )
        output = _tail(result.output)
        if result.stopped:
            output = f"{output}\n[stopped after {result.duration:.0f} s: {result.stopped}]".lstrip()
        return json_output(_Ran(exit_code=result.exit_code, output=output))

    tool = Tool(name="terminal", description="", arguments=_Command, run=run)
    tiny = task.model is not None and task.model.profile.tiny
    place = task.history.next_position if task.history is not None else 0
    context = CallContext(
        # The place after what stands, so that no call of the task has the same key.
        key=CallKey(task.id, place, 0),
        scope=task.scope,
        progress=lambda text: task.emit(TaskPhase(phase="check", detail=text[:100])),
        room=lambda: 0,
    )
    try:
        brought = await gate.wrap(tool, task, read_only=tiny).run(_Command(command=command), context)
    except ToolError as error:
        raise OperatorError(f"the check `{command[:200]}` could not be run: {error}") from None
    text = brought if isinstance(brought, str) else plain_text(brought.content)
    result = msgspec.json.decode(text, type=_Ran)
    return CheckResult(command=command, passed=result.exit_code == 0, exit_code=result.exit_code, output=result.output)


def _tail(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-LAST_LINES:])[-LAST_CHARS:]
