"""The `terminal` tool: one shell command in the task's own session, to its end or in the background.

It asks nobody whether a command may run: that is decided where every tool is dispatched. A time limit, a non-zero exit
code and a killed command are answers for the model, never exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hermes.core.environment import CommandResult, Environment, ProcessInfo
from hermes.core.errors import ToolError
from hermes.core.tools import CallContext, Tool, ToolOutput, json_output

__all__ = ["TerminalArguments", "terminal_tool"]

_DESCRIPTION = (
    "Run a shell command and return what it printed (stdout and stderr together) and its exit code. Directory, "
    "exported variables and functions last from one call to the next. Standard input is empty, so nothing can be "
    "answered interactively. For something that keeps running (a server, a watcher) use background=true and the "
    "process tool. To read, write or search files use the file tools."
)


class TerminalArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Arguments of `terminal`."""

    command: Annotated[str, Meta(description="The command, as typed into bash.")]
    background: Annotated[
        bool, Meta(description="Start it and return at once with a session id for the process tool.")
    ] = False
    notify_on_complete: Annotated[
        bool, Meta(description="With background: your task stays open until it has ended, and you are told then.")
    ] = False
    timeout: Annotated[
        float | None, Meta(description="Seconds after which the command is killed. Left out: the usual limit.")
    ] = None
    workdir: Annotated[
        str | None, Meta(description="Directory for this command alone. Left out: where the last command ended.")
    ] = None


def terminal_tool(environment: Callable[[], Environment], *, timeout: float, max_timeout: float) -> Tool:
    """Return the tool for one task. `timeout` and `max_timeout` are seconds: the usual and the largest limit."""

    async def run(arguments: TerminalArguments, context: CallContext) -> ToolOutput:
        command = arguments.command
        if not command.strip():
            raise ToolError("terminal: the command is empty; give one.")
        place = environment()
        if arguments.background:
            notify = arguments.notify_on_complete
            return _started(await place.start(command, key=context.key, cwd=arguments.workdir, notify=notify))
        limit = min(max(0.0, arguments.timeout or timeout), max_timeout)
        result = await place.run(
            command, key=context.key, timeout=limit, cwd=arguments.workdir, progress=context.progress
        )
        return _finished(result, limit)

    return Tool(
        name="terminal",
        description=_DESCRIPTION,
        arguments=TerminalArguments,
        run=run,
        safe_to_repeat=False,
        describe=lambda arguments: str(arguments.get("command", "")),
    )


def _finished(result: CommandResult, limit: float) -> ToolOutput:
    answer: dict[str, Any] = {"output": result.output, "exit_code": result.exit_code}
    if result.stopped == "timeout":
        answer["error"] = (
            f"The command did not end within {limit:g} s and was killed with everything it had started. Give a larger "
            "timeout, or use background=true for what keeps running."
        )
    elif result.stopped == "output":
        answer["error"] = (
            f"The command was killed after it had printed {result.total_bytes} bytes. Send its output to a file or "
            "through head, tail or grep."
        )
    elif result.stopped == "limit":
        answer["error"] = f"The command was killed with everything it had started. {result.passed}"
    if result.truncated:
        answer["full_output"] = result.output_path
    if result.notes:
        answer["note"] = " ".join(result.notes)
    state = result.stopped or f"exit {result.exit_code}"
    return json_output(
        answer,
        success=not result.stopped,
        preview=f"{state}, {result.duration:.1f} s, {result.total_bytes} bytes",
        escaped=result.escaped,
    )


def _started(info: ProcessInfo) -> ToolOutput:
    limit = "when this task ends" if info.limit is None else f"after {info.limit:g} s or when this task ends"
    told = " You are told when it ends; your task does not end before." if info.notify else ""
    return json_output(
        {
            "session_id": info.process_id,
            "pid": info.pid,
            "status": "running",
            "output": "",
            "exit_code": None,
            "note": f"Started. It is killed {limit}. Use the process tool with this session_id: poll, log, wait, kill."
            f"{told}",
        },
        preview=f"{info.process_id} started",
    )
