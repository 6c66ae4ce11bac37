"""The gate: one decision before every call of every tool, at every depth, in the foreground or not.

Rules first, then policy, then a person where one is there, then a refusal the model can act on; nothing ever waits
without an end. What a call does is found out in `danger.py`, what the rules say of it in `approval_rules.py`. The gate
also replaces known secrets in what a tool brings back, so that no key enters a history.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal, NoReturn

import anyio
import anyio.to_thread
import msgspec

from hermes.config.approvals import ApprovalRule
from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import HermesError, ToolError
from hermes.core.events import ApprovalAnswered, ApprovalAsked
from hermes.core.messages import Part, Text
from hermes.core.tools import CallContext, Tool, ToolOutput, text_output
from hermes.runtime.approval_rules import Subject, decision_of, rule_for, rule_text
from hermes.runtime.asking import Asker, Person, Question
from hermes.runtime.danger import JUDGED, Step, allowed_read_only, classify, examine
from hermes.runtime.modes import fate
from hermes.runtime.task import Task

__all__ = ["ApprovalMode", "Gate"]

ApprovalMode = Literal["ask", "allow", "deny"]

#: Conversations whose consents are kept in memory; those of others are read again when they are needed.
_KEPT_SESSIONS = 256
#: Characters of arguments above which they are judged on a thread: it takes some milliseconds.
_LONG = 2000
#: Reasons that a question or a refusal names.
_NAMED = 3


async def _none_granted(_session: str) -> Sequence[ApprovalRule]:
    return ()


async def _not_kept(_rule: ApprovalRule) -> None:
    raise HermesError("this runtime has no configuration file")


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call at the gate: the steps that need consent, and what an `ask` rule named in particular."""

    tool: Tool
    task: Task
    subject: Subject
    what: str
    steps: tuple[Step, ...]
    by_rule: bool

    @property
    def reason(self) -> str:
        """What it does, in clauses."""
        reasons = list(dict.fromkeys(step.reason or "a rule wants it to be asked" for step in self.steps))
        more = f", and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
        return "; ".join(reasons[:_NAMED]) + more


class _Guard:
    """Makes the calls of one task."""

    __slots__ = ("_gate", "_read_only", "_task")

    def __init__(self, gate: Gate, task: Task, read_only: bool) -> None:
        self._gate = gate
        self._task = task
        self._read_only = read_only

    async def run(self, tool: Tool, arguments: Any, context: CallContext) -> ToolOutput:
        gate = self._gate
        if self._read_only or tool.name in JUDGED or gate.rules:
            await gate._pass(tool, msgspec.to_builtins(arguments), self._task, self._read_only)
        output = await tool.run(arguments, context)
        return gate._clean(text_output(output) if isinstance(output, str) else output)


class Gate:
    """Decides for one process. `mode`: ask (the default), allow, deny; `yolo` allows everything that no rule denies.

    `rules` are the configured ones. `host_commands`: where nobody can be asked, dangerous calls run. `private` are the
    runtime's own files, `home` is what `~` means (default: the user's), `networked` are the environments from which
    other machines can be reached. `granted` returns the rules that a person granted in a session before, `save` keeps
    one for good (raises HermesError where it cannot).
    """

    def __init__(
        self,
        *,
        mode: ApprovalMode = "ask",
        yolo: bool = False,
        children_yes: bool = False,
        host_commands: bool = False,
        timeout: float = 300.0,
        rules: Sequence[ApprovalRule] = (),
        private: Sequence[str] = (),
        home: str = "",
        networked: Collection[str] = (),
        granted: Callable[[str], Awaitable[Sequence[ApprovalRule]]] = _none_granted,
        save: Callable[[ApprovalRule], Awaitable[None]] = _not_kept,
        redact: Callable[[str], str],
        hold: Hold = NO_HOLD,
    ) -> None:
        self.mode: ApprovalMode = mode
        self.yolo = yolo
        self.person = Person()
        self.rules = tuple(rules)
        self.host_commands = host_commands
        self._children_yes = children_yes
        self._timeout = timeout
        self._private = tuple(private)
        self._networked = frozenset(networked)
        self._home = home or os.path.expanduser("~")
        self._granted = granted
        self._save = save
        self._redact = redact
        self._hold = hold
        self._sessions: dict[str, tuple[ApprovalRule, ...]] = {}

    @property
    def asker(self) -> Asker | None:
        """What puts a question to the person; None when nobody can be asked."""
        return self.person.asker

    @asker.setter
    def asker(self, asker: Asker | None) -> None:
        self.person.asker = asker

    def wrap(self, tool: Tool, task: Task, *, read_only: bool = False) -> Tool:
        """Return the tool behind the gate, for one task."""
        guarded = self.guard(task, read_only=read_only)
        return msgspec.structs.replace(tool, run=lambda arguments, context: guarded(tool, arguments, context))

    def guard(
        self, task: Task, *, read_only: bool = False
    ) -> Callable[[Tool, Any, CallContext], Awaitable[ToolOutput]]:
        """Return what makes the calls of one task: a call that passes is run, and what it brings is cleaned.

        `read_only` limits commands to a list of harmless ones, whatever the mode: for models whose commands are junk.
        """

        return _Guard(self, task, read_only).run

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
        judge = partial(examine, tool.name, arguments, workspace, cwd=cwd, home=self._home, private=self._private)
        if sum(len(value) for value in arguments.values() if isinstance(value, str)) > _LONG:
            with held(self._hold):
                steps = await anyio.to_thread.run_sync(judge)
        else:
            steps = judge()
        line = arguments.get("command") if tool.name == "terminal" else ""
        subject = Subject(tool.name, line if isinstance(line, str) else "", workspace, self._home)
        call = self._due(tool, task, subject, steps, arguments)
        if call.steps and task.scope.session_id not in self._sessions:
            await self._recall(task.scope.session_id)
            call = self._due(tool, task, subject, steps, arguments)
        if call.steps:
            await self._decide(call)

    def _due(self, tool: Tool, task: Task, subject: Subject, steps: Sequence[Step], arguments: dict[str, Any]) -> _Call:
        """The call with those of its steps that still need an answer. Raises ToolError for what a rule denies."""
        rules = (*self.rules, *self._sessions.get(task.scope.session_id, ()))
        kind = _enclosure(task) if any(step.category for step in steps) else ""
        due, consented, by_rule = [], [], False
        for step in steps:
            decision = decision_of(rules, step, subject)
            if decision == "deny":
                reason = step.reason or f"it is {' '.join(step.words[:3]) or tool.name}"
                self._refuse(task, tool, reason, "a rule of the configuration denies it (approvals.rules)", "rule")
            by_rule = by_rule or decision == "ask"
            held = kind and not (step.category == "push" and kind in self._networked)
            if decision == "ask" or decision is None and step.category and not held:
                due.append(step)
            elif decision == "allow" and step.category:
                consented.append(step)
        if consented and not due:
            self._answered(task, tool, True, "rule", consented[0].reason)
        what = tool.preview(arguments) or tool.name
        return _Call(tool=tool, task=task, subject=subject, what=what, steps=tuple(due), by_rule=by_rule)

    async def _decide(self, call: _Call) -> None:
        """Let the policy answer, or a person. Raises ToolError for a no."""
        task, tool = call.task, call.tool
        if self.yolo:
            self._answered(task, tool, True, "yolo", call.reason)
        elif self.mode == "allow" and not call.by_rule:
            return
        elif self.mode == "deny":
            self._refuse(task, tool, call.reason, "the configuration denies such calls (approvals: deny)", "policy")
        elif task.scope.depth > 0 and self._children_yes:
            self._answered(task, tool, True, "policy", call.reason)
        elif self.person.there_for(task):
            await self._ask(call)
        elif fate("local", attended=False, freed=self.host_commands and not call.by_rule) == "run":
            self._answered(task, tool, True, "policy", call.reason)
        else:
            self._refuse(task, tool, call.reason, "nobody is here to be asked", "policy")

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
            found = classify(tool.name, arguments, workspace)
            allowed, reason = not found.dangerous, found.reason
        if not allowed:
            self._answered(task, tool, False, "policy", reason)
            raise ToolError(f"Denied: {reason}. Use a plain read-only command such as ls, cat, wc, grep or head.")

    async def _ask(self, call: _Call) -> None:
        task, tool = call.task, call.tool
        lasting = tuple(dict.fromkeys(rule_for(step, call.subject) for step in call.steps))
        question = Question(
            request=self.person.next_request(),
            tool=tool.name,
            what=call.what,
            reason=call.reason,
            path=task.scope.path,
            timeout=self._timeout,
            lasting="; ".join(map(rule_text, lasting)),
        )
        task.emit(
            ApprovalAsked(
                request=question.request, tool=tool.name, what=call.what, reason=call.reason, path=task.scope.path
            )
        )
        answer = await self.person.answer(question, lambda: "once" if self._answered_meanwhile(call) else "")
        if answer is None:
            why = f"nobody answered within {self._timeout:g} s"
            self._refuse(task, tool, call.reason, why, "timeout", question.request)
        if not answer:
            self._refuse(task, tool, call.reason, "nobody is here any more to be asked", "policy", question.request)
        if answer not in ("once", "session", "always"):
            self._refuse(task, tool, call.reason, "the user said no", "user", question.request)
        await self._keep(call, question.request, answer, lasting)

    def _answered_meanwhile(self, call: _Call) -> bool:
        """Whether an answer to another question covers this one by now."""
        rules = (*self.rules, *self._sessions.get(call.task.scope.session_id, ()))
        return all(decision_of(rules, step, call.subject) == "allow" for step in call.steps)

    async def _keep(self, call: _Call, request: str, answer: str, lasting: Sequence[ApprovalRule]) -> None:
        """Take a yes down, for as long as it holds."""
        note = ""
        if answer == "always":
            try:
                for rule in lasting:
                    await self._save(rule)
                    self.rules = (*self.rules, rule)
            except HermesError as error:
                answer, note = "session", f"; it holds for this conversation only, since it could not be saved: {error}"
        if answer == "session":
            session = call.task.scope.session_id
            self._sessions[session] = (*self._sessions.get(session, ()), *lasting)
        call.task.emit(
            ApprovalAnswered(
                request=request,
                tool=call.tool.name,
                allowed=True,
                by="user",
                reason=call.reason + note,
                scope=answer,
                grants=tuple(msgspec.to_builtins(rule) for rule in lasting) if answer != "once" else (),
            )
        )

    async def _recall(self, session: str) -> None:
        """Read what a person granted in this conversation before this process took it up."""
        found = tuple(await self._granted(session))
        while len(self._sessions) >= _KEPT_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions.setdefault(session, found)

    def _answered(self, task: Task, tool: Tool, allowed: bool, by: str, reason: str, request: str = "") -> None:
        task.emit(ApprovalAnswered(request=request, tool=tool.name, allowed=allowed, by=by, reason=reason))

    def _refuse(self, task: Task, tool: Tool, reason: str, why: str, by: str, request: str = "") -> NoReturn:
        self._answered(task, tool, False, by, reason, request)
        raise ToolError(
            f"Denied: {reason}, and {why}. Find a way inside {task.scope.workspace} that needs no such step, "
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


def _enclosure(task: Task) -> str:
    """What holds the task's commands so that they can reach nothing that needs consent; empty for nothing."""
    environment = task.environment
    held = environment is not None and fate(environment.kind, attended=True, freed=False) == "run"
    return environment.kind if held and environment is not None else ""
