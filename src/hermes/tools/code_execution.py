"""The `execute_code` tool: Python in the task's environment, which may call the task's other tools.

The code runs as any command of the task does: same boundary, same limits of time and output, ended as a group. A call
it makes comes over a socket of this one run and passes the same gate and the same limits as a call of the model. What
it defines is gone when it has ended.
"""

from __future__ import annotations

import hmac
import os
import secrets
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Meta

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.environment import CommandResult, Environment
from hermes.core.errors import ToolError
from hermes.core.messages import plain_text
from hermes.core.scope import TaskScope
from hermes.core.tools import CallContext, Tool, ToolCalls, ToolEnv, ToolOutput, error_output, json_output
from hermes.tools.code_stub import STUB

__all__ = ["CALLABLE", "CodeArguments", "CodeToolset"]

#: Tools that code may call: those that work, not those that spawn, ask or keep a list.
CALLABLE = ("terminal", "read_file", "write_file", "patch", "search_files", "web_search", "web_extract")
#: Longest request of the code, bytes, and calls that run at once.
_MAX_REQUEST, _AT_ONCE = 8 * 1024 * 1024, 8

_DESCRIPTION = (
    "Run a Python script and return what it prints: for many calls of your tools, or work on their results, without "
    "filling the conversation. `import hermes_tools` gives your tools for commands, files and the web as functions of "
    "the same names and parameters (`hermes_tools.__all__`); each returns a dict, with the key `error` when it failed. "
    "Nothing is kept from one script to the next."
)


class CodeArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `execute_code`."""

    code: Annotated[str, Meta(description="The script. Print what you want to see.")]
    timeout: Annotated[
        float | None, Meta(description="Seconds after which it is killed. Left out: the usual limit.")
    ] = None


class CodeToolset:
    """`execute_code`. `timeout` is the limit in seconds, usual and largest, `max_calls` that of calls of one script."""

    name = "code_execution"
    label = "Run Python that calls the other tools"
    opt_in = False
    tool_names = ("execute_code",)
    alike = True

    def __init__(
        self,
        environment_of: Callable[[TaskScope], Environment],
        *,
        timeout: float = 300.0,
        max_calls: int = 50,
        hold: Hold = NO_HOLD,
    ) -> None:
        self._environment_of = environment_of
        self._timeout = timeout
        self._max_calls = max_calls
        self._hold = hold

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """Build the tool for one task."""

        async def run(arguments: CodeArguments, context: CallContext) -> ToolOutput:
            if not arguments.code.strip():
                raise ToolError("execute_code: the code is empty; give some.")
            if context.calls is None:
                raise ToolError("execute_code: this call cannot be made by code.")
            limit = min(max(0.1, arguments.timeout or self._timeout), self._timeout)
            script = _Script(self._environment_of(env.scope), context, context.calls, self._max_calls, self._hold)
            return await script.run(arguments.code, limit)

        return (
            Tool(
                name="execute_code",
                description=_DESCRIPTION,
                arguments=CodeArguments,
                run=run,
                safe_to_repeat=False,
                describe=lambda arguments: str(arguments.get("code", "")).strip(),
            ),
        )


class _Request(msgspec.Struct):
    token: str
    tool: str
    arguments: dict[str, Any]


class _Script:
    """One run of a script, with its socket."""

    def __init__(self, place: Environment, context: CallContext, calls: ToolCalls, most: int, hold: Hold) -> None:
        self._place = place
        self._context = context
        self._calls = calls
        self._most = most
        self._hold = hold
        self._token = secrets.token_urlsafe(24)
        self._offered = {name: fields for name, fields in calls.parameters().items() if name in CALLABLE}
        self._running = anyio.CapacityLimiter(_AT_ONCE)
        self._made = 0
        self._read: dict[str, None] = {}
        self._written: dict[str, None] = {}
        self._conflicts: list[tuple[str, str]] = []
        self._escaped: list[str] = []

    async def run(self, code: str, limit: float) -> ToolOutput:
        """Run it to its end. Raises ToolError."""
        try:
            with held(self._hold):
                folder, listening = await anyio.to_thread.run_sync(self._prepare, code)
        except OSError as error:
            raise ToolError(f"execute_code: the script could not be prepared: {error}") from None
        try:
            listener = await anyio.abc.SocketListener.from_socket(listening)
            async with listener, anyio.create_task_group() as group:
                group.start_soon(listener.serve, self._answer)
                result = await self._place.run(
                    _command(folder), key=self._context.key, timeout=limit, progress=self._context.progress
                )
                group.cancel_scope.cancel()
        except* ToolError as errors:
            raise errors.exceptions[0] from None
        finally:
            with anyio.CancelScope(shield=True), held(self._hold):
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))
        return self._output(result, limit)

    def _prepare(self, code: str) -> tuple[str, socket.socket]:
        """Write the script beside its socket (blocking). Nothing there can be read by another user, and no link that a
        command of the task might have laid is followed."""
        base = self._place.exchange
        os.makedirs(base, mode=0o700, exist_ok=True)
        folder = os.path.join(base, f"code-{secrets.token_hex(6)}")
        os.mkdir(folder, 0o700)
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            start = msgspec.json.encode({"token": self._token, "tools": self._offered})
            written = (("code.py", code.encode("utf-8", "replace")), ("main.py", STUB.encode()), ("start.json", start))
            for name, data in written:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with open(os.open(name, flags, 0o600, dir_fd=directory), "wb") as file:
                    file.write(data)
            listening = socket.socket(socket.AF_UNIX)
            # The directory is nobody else's, so the mode comes in time; the path itself could be too long to bind.
            listening.bind(f"/proc/self/fd/{directory}/tools.sock")
            os.chmod("tools.sock", 0o600, dir_fd=directory)
            listening.listen(_AT_ONCE)
            listening.setblocking(False)
        finally:
            os.close(directory)
        return folder, listening

    async def _answer(self, stream: anyio.abc.SocketStream) -> None:
        """Answer the one request of a connection; a connection that breaks is the script's own affair."""
        async with stream, self._running:
            try:
                line = await BufferedByteReceiveStream(stream).receive_until(b"\n", _MAX_REQUEST)
                request = msgspec.json.decode(line, type=_Request)
            except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError, msgspec.DecodeError):
                return
            if not hmac.compare_digest(request.token.encode(), self._token.encode()):
                return
            output = await self._call(request)
            answer = {"output": plain_text(output.content), "is_error": output.is_error}
            try:
                await stream.send(msgspec.json.encode(answer))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def _call(self, request: _Request) -> ToolOutput:
        if request.tool not in self._offered:
            names = ", ".join(self._offered) or "none"
            return error_output(f"Code cannot call {request.tool!r}. It can call: {names}.")
        if self._made >= self._most:
            return error_output(
                f"This script has made {self._most} calls, which is the limit (code_execution.max_tool_calls)."
            )
        self._made += 1
        self._context.progress(f"{self._made}: {request.tool}")
        output = await self._calls.call(request.tool, request.arguments)
        self._read.update(dict.fromkeys(output.files_read))
        self._written.update(dict.fromkeys(output.files_written))
        self._conflicts.extend(output.conflicts)
        self._escaped.extend(output.escaped)
        return output

    def _output(self, result: CommandResult, limit: float) -> ToolOutput:
        failed = bool(result.stopped) or result.exit_code != 0
        status = result.stopped or ("error" if failed else "success")
        answer: dict[str, Any] = {
            "status": status,
            "output": result.output,
            "exit_code": result.exit_code,
            "tool_calls_made": self._made,
            "duration_seconds": round(result.duration, 2),
        }
        if result.stopped == "timeout":
            answer["error"] = (
                f"The script did not end within {limit:g} s and was killed with everything it had started."
            )
        elif result.stopped == "limit":
            answer["error"] = f"The script was killed with everything it had started. {result.passed}"
        elif result.stopped:
            answer["error"] = "The script printed more than is kept and was killed."
        elif result.exit_code == 127 and not self._made:
            answer["error"] = "There is no Python in this environment, or a command of the script was not found."
        if result.truncated:
            answer["truncated"] = True
            answer["full_output"] = result.output_path
        if result.notes:
            answer["notes"] = list(result.notes)
        return json_output(
            answer,
            success=not failed,
            preview=f"{status}, {self._made} tool calls",
            files_read=tuple(self._read),
            files_written=tuple(self._written),
            conflicts=tuple(self._conflicts),
            escaped=(*self._escaped, *result.escaped),
        )


def _command(folder: str) -> str:
    """The command line that starts the script with whatever Python there is."""
    fallback = shlex.quote(sys.executable)
    program = f'"$(command -v python3 || command -v python || echo {fallback})"'
    return f"{program} -u {shlex.quote(os.path.join(folder, 'main.py'))}"
