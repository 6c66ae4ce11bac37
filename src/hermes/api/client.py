"""The verbs on tasks as coroutines: the real Python interface. Answers are those of the model's own tools."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
import msgspec

from hermes.api.functions import FUNCTIONS, FunctionToolset, read_functions
from hermes.api.options import Options, parts_of, read_options
from hermes.compose import Assembly, conversation_spec, open_runtime
from hermes.core.clock import held
from hermes.core.errors import OperatorError, ToolError, UsageError
from hermes.core.events import EntryAdded, Envelope, ToolAbandoned
from hermes.core.messages import Entry, Summary
from hermes.core.result import TaskResult
from hermes.delegation.brief import answer_rules
from hermes.delegation.policy import typed_spec
from hermes.delegation.structured import check_schema, schema_text
from hermes.delegation.verbs import Answer, TaskVerbs
from hermes.runtime.blocking import BlockingPool
from hermes.runtime.isolation import MODES, read_mode
from hermes.runtime.spec import TaskSpec
from hermes.runtime.task import Task

__all__ = ["AsyncHermes", "Run", "open_async", "opened"]

#: Tokens of room that a caller from Python has for a report: reports are handed over whole.
ROOM = 1_000_000_000
#: Seconds that leaving with `on_exit="cancel"` waits for tasks to stop.
GRACE = 10.0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """How one conversation of an `AIAgent` went."""

    result: TaskResult
    session_id: str
    entries: tuple[Entry, ...]


@asynccontextmanager
async def opened(options: Options) -> AsyncIterator[AsyncHermes]:
    """Open a runtime by its options."""
    async with open_runtime(parts_of(options)) as assembly:
        if options.tools:
            _offer(assembly, options)
        hermes = AsyncHermes(assembly, options)
        try:
            yield hermes
        finally:
            if options.on_exit == "cancel":
                with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE):
                    await hermes.cancel_all("the runtime was closed")
        _check(assembly)


def _check(assembly: Assembly) -> None:
    problems = assembly.tape.problems() if assembly.tape is not None else ()
    if problems:
        raise OperatorError("\n".join(["the replay is not the recording:", *problems]))


def _offer(assembly: Assembly, options: Options) -> None:
    """Let every task of the runtime have the functions that were given as tools."""
    runtime = assembly.runtime
    functions = read_functions(options.tools, runtime.registry.tool_names(runtime.registry.names))

    def report(task_id: str, event: ToolAbandoned) -> None:
        task = runtime.supervisor.tasks.get(task_id)
        if task is not None:
            task.emit(event)

    runtime.registry.add(FunctionToolset(functions, BlockingPool(report, hold=options.hold)))


def open_async(**options: Any) -> AbstractAsyncContextManager[AsyncHermes]:
    """Open a runtime for the length of an `async with` block, which gets an `AsyncHermes`.

    Options: `model`, `provider`, `base_url`, `api_key`, `toolsets`, `tools` (functions), `settings`, `workspace`,
    `environ`, `memory`, `yolo`, `record` and `replay` (files), `on_exit` ("suspend" or "cancel").

    Raises:
        UsageError: an option or setting that cannot be used, or no model is configured.
        OperatorError: the home cannot be written; at the end: a recording could not be written,
            or what was replayed is not what was recorded.
    """
    return opened(read_options(options))


class AsyncHermes:
    """The verbs on tasks, as coroutines. A task is named by its id or the unique beginning of it."""

    def __init__(self, assembly: Assembly, options: Options) -> None:
        self._assembly = assembly
        self._options = options
        self._session = ""
        self._opening = anyio.Lock()
        self._transcripts: dict[str, list[Entry]] = {}
        assembly.runtime.bus.subscribe(self._hear)

    @property
    def assembly(self) -> Assembly:
        """The parts below, for what this interface does not have."""
        return self._assembly

    @property
    def _verbs(self) -> TaskVerbs:
        return self._assembly.delegation.verbs

    def _hear(self, envelope: Envelope) -> None:
        transcript = self._transcripts.get(envelope.task_id)
        if transcript is not None and isinstance(envelope.event, EntryAdded):
            transcript.append(envelope.event.entry)

    def _find(self, task_id: str) -> Task | Answer:
        return self._verbs.find(task_id, session_id=self._session)

    async def _start(self, spec: TaskSpec) -> Task:
        async with self._opening:  # the first task opens the session that all share
            task = await self._assembly.runtime.start(spec, source="python", session=self._session or None)
            self._session = task.scope.session_id
        return task

    async def _site(self, mode: str) -> dict[str, Any]:
        """Where a task of this mode works, as changes of its specification."""
        wanted = read_mode(mode)
        if wanted is None:
            raise UsageError(f"workspace is one of {', '.join(MODES)}, not {mode!r}")
        folder = os.path.abspath(self._options.workspace or os.getcwd())
        task_id = self._assembly.runtime.supervisor.new_id("async")
        place, isolation, _ = await self._assembly.workspaces.plan(wanted, folder, task_id)
        return {"workspace": place, "isolation": isolation}

    def _spec(self, goal: str, **changes: Any) -> TaskSpec:
        if not isinstance(goal, str) or not goal.strip():
            raise UsageError("goal is required: say what the task has to do")
        workspace = changes.pop("workspace", "") or os.path.abspath(self._options.workspace or os.getcwd())
        if changes.get("isolation") is None and not Path(workspace).is_dir():
            raise UsageError(f"the working directory {workspace} does not exist")
        toolsets = changes.pop("toolsets", None)
        system = changes.pop("system", "")
        model = changes.pop("model", "")
        limits = {name: changes.pop(name) for name in ("turns", "clock") if changes.get(name) is not None}
        changes = {name: value for name, value in changes.items() if value is not None}
        spec, _ = conversation_spec(
            self._assembly,
            goal=goal,
            interactive=False,
            workspace=workspace,
            toolsets=self._options.toolsets if toolsets is None else tuple(toolsets),
            extra_system=system,
        )
        if self._options.tools:
            spec = msgspec.structs.replace(
                spec, toolsets=(*spec.toolsets, FUNCTIONS), ceiling=(*spec.ceiling, FUNCTIONS)
            )
        return msgspec.structs.replace(
            spec,
            limits=msgspec.structs.replace(spec.limits, **limits),
            model=msgspec.structs.replace(spec.model, name=model or spec.model.name),
            **changes,
        )

    async def delegate_async(
        self,
        goal: str,
        *,
        context: str = "",
        toolsets: Sequence[str] | None = None,
        model: str = "",
        route: str = "",
        agent: str = "",
        timeout: float | None = None,
        max_iterations: int | None = None,
        output_schema: Mapping[str, Any] | None = None,
        check: str = "",
        workspace: str = "shared",
    ) -> str:
        """Start a task and return its id at once, its row on disk. `timeout` is seconds of running time.

        `route` is a name of `delegation.routes`; `agent` an agent type, which says what the arguments do not: prompt,
        model, tools, limits.

        `workspace`: `shared` is the runtime's own directory; `scratch`, `copy` and `worktree` are the task's alone, and
        the result says under `worktree` (or `workspace`) what became of it.

        `output_schema` is the JSON schema of its answer, `check` a command that has to succeed before it counts as
        done; each sends the task back once. The result then has `output`, `schema_valid`, `schema_errors`, `check`.

        Raises:
            UsageError: the goal is empty, the schema is none, or there is no such route or agent type.
            OperatorError: it may not start, or its model cannot be had.
        """
        text = f"{goal}\n\nCONTEXT:\n{context}" if context.strip() else goal
        schema: dict[str, Any] | None = None
        if output_schema is not None:
            try:
                with held(self._options.hold):
                    schema = await anyio.to_thread.run_sync(check_schema, dict(output_schema))
            except ToolError as error:
                raise UsageError(str(error)) from None
        rules = answer_rules(schema_text(schema) if schema else "", check, "the working directory")
        spec = self._spec(
            text,
            toolsets=toolsets,
            model=model,
            clock=timeout,
            turns=max_iterations,
            kind="async",
            label=goal[:55],
            system="\n\n".join(rules),
            output_schema=schema,
            check=check or None,
            **await self._site(workspace),
        )
        if agent or route:
            spec = await self._typed(spec, agent, route, named=bool(model), given=toolsets is not None)
            limits = {"clock": timeout, "turns": max_iterations}
            kept = {name: value for name, value in limits.items() if value is not None}
            spec = msgspec.structs.replace(spec, limits=msgspec.structs.replace(spec.limits, **kept))
        return (await self._start(spec)).id

    async def _typed(self, spec: TaskSpec, agent: str, route: str, *, named: bool, given: bool) -> TaskSpec:
        """`spec` as an agent type and a route have it; `named`: its model was asked for, `given`: its toolsets were."""
        delegation = self._assembly.delegation
        try:
            found = await delegation.agents.find(agent, spec.workspace) if agent else None
            return typed_spec(spec, found, delegation.policy.routing, route=route, named=named, given=given)
        except ToolError as error:
            raise UsageError(str(error)) from None

    async def delegate(self, goal: str, **options: Any) -> Answer:
        """Start a task and wait for its end: `delegate_async` and `collect` in one."""
        return await self.collect(await self.delegate_async(goal, **options))

    async def check(self, task_id: str) -> Answer:
        """State, newest output and use of a task. Never waits."""
        task = self._find(task_id)
        return self._verbs.check(task) if isinstance(task, Task) else task

    async def steer(self, task_id: str, message: str) -> Answer:
        """Send a correction, read before the task's next request. `receipt` tells what became of it (see `check`)."""
        task = self._find(task_id)
        return await self._verbs.steer(task, message) if isinstance(task, Task) else task

    async def continue_task(self, task_id: str, message: str) -> Answer:
        """Let a task that has ended go on with everything it knows and a next message; same id, another attempt."""
        task = self._find(task_id)
        return await self._verbs.continue_task(task, message) if isinstance(task, Task) else task

    async def collect(self, task_id: str, timeout: float | None = None) -> Answer:
        """Wait for the end of a task, at most `timeout` seconds; the same answer each time. The task goes on."""
        task = self._find(task_id)
        if not isinstance(task, Task):
            return task
        return await self._verbs.collect(task, timeout=timeout, caller=None, room_tokens=ROOM)

    async def wait(
        self, task_ids: Sequence[str], mode: Literal["all", "any"] = "all", timeout: float | None = None
    ) -> Answer:
        """Wait until all (or any) of the tasks ended. Ids that name no task stand in `error`."""
        if mode not in ("all", "any"):
            raise UsageError(f"mode is 'all' or 'any', not {mode!r}")
        found = [self._find(task_id) for task_id in task_ids]
        missing = [task_id for task_id, task in zip(task_ids, found, strict=True) if not isinstance(task, Task)]
        if missing:
            return {"error": f"Task not found: {', '.join(missing)}"}
        tasks = [task for task in found if isinstance(task, Task)]
        return await self._verbs.wait(tasks, mode=mode, timeout=timeout, caller=None)

    async def cancel(self, task_id: str) -> Answer:
        """Stop a task and everything under it; partial results are kept."""
        task = self._find(task_id)
        return await self._verbs.cancel(task, "cancelled by the user") if isinstance(task, Task) else task

    async def list(self) -> Answer:
        """All tasks started here and those under them."""
        return self._verbs.list(self._assembly.runtime.control.visible(None, self._session) if self._session else [])

    async def cancel_all(self, reason: str) -> None:
        """Stop every task and wait for their ends."""
        going = [task for task in self._assembly.runtime.supervisor.tasks.values() if not task.ended]
        await self._assembly.runtime.control.cancel(going, reason)
        for task in going:
            await task.done.wait()

    async def run(
        self, goal: str, history: Sequence[Entry], started: Callable[[Task], None], changes: Mapping[str, Any]
    ) -> Run:
        """Run one conversation to its end; `started` gets its task. Cancelled, it stops the conversation first."""
        runtime = self._assembly.runtime
        task = await runtime.start(self._spec(goal, history=tuple(history), **changes), source="python")
        transcript: list[Entry] = []
        self._transcripts[task.id] = transcript
        started(task)
        try:
            result = await runtime.result(task)
            # What compaction wrote is no part of the conversation: the full history goes out.
            entries = tuple(entry for entry in transcript if not isinstance(entry, Summary))
            return Run(result=result, session_id=task.scope.session_id, entries=entries)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE):
                await runtime.control.cancel([task], "interrupted by the user")
                await task.done.wait()
            raise
        finally:
            del self._transcripts[task.id]
