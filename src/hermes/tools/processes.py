"""The `process` tool: look at, wait for and end background processes of this task.

It starts none (that is `terminal` with background=true) and sees no other task's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hermes.core.environment import Environment, ProcessInfo, ProcessOutput
from hermes.core.errors import ToolError
from hermes.core.tools import CallContext, Tool, ToolOutput, json_output

__all__ = ["ProcessArguments", "process_tool"]

_MAX_LINES = 2_000
_DESCRIPTION = (
    "Manage background processes started with terminal(background=true). list: all of this task. poll: state and the "
    "output since the last poll. log: lines of the output. wait: until it ends or the timeout passes. kill: end it."
)


class ProcessArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `process`."""

    action: Annotated[Literal["list", "poll", "log", "wait", "kill"], Meta(description="What to do.")]
    session_id: Annotated[str, Meta(description="The id that terminal returned; not needed for list.")] = ""
    timeout: Annotated[float | None, Meta(description="Seconds to wait at most (wait).")] = None
    offset: Annotated[int | None, Meta(description="First line, from 1 (log). Left out: the last lines.")] = None
    limit: Annotated[int, Meta(description="Lines to return (log).", ge=1)] = 200


def process_tool(environment: Callable[[], Environment], *, timeout: float) -> Tool:
    """Return the tool for one task; `timeout` is the longest wait in seconds."""

    async def run(arguments: ProcessArguments, _context: CallContext) -> ToolOutput:
        place = environment()
        name = arguments.session_id
        if arguments.action == "list":
            return json_output({"processes": [_row(info) for info in place.processes()]})
        if not name:
            known = ", ".join(info.process_id for info in place.processes()) or "none"
            raise ToolError(f"process: {arguments.action} needs session_id (known: {known}).")
        if arguments.action == "poll":
            return _answer(await place.poll(name))
        if arguments.action == "log":
            found = await place.log(name, offset=arguments.offset, limit=min(arguments.limit, _MAX_LINES))
            return _answer(found, first_line=found.first, total_lines=found.total_lines)
        if arguments.action == "wait":
            found = await place.wait(name, min(timeout if arguments.timeout is None else arguments.timeout, timeout))
            return _answer(found, timed_out=found.info.state == "running")
        return json_output(_row(await place.kill(name)))

    return Tool(
        name="process",
        description=_DESCRIPTION,
        arguments=ProcessArguments,
        run=run,
        safe_to_repeat=True,
        describe=lambda arguments: f"{arguments.get('action', '')} {arguments.get('session_id', '')}".strip(),
    )


def _row(info: ProcessInfo) -> dict[str, Any]:
    row: dict[str, Any] = {
        "session_id": info.process_id,
        "command": info.command,
        "status": info.state,
        "pid": info.pid,
        "uptime_seconds": round(info.elapsed, 1),
        "exit_code": info.exit_code,
    }
    if info.reason:
        row["reason"] = info.reason
    return row


def _answer(found: ProcessOutput, **more: Any) -> ToolOutput:
    answer = {**_row(found.info), "output": found.text, **more}
    if found.truncated:
        answer["truncated"] = True
    if found.output_path:
        answer["full_output"] = found.output_path
    return json_output(answer, preview=f"{found.info.process_id} {found.info.state}")
