"""The gate: one decision before every call of every tool, at every depth, in the foreground or not.

Policy, then a person where one is there, then a refusal the model can act on; nothing ever waits without an end. What
a command does is classified in `danger.py`. The gate also replaces known secrets in what a tool brings back, so that no
key enters a history.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
import msgspec

from hermes.core.errors import ToolError
from hermes.core.events import ApprovalAnswered, ApprovalAsked
from hermes.core.messages import Part, Text
from hermes.core.tools import CallContext, Tool, ToolOutput, text_output
from hermes.runtime.danger import JUDGED, Verdict, allowed_read_only, classify
from hermes.runtime.task import Task

__all__ = ["Answer", "ApprovalMode", "Gate", "Question"]

ApprovalMode = Literal["ask", "allow", "deny"]
Answer = Literal["once", "session", "no"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked. `path` leads from the conversation to the task that asks."""

    request: str
    tool: str
    what: str
    reason: str
    path: tuple[str, ...]


#: Puts a question to a person; None when nobody can be asked.
Asker = Callable[[Question], Awaitable[Answer]]


class Gate:
    """Decides for one process. `mode`: ask (the default), allow, deny; `yolo` allows everything and says so.

    `read_only` limits commands to a list of harmless ones, whatever the mode: for models whose commands are junk.
    """

    def __init__(
        self,
        *,
        mode: ApprovalMode = "ask",
        yolo: bool = False,
        children_yes: bool = False,
        timeout: float = 300.0,
        redact: Callable[[str], str],
    ) -> None:
        self.mode: ApprovalMode = mode
        self.yolo = yolo
        self.asker: Asker | None = None
        self._children_yes = children_yes
        self._timeout = timeout
        self._redact = redact
        self._always: set[str] = set()
        self._number = 0
        self._asking = anyio.Lock()

    def wrap(self, tool: Tool, task: Task, *, read_only: bool = False) -> Tool:
        """Return the tool behind the gate, for one task."""
        guarded = self.guard(task, read_only=read_only)
        return msgspec.structs.replace(tool, run=lambda arguments, context: guarded(tool, arguments, context))

    def guard(
        self, task: Task, *, read_only: bool = False
    ) -> Callable[[Tool, Any, CallContext], Awaitable[ToolOutput]]:
        """Return what makes the calls of one task: a call that passes is run, and what it brings is cleaned."""

        async def run(tool: Tool, arguments: Any, context: CallContext) -> ToolOutput:
            if read_only or tool.name in JUDGED:
                await self._pass(tool, msgspec.to_builtins(arguments), task, read_only)
            output = await tool.run(arguments, context)
            return self._clean(text_output(output) if isinstance(output, str) else output)

        return run

    async def _pass(self, tool: Tool, arguments: dict[str, Any], task: Task, read_only: bool) -> None:
        """Return when the call may run.

        Raises:
            ToolError: it may not; the text says why and what to do instead.
        """
        environment = task.opened
        workspace = environment.workspace if environment is not None else task.scope.workspace
        if read_only:
            self._read_only(tool, arguments, task, workspace)
            return
        cwd = environment.cwd if environment is not None else None
        verdict = classify(tool.name, arguments, workspace, cwd=cwd)
        if not verdict.dangerous or self.mode == "allow" and not self.yolo:
            return
        what = tool.preview(arguments) or tool.name
        if self.yolo:
            self._answered(task, tool, True, "yolo", verdict.reason)
            return
        if self.mode == "deny":
            self._refuse(task, tool, verdict, "the configuration denies such calls (approvals: deny)", "policy")
        if task.scope.depth > 0 and self._children_yes:
            self._answered(task, tool, True, "policy", verdict.reason)
            return
        if verdict.category in self._always:
            self._answered(task, tool, True, "user", verdict.reason)
            return
        if self.asker is None or task.spec.unattended:
            self._refuse(task, tool, verdict, "nobody is here to be asked", "policy")
        await self._ask(tool, what, verdict, task)

    def _read_only(self, tool: Tool, arguments: dict[str, Any], task: Task, workspace: str) -> None:
        command = arguments.get("command")
        if tool.name in ("write_file", "patch", "process") or (
            isinstance(command, str) and arguments.get("background")
        ):
            allowed, reason = False, "this model may only look"
        elif isinstance(command, str):
            verdict = allowed_read_only(command)
            allowed, reason = verdict.allowed, verdict.reason
        else:
            allowed, reason = not classify(tool.name, arguments, workspace).dangerous, "outside the workspace"
        if not allowed:
            self._answered(task, tool, False, "policy", reason)
            raise ToolError(f"Denied: {reason}. Use a plain read-only command such as ls, cat, wc, grep or head.")

    async def _ask(self, tool: Tool, what: str, verdict: Verdict, task: Task) -> None:
        asker = self.asker
        if asker is None:
            self._refuse(task, tool, verdict, "nobody is here to be asked", "policy")
            return
        self._number += 1
        question = Question(
            request=f"ask-{self._number}", tool=tool.name, what=what, reason=verdict.reason, path=task.scope.path
        )
        task.emit(
            ApprovalAsked(
                request=question.request, tool=tool.name, what=what, reason=verdict.reason, path=task.scope.path
            )
        )
        answer: Answer | None = None
        with anyio.move_on_after(self._timeout):
            async with self._asking:  # one question at a time on one screen
                if verdict.category in self._always:
                    answer = "session"
                else:
                    answer = await asker(question)
        if answer is None:
            self._refuse(
                task, tool, verdict, f"nobody answered within {self._timeout:g} s", "timeout", question.request
            )
        if answer == "no":
            self._refuse(task, tool, verdict, "the user said no", "user", question.request)
        if answer == "session":
            self._always.add(verdict.category)
        self._answered(task, tool, True, "user", verdict.reason, question.request)

    def _answered(self, task: Task, tool: Tool, allowed: bool, by: str, reason: str, request: str = "") -> None:
        task.emit(ApprovalAnswered(request=request, tool=tool.name, allowed=allowed, by=by, reason=reason))

    def _refuse(self, task: Task, tool: Tool, verdict: Verdict, why: str, by: str, request: str = "") -> None:
        self._answered(task, tool, False, by, verdict.reason, request)
        raise ToolError(
            f"Denied: {verdict.reason}, and {why}. Find a way inside {task.scope.workspace} that needs no such step, "
            "or say in your answer what you could not do and which command would do it."
        )

    def _clean(self, output: ToolOutput) -> ToolOutput:
        parts: list[Part] = []
        changed = False
        for part in output.content:
            if isinstance(part, Text):
                clean = self._redact(part.text)
                if clean is not part.text:
                    changed, part = True, Text(clean)
                parts.append(part)
            else:
                parts.append(part)
        preview = self._redact(output.preview)
        if not changed and preview == output.preview:
            return output
        return msgspec.structs.replace(output, content=tuple(parts), preview=preview, details=None)
