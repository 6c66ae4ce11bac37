"""One question, one answer, an exit code. The answer alone goes to stdout, everything else to stderr.

Knows nothing of flags and of the line interface. Children that run in the background are waited for by the runtime: a
single request does not end before they do.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

from hermes.chat.attaching import pictures_of
from hermes.chat.budget_text import price_note
from hermes.chat.leaving import EXIT_INTERRUPTED, goes_on
from hermes.chat.notes import describe_source, sight_for
from hermes.chat.render import one_line
from hermes.chat.returning import describe, recover_mode
from hermes.chat.revising import model_lines, revision
from hermes.chat.stream import Narrator
from hermes.cli.leaving import drop_lost_terminal
from hermes.cli.options import GlobalOptions, listened
from hermes.cli.output import JsonLines, Output
from hermes.cli.taped import tell_tape
from hermes.cli.usage_file import write_usage
from hermes.compose import Assembly, Parts, conversation_spec, isolated_spec, open_runtime
from hermes.core.codec import encode_envelope, encode_json
from hermes.core.errors import HermesError, OperatorError
from hermes.core.events import SCHEMA, Envelope, StreamRestarted, TextDeltaEvent, TurnStarted
from hermes.core.messages import Content, Text, Usage
from hermes.core.result import TaskResult
from hermes.credentials import is_embedded
from hermes.delegation.report import workspace_line
from hermes.runtime.denials import Denials, denied_note
from hermes.runtime.rows import stored_spec
from hermes.runtime.runtime import tune_interpreter
from hermes.runtime.spec import TaskSpec
from hermes.runtime.task import Task

__all__ = [
    "OneShot",
    "Request",
    "exit_code",
    "failed",
    "shown_with",
]

#: Failures that are over after a while or after money came in: exit code 75.
_WAITING_HELPS = frozenset({"rate_limit", "overloaded", "billing"})
EXIT_TIMEOUT, EXIT_TERMINATED, EXIT_LATER = 124, 143, 75
_NOTHING = TaskResult(task_id="", state="failed", exit_reason="error")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked and how it is shown. `timeout` is seconds of the whole run, None for no limit.

    `images` are paths of pictures that go along. `resume` names the session whose next input it is; there `text` may be
    empty, and what `options` name changes it.
    `detaches`: it goes on elsewhere once its terminal is lost. `worktree`: it works in a git worktree of its own.
    """

    text: str
    images: tuple[str, ...] = ()
    toolsets: tuple[str, ...] | None = None
    workspace: str
    quiet: bool = False
    json: bool = False
    verbose: bool = False
    timeout: float | None = None
    usage_file: Path | None = None
    source: str = "cli"
    resume: str = ""
    worktree: bool = False
    options: GlobalOptions = GlobalOptions()
    detaches: bool = False


class OneShot:
    """Runs one request. `run` may be called once and returns the exit code."""

    def __init__(self, request: Request, parts: Parts) -> None:
        self._request = request
        self._parts = parts
        streaming = sys.stdout.isatty() and not request.quiet and not request.json
        self._output = Output(quiet=request.quiet or request.json, streaming=streaming, out=sys.stdout, err=sys.stderr)
        self._lines = JsonLines()
        self._assembly: Assembly | None = None
        self._task: Task | None = None
        self._session_id: str | None = None
        self._partial = ""  # of the reply that is being written
        self._denials = Denials()
        self._stopped: int | None = None  # exit code of what ended it from outside
        self._scope = anyio.CancelScope()
        self.hung_up = False  # its terminal was lost

    @property
    def session_id(self) -> str | None:
        """Its session, None before it began."""
        return self._session_id

    async def run(self) -> int:
        """Ask and wait for the end.

        Raises:
            HermesError: it could not even be started, or the journal broke.
        """
        code = 1
        async with anyio.create_task_group() as writing:
            if self._request.json:
                writing.start_soon(self._lines.run)
            try:
                code = await self._watched()
            finally:
                self._lines.end()
        return code

    async def _watched(self) -> int:
        code: int | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._signals)
            if self._request.timeout is not None:
                group.start_soon(self._timer, self._request.timeout)
            with self._scope:
                code = await self._ask()
            group.cancel_scope.cancel()
        return code if code is not None else self._cut_short()

    # -- the run ----------------------------------------------------------------------------------------------------

    async def _ask(self) -> int:
        async with open_runtime(self._parts) as assembly:
            self._assembly = assembly
            self._output.hide(assembly.redactor.text)
            tune_interpreter()
            spec, notes = await self._spec(assembly)
            unpriced = price_note(assembly, spec)
            self._announce(assembly, notes)
            if unpriced is not None and not self._request.quiet:
                self._output.note(f"note: {unpriced}", always=True)
            subscription = assembly.runtime.bus.subscribe(self._listener(assembly), self._is_main)
            try:
                if self._request.resume:
                    self._task = await self._resumed(assembly, self._request.resume)
                else:
                    self._task = await assembly.runtime.start(spec, source=self._request.source)
                result = await assembly.runtime.result(self._task)
            except OperatorError:
                if self._stopped is None:
                    raise
                await anyio.sleep_forever()  # it was suspended to go on elsewhere, and this is about to be left
                raise
            finally:
                subscription.close()
            return self._finish(self._task, result)

    async def _spec(self, assembly: Assembly) -> tuple[TaskSpec, tuple[str, ...]]:
        request = self._request
        wanted: dict[str, Any] = {"goal": request.text, "interactive": False, "toolsets": request.toolsets}
        if request.worktree:
            spec, notes = await isolated_spec(assembly, "worktree", workspace=request.workspace, **wanted)
        else:
            spec, notes = conversation_spec(assembly, workspace=request.workspace, **wanted)
        return msgspec.structs.replace(spec, goal=shown_with(assembly, request)), notes

    async def _resumed(self, assembly: Assembly, wanted: str) -> Task:
        """Go on with a session: its unfinished tasks, and the next input."""
        recovery = assembly.recovery
        self._session_id = session = await recovery.find(wanted)
        mode = recover_mode(assembly.settings.delegation.recover, False)
        report = await recovery.look(session)
        for line in describe(report, mode=mode):
            self._output.note(line)
        before = stored_spec(report.main).model.name if report.main is not None else ""
        say = shown_with(assembly, self._request, "" if self._request.options.model else before)
        revise = revision(assembly, self._request.options)
        task = await recovery.adopt(session, interactive=False, say=say, children=mode != "never", revise=revise)
        for line in model_lines(assembly, before, task):
            self._output.note(line)
        return task

    def _announce(self, assembly: Assembly, notes: tuple[str, ...]) -> None:
        self._output.note(describe_source(assembly), always=assembly.model.profile.tiny)
        for note in (*self._parts.loaded.warnings, *notes):
            self._output.note(f"note: {note}", always=not self._request.quiet)
        if assembly.runtime.gate.yolo:
            self._output.note("--yolo: dangerous commands run without a question", always=True)

    def _is_main(self, task_id: str) -> bool:
        if self._assembly is None:
            return False
        view = self._assembly.runtime.bus.tree.tasks.get(task_id)
        return view is not None and view.kind == "main"

    def _listener(self, assembly: Assembly) -> Callable[[Envelope], None]:
        runtime, request = assembly.runtime, self._request
        narrator = Narrator(
            runtime.bus.tree,
            self._output.note,
            session_id=lambda: self._session_id or "",
            progress="verbose" if request.verbose else assembly.settings.display.tool_progress,
        )

        def listen(envelope: Envelope) -> None:
            if request.json:
                self._lines.put(runtime.redact(encode_envelope(envelope)))
            self._denials.hear(envelope.event)
            self._session_id = envelope.session_id
            if self._is_main(envelope.task_id):
                self._text(envelope)
            if not request.quiet and not request.json:
                narrator.tell(envelope)

        return listen

    def _text(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, TextDeltaEvent):
            self._partial += event.text
            if self._output.streaming:
                self._output.delta(event.text)
        elif isinstance(event, (TurnStarted, StreamRestarted)):
            self._partial = ""
            self._output.close_line()

    # -- the end ----------------------------------------------------------------------------------------------------

    def _finish(self, task: Task, result: TaskResult) -> int:
        code = self._stopped if self._stopped is not None and result.state == "cancelled" else exit_code(task, result)
        text = result.summary
        if code == EXIT_TIMEOUT and self._partial.strip():
            text = self._partial
        tape = self._assembly.tape if self._assembly is not None else None
        strayed = tell_tape(tape, lambda line: self._output.note(line, always=True), said=result.error or "")
        code = code or int(strayed)
        self._report(result, text, code)
        if result.workspace is not None:
            self._output.note(f"workspace: {workspace_line(result.workspace)}", always=True)
        return code

    def _cut_short(self) -> int:
        """The run was left without an end of its task: what was written stands, the task is suspended."""
        code = self._stopped if self._stopped is not None else 1
        self._report(msgspec.structs.replace(_NOTHING, exit_reason="interrupted"), self._partial, code)
        return code

    def _report(self, result: TaskResult, text: str, code: int) -> None:
        request, output, assembly = self._request, self._output, self._assembly
        if assembly is not None:
            text = assembly.redactor.text(text)
        if request.json:
            unfinished = [task.id for task in self._task.subtree()[:-1] if not task.ended] if self._task else []
            self._lines.put(self._redacted(result_line(result, self._session_id, code, unfinished)))
        elif code in (0, EXIT_TIMEOUT) or text.strip():
            output.answer(text)
        if code == EXIT_TIMEOUT:
            limit = request.timeout or 0.0
            output.note(f"hermes: stopped after {limit:g} s (--timeout); what is above is partial", always=True)
        elif code in (EXIT_INTERRUPTED, EXIT_TERMINATED):
            output.note("hermes: interrupted; everything up to here is recorded", always=True)
        elif result.error:
            output.note(f"hermes: {one_line(result.error, 1_000)}", always=True)
        elif result.note:
            output.note(f"note: {result.note}")
        if result.truncated and code == 0:
            output.note("note: the answer is incomplete, a limit was reached", always=True)
        tiny = self._assembly is not None and is_embedded(self._assembly.endpoint.model)
        denied = denied_note(self._denials.calls, self._denials.denied, only_looks=tiny)
        if denied:
            output.note(f"note: {denied}", always=True)
        if self._session_id:
            output.note(f"session: {self._session_id}  (hermes sessions show {self._session_id})", always=True)
            if code != 0:
                output.note(f"go on with it: {goes_on(self._session_id)}", always=True)
        self._write_usage(result, code)

    def _redacted(self, line: bytes) -> bytes:
        return self._assembly.runtime.redact(line) if self._assembly is not None else line

    def _write_usage(self, result: TaskResult, code: int) -> None:
        path, assembly = self._request.usage_file, self._assembly
        if path is None:
            return
        usage, calls = result.subtree_usage, result.api_calls
        model, provider = result.model, ""
        if assembly is not None:
            model, provider = model or assembly.endpoint.model, assembly.endpoint.provider
            if self._task is not None:
                tree = assembly.runtime.bus.tree
                usage = tree.subtree_usage(self._task.id)
                calls = sum(view.api_calls for view in tree.subtree(self._task.id))
        write_usage(path, usage, calls, model=model, provider=provider, session_id=self._session_id, code=code)

    # -- from outside -----------------------------------------------------------------------------------------------

    async def _timer(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        await self._stop(EXIT_TIMEOUT, f"the time of {seconds:g} s is over")

    async def _signals(self) -> None:
        """The first Ctrl+C ends the task with what it has; another one, or SIGTERM, leaves it suspended."""
        with anyio.open_signal_receiver(*listened()) as received:
            async for number in received:
                if number == signal.SIGHUP:
                    drop_lost_terminal()
                    self.hung_up = True
                if number != signal.SIGINT:
                    self._stopped = EXIT_TERMINATED
                    if self.hung_up and self._request.detaches and self._assembly is not None:
                        runtime = self._assembly.settings.runtime
                        await self._assembly.runtime.supervisor.shutdown(runtime.handover_wait_seconds)
                    self._scope.cancel()
                elif self._stopped is not None:
                    self._stopped = EXIT_INTERRUPTED
                    self._scope.cancel()
                else:
                    self._output.note("stopping… (Ctrl+C again leaves at once)")
                    await self._stop(EXIT_INTERRUPTED, "interrupted by the user")

    async def _stop(self, code: int, text: str) -> None:
        if self._stopped is not None:
            return
        self._stopped = code
        if self._task is None or self._assembly is None:
            self._scope.cancel()
        else:
            await self._assembly.runtime.control.cancel([self._task], text)


def shown_with(assembly: Assembly, request: Request, model: str = "") -> Content:
    """What is asked, with its pictures for the model of this name; an empty one is the configured model.

    Raises:
        UsageError: a picture cannot go along.
    """
    said = (Text(request.text),) if request.text else ()
    return (*said, *(pictures_of(request.images, sight_for(assembly, model)) if request.images else ()))


def exit_code(task: Task, result: TaskResult) -> int:
    """0 answered, 1 failed, 75 quota or budget, 130 cancelled. A turn limit that still brought a text is an answer."""
    if result.state == "completed":
        return 0
    if result.state == "exhausted":
        return 0 if result.exit_reason == "max_iterations" and result.summary.strip() else EXIT_LATER
    if result.state == "timed_out":
        return EXIT_LATER if task.stop == "clock" else 1
    if result.state == "cancelled":
        return EXIT_INTERRUPTED
    return EXIT_LATER if result.error_reason in _WAITING_HELPS else 1


def result_line(result: TaskResult, session_id: str | None, code: int, unfinished: Sequence[str] = ()) -> bytes:
    """The last line of `--json`; `unfinished` are children that had not ended when it was written."""
    head = {"schema": SCHEMA, "type": "result", "session_id": session_id, "exit_code": code}
    return encode_json({**head, **result.public(), "unfinished_children": list(unfinished)})


def failed(error: HermesError, *, json: bool, usage_file: Path | None, model: str = "") -> None:
    """Leave what a program reads of a run that could not be started."""
    if usage_file is not None:
        write_usage(usage_file, Usage(), 0, model=model, provider="", session_id=None, code=error.exit_code)
    if json:
        result = msgspec.structs.replace(_NOTHING, error=str(error))
        sys.stdout.buffer.write(result_line(result, None, error.exit_code) + b"\n")
        sys.stdout.buffer.flush()
