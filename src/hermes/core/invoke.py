"""Answering the calls of one reply: parallel, each exactly once, results in the order of the calls.

Whatever goes wrong with a call becomes its result: an unknown tool, arguments that are no JSON, a refusal, an
exception, a time-out. Only cancellation leaves this module as an exception, and then `interrupted_results` says what
stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio

from hermes.core.clock import loop_clock
from hermes.core.codec import scrub_surrogates
from hermes.core.errors import StoreError, ToolError
from hermes.core.events import Event, ToolEnded, ToolProgress, ToolStarted, WorkspaceConflict, WorkspaceEscaped
from hermes.core.history import History, OpenCall
from hermes.core.kit import Kit
from hermes.core.limits import Budget
from hermes.core.messages import Part, Text, ToolResult, plain_text
from hermes.core.scope import CallKey, TaskScope
from hermes.core.tools import CallContext, Guard, Tool, ToolOutput, error_output, text_output

__all__ = ["CallRunner", "stopped_results"]

#: Most characters of one result that enter the history; tools with more to say keep it in a file and name the path.
MAX_RESULT_CHARS = 100_000
#: What is noted of a call. One value for all: a thousand children with ten results each would keep as many.
_SUCCEEDED, _FAILED = {"success": True}, {"success": False}
#: Number of names in the answer to an unknown tool.
_SHOWN_NAMES = 40


def _cut(output: ToolOutput) -> ToolOutput:
    """Bound the text of an output and repair lone surrogates."""
    text = plain_text(output.content)
    if len(text) <= MAX_RESULT_CHARS and text.isascii():
        return output
    parts: list[Part] = []
    for part in output.content:
        if isinstance(part, Text):
            clean = scrub_surrogates(part.text)
            if len(clean) > MAX_RESULT_CHARS:
                half = MAX_RESULT_CHARS // 2
                clean = f"{clean[:half]}\n[… {len(clean) - 2 * half} characters left out …]\n{clean[-half:]}"
            parts.append(Text(clean))
        else:
            parts.append(part)
    return ToolOutput(
        content=tuple(parts),
        details=output.details,
        is_error=output.is_error,
        success=output.success,
        preview=output.preview,
        files_read=output.files_read,
        files_written=output.files_written,
        delivers=output.delivers,
        conflicts=output.conflicts,
        escaped=output.escaped,
    )


class CallRunner:
    """Runs the calls of one task. `room` tells a tool how many tokens of context are left; `guard` makes the calls."""

    __slots__ = ("_budget", "_clock", "_emit", "_guard", "_now", "_room", "_scope", "_tools")

    def __init__(
        self,
        *,
        tools: Kit | Sequence[Tool],
        scope: TaskScope,
        budget: Budget,
        emit: Callable[[Event], None],
        now: Callable[[], float],
        room: Callable[[], int],
        guard: Guard | None = None,
    ) -> None:
        self._tools = tools if isinstance(tools, Kit) else Kit(tools)
        self._scope = scope
        self._budget = budget
        self._emit = emit
        self._now = now
        self._room = room
        self._guard = guard
        self._clock = loop_clock()

    async def answer(self, calls: Sequence[OpenCall], history: History) -> list[ToolResult]:
        """Answer every call; the results come in the order of the calls and are recorded as they arrive."""
        if len(calls) == 1 and calls[0].result is None and self._budget.take_calls(1):
            return [await self._run(calls[0], history)]
        results: dict[int, ToolResult] = {call.index: call.result for call in calls if call.result is not None}
        due = [call for call in calls if call.result is None]
        granted = self._budget.take_calls(len(due)) if len(calls) > 1 else 0
        for call in due[granted:]:
            results[call.index] = self._result(
                call,
                error_output("The limit on tool calls is reached; this call was not made. Answer with what you have."),
            )
        runnable = due[:granted]

        async def one(call: OpenCall) -> None:
            results[call.index] = await self._run(call, history)

        if len(runnable) == 1 or any(self._is_interactive(call) for call in runnable):
            for call in runnable:
                await one(call)
        elif runnable:
            async with anyio.create_task_group() as group:
                for call in runnable:
                    group.start_soon(one, call)
        return [results[call.index] for call in calls]

    def interrupted_results(self, calls: Sequence[OpenCall], reason: str) -> list[ToolResult]:
        """Results for a turn that was stopped: what ended stands, the rest says that it was stopped."""
        return stopped_results(calls, reason, self._now())

    def _is_interactive(self, call: OpenCall) -> bool:
        tool = self._tools.named(call.call.name)
        return tool is not None and tool.interactive

    def _result(self, call: OpenCall, output: ToolOutput, *, invalid: bool = False) -> ToolResult:
        return _result_of(call, output, self._now(), invalid=invalid)

    async def _run(self, call: OpenCall, history: History) -> ToolResult:
        asked = call.call
        tool = self._tools.named(asked.name)
        raw = asked.raw
        self._emit(
            ToolStarted(
                position=call.position,
                index=call.index,
                name=asked.name,
                preview=tool.preview(asked.arguments) if tool else "",
                args_bytes=len(raw) if raw.isascii() else len(raw.encode("utf-8", "replace")),
            )
        )
        began = self._clock()
        output, invalid = await self._output(tool, call)
        output = _cut(output)
        result = self._result(call, output, invalid=invalid)
        pending = history.record(result, output.delivers)
        if tool is None or not tool.safe_to_repeat:
            await pending.wait()
        text = plain_text(output.content)
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        self._emit(
            ToolEnded(
                position=call.position,
                index=call.index,
                name=call.call.name,
                is_error=output.is_error,
                success=_succeeded(output),
                duration=round(self._clock() - began, 4),
                result_bytes=size,
                preview=output.preview or text[:600],
                files_read=output.files_read,
                files_written=output.files_written,
            )
        )
        for path, other in output.conflicts:
            self._emit(WorkspaceConflict(path=path, other=other))
        if output.escaped:
            self._emit(WorkspaceEscaped(paths=output.escaped))
        return result

    async def _output(self, tool: Tool | None, call: OpenCall) -> tuple[ToolOutput, bool]:
        """The output of one call, and whether the call itself was invalid."""
        if tool is None:
            names = ", ".join(self._tools.names[:_SHOWN_NAMES]) or "none"
            return error_output(f"There is no tool named '{call.call.name}'. Tools you have: {names}."), True
        if call.call.invalid:
            return error_output(
                f"{tool.name} was not called: {call.call.invalid}. Send the arguments as one JSON object."
            ), True
        if call.began and not tool.safe_to_repeat:
            return error_output(
                "The process stopped while this call ran; whether it took effect is unknown. Look before you repeat it."
            ), False
        try:
            arguments = tool.parse(call.call.arguments)
        except ToolError as error:
            return error_output(str(error)), True
        context = CallContext(
            key=CallKey(self._scope.task_id, call.position, call.index),
            scope=self._scope,
            progress=lambda text: self._emit(
                ToolProgress(position=call.position, index=call.index, name=tool.name, text=text)
            ),
            room=self._room,
            calls=_Inner(self, call),
        )
        return await self._guarded(tool, arguments, context), False

    async def inner(self, outer: OpenCall, number: int, name: str, arguments: dict[str, Any]) -> ToolOutput:
        """Make the call `number` that a call makes itself. It counts as one, and only its cost is recorded."""
        tool = self._tools.named(name)
        if tool is None or tool.interactive:
            return error_output(f"There is no tool named '{name}' for code.")
        if not self._budget.take_calls(1):
            return error_output("The limit on tool calls is reached; this call was not made.")
        try:
            given = tool.parse(arguments)
        except ToolError as error:
            return error_output(str(error))
        context = CallContext(
            key=CallKey(self._scope.task_id, outer.position, outer.index, number),
            scope=self._scope,
            progress=lambda _text: None,
            room=self._room,
        )
        return _cut(await self._guarded(tool, given, context))

    def parameters(self) -> dict[str, tuple[str, ...]]:
        """The parameters of each tool, in their order."""
        return {tool.name: tuple(tool.spec.parameters["properties"]) for tool in self._tools}

    async def _guarded(self, tool: Tool, arguments: object, context: CallContext) -> ToolOutput:
        try:
            guard = self._guard
            running = tool.run(arguments, context) if guard is None else guard(tool, arguments, context)
            if tool.timeout is None:
                output = await running
            else:
                with anyio.fail_after(tool.timeout):
                    output = await running
        except ToolError as error:
            return error_output(str(error))
        except StoreError:
            raise  # the journal is broken: nothing may act on an unknown outcome
        except TimeoutError as error:
            return error_output(str(error) or f"{tool.name} did not end within {tool.timeout:g} s and was stopped.")
        except Exception as error:  # noqa: BLE001  whatever a tool raises is its answer, never a crash
            return error_output(f"{type(error).__name__}: {error}")
        return text_output(output) if isinstance(output, str) else output


class _Inner:
    """The `ToolCalls` of one call."""

    __slots__ = ("_number", "_outer", "_runner")

    def __init__(self, runner: CallRunner, outer: OpenCall) -> None:
        self._runner = runner
        self._outer = outer
        self._number = 0

    def parameters(self) -> dict[str, tuple[str, ...]]:
        return self._runner.parameters()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        self._number += 1
        return await self._runner.inner(self._outer, self._number, name, arguments)


def _succeeded(output: ToolOutput) -> bool:
    return (not output.is_error) if output.success is None else output.success


def stopped_results(calls: Sequence[OpenCall], reason: str, now: float) -> list[ToolResult]:
    """Results for calls of a turn that was stopped: what ended stands, the rest says that it was stopped."""
    text = f"This call was stopped ({reason}); it may have taken effect in part."
    return [
        call.result if call.result is not None else _result_of(call, error_output(text), now, invalid=False)
        for call in calls
    ]


def _result_of(call: OpenCall, output: ToolOutput, now: float, *, invalid: bool) -> ToolResult:
    return ToolResult(
        position=call.position,
        index=call.index,
        call_id=call.call.id,
        name=call.call.name,
        content=output.content,
        is_error=output.is_error,
        invalid_call=invalid,
        details=_SUCCEEDED if _succeeded(output) else _FAILED,
        at=now,
    )
