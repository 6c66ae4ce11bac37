"""The engine of the ordinary batch: each rollout is a task of the runtime, like a conversation or a child.

What a row needs is folded from the events of its task and of the children under it, so the batch holds no callback in
the loop. Opening a runtime is the caller's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import anyio
import msgspec

from hermes.batch.identity import session_name
from hermes.batch.journal import Begun, RolloutJournal
from hermes.batch.rollout import ChildRecord, RolloutError, RolloutRequest, RolloutResult, RolloutState
from hermes.batch.row_tape import RowTape
from hermes.batch.trace import Trace
from hermes.batch.verifiers import Command, File
from hermes.batch.verifying import Verifying
from hermes.core.agent import Outcome
from hermes.core.clock import NO_HOLD, Hold
from hermes.core.events import Envelope
from hermes.core.limits import Budget, Limits
from hermes.core.messages import Assistant, Entry, Text, Usage, User, opening, plain_text
from hermes.core.model import Model, ModelProfile, ToolSpec
from hermes.core.result import TaskResult
from hermes.runtime.prompt import conversation_system
from hermes.runtime.recovery import Recovery
from hermes.runtime.rows import stored_result, stored_spec
from hermes.runtime.runtime import Runtime
from hermes.runtime.spec import ModelChoice, TaskSpec
from hermes.runtime.task import Task
from hermes.store.ops import TaskRow

__all__ = ["RuntimeEngine"]

#: How an error begins that says that a workspace or environment cannot be had.
_UNAVAILABLE = "environment_unavailable: "
#: Seconds that a stopped rollout gets to end its commands.
STOP_GRACE = 5.0
#: Ends of a rollout after which its work is judged.
JUDGED = ("completed", "exhausted")


class RuntimeEngine:
    """Carries rollouts out as tasks of `runtime`.

    `choice` is the model every rollout asks, `ceiling` what its children may be offered. Each attempt is a session of
    its own. With `recovery`, what an earlier process began goes on from its last step; `look` sees what there is. A
    `tape` records or replays the rollouts.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        model: Model,
        choice: ModelChoice,
        ceiling: tuple[str, ...],
        recovery: Recovery | None = None,
        tape: RowTape | None = None,
        hold: Hold = NO_HOLD,
    ) -> None:
        self._runtime = runtime
        self._tape = tape
        self._recovery = recovery
        self._journal = RolloutJournal(runtime.store)
        self._model = model
        self._choice = choice
        self._ceiling = ceiling
        self._traces: dict[str, Trace] = {}
        self._root_of: dict[str, str] = {}
        self._verifying = Verifying(runtime.gate, hold)
        self._requests: dict[str, RolloutRequest] = {}
        runtime.supervisor.policy.examine = self._examine
        self._budget = runtime.supervisor.budgets.above = Budget(Limits(), "run")
        runtime.bus.subscribe(self._hear)

    async def look(self) -> None:
        """See which rollouts an earlier process left half-done."""
        if self._recovery is not None:
            await self._journal.look()

    @property
    def model(self) -> str:
        """The model's name."""
        return self._choice.name or self._model.name

    @property
    def profile(self) -> ModelProfile:
        """What is known of the model, the user's own settings for it included."""
        return self._model.profile

    @property
    def toolsets(self) -> Mapping[str, tuple[str, ...]]:
        """The toolsets there are, with the names of their tools."""
        registry = self._runtime.registry
        return {name: registry.tool_names((name,)) for name in registry.names}

    @property
    def taped(self) -> bool:
        """Whether rollouts are recorded or replayed."""
        return self._tape is not None

    def redact(self, data: bytes) -> bytes:
        """Replace known secrets in encoded JSON."""
        return self._runtime.redact(data)

    def waiting_for(self) -> str:
        """What everything waits for, by the phases of the running tasks."""
        phases: dict[str, int] = {}
        for task in self._runtime.supervisor.tasks.values():
            view = self._runtime.bus.tree.tasks.get(task.id)
            if view is not None and not view.ended and view.phase:
                words = f"{view.phase} {view.phase_detail}".strip()
                phases[words] = phases.get(words, 0) + 1
        return ", ".join(
            f"{count} in {words}" for words, count in sorted(phases.items(), key=lambda item: -item[1])[:3]
        )

    def begun(self) -> Collection[str]:
        """The sessions of half-done rollouts: those under way, and what an earlier process left."""
        return self._journal.names

    def keep_only(self, names: Collection[str]) -> None:
        """Let go of all half-done rollouts but these."""
        self._journal.keep_only(names)

    def settled(self, key: str, attempt: int) -> None:
        """The record of a rollout is synced: what it would have gone on from goes."""
        self._journal.remove(session_name(key, attempt))

    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars of this process, what is set aside for calls under way included."""
        return self._budget.tokens, self._budget.cost

    def _hear(self, envelope: Envelope) -> None:
        root = self._root_of.get(envelope.task_id)
        if root is None and envelope.parent_id is not None:
            root = self._root_of.get(envelope.parent_id)
            if root is not None:
                self._belongs(envelope.task_id, self._traces[root])
        if root is not None:
            self._traces[root].apply(envelope.task_id, envelope.event)

    async def _examine(self, task: Task, outcome: Outcome) -> None:
        """Let the verifiers of a row judge what its rollout has done."""
        request = self._requests.get(task.scope.session_id)
        if task.parent is None and request is not None and request.verifiers and outcome.state in JUDGED:
            request.report("verifier")
            scores = await self._verifying.scores(task, request.verifiers, outcome.text, request.row)
            task.verdict = msgspec.structs.replace(task.verdict, scores=scores)

    async def run(self, request: RolloutRequest) -> RolloutResult:
        """Run one rollout, or go on with it. Cancelled, it stops where it stands: a later process may go on."""
        trace = Trace(request.report)
        began = self._runtime.clock.now()
        name = session_name(request.key, request.attempt)
        begun = await self._journal.read(name, trace) if self._journal.has(name) else None
        if begun is not None and begun.result is not None and begun.result.state != "cancelled":
            return self._ended(begun, begun.result, trace)
        self._requests[name] = request
        try:
            task = await self._begin(request, name, begun, trace)
            report = self._report(task, await self._runtime.result(task), trace, began)
            if self._tape is not None:
                report = msgspec.structs.replace(report, tape=await self._tape.end(task))
            self._forget(trace)
            return report
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_GRACE):
                await self._runtime.supervisor.let_go(name, "the batch was stopped", patience=0.0)
            self._forget(trace)
            raise
        finally:
            self._requests.pop(name, None)

    async def _begin(self, request: RolloutRequest, name: str, begun: Begun | None, trace: Trace) -> Task:
        """Start the task of a rollout, or take it up."""
        if begun is not None and self._recovery is not None:
            self._traces[trace.root] = trace
            for row in begun.rows:
                self._belongs(row.task_id, trace)
            return await self._recovery.adopt(name, revise=self._revised)
        if self._tape is not None:
            self._tape.begin(name, request.twin)
        task = await self._runtime.start(self._spec(request), source="batch", named=name)
        trace.root = task.id
        self._traces[task.id] = trace
        self._belongs(task.id, trace)
        self._journal.add(name)
        return task

    def _belongs(self, task_id: str, trace: Trace) -> None:
        self._root_of[task_id] = trace.root
        trace.members.add(task_id)

    def _revised(self, spec: TaskSpec) -> TaskSpec:
        """A run may go on at another address of its model."""
        return msgspec.structs.replace(spec, model=self._choice)

    def _forget(self, trace: Trace) -> None:
        """Drop an attempt from memory; what the journal has of it stays until it is settled."""
        self._traces.pop(trace.root, None)
        for member in trace.members:
            del self._root_of[member]
        task = self._runtime.supervisor.tasks.get(trace.root)
        if task is not None and task.done.is_set():
            self._runtime.supervisor.forget(task)

    def _spec(self, request: RolloutRequest) -> TaskSpec:
        tiny = self._model.profile.tiny
        toolsets = self._runtime.registry.expand(request.toolsets).names
        system = (
            request.system
            if tiny
            else conversation_system(toolsets, workspace=request.workspace, finite=True, extra=request.system)
        )
        return TaskSpec(
            kind="row",
            goal=(Text(request.prompt),),
            label=opening(request.prompt, 40),
            system=system,
            role="orchestrator",
            toolsets=toolsets,
            ceiling=tuple(dict.fromkeys((*self._ceiling, *toolsets))),
            model=self._choice,
            limits=Limits(turns=request.max_turns, clock=request.timeout),
            workspace=request.workspace,
            borrows=request.borrows,
            environment="docker" if request.image else "",
            image=request.image,
            reasoning_effort=request.reasoning_effort,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            extra=request.extra,
            examined=any(isinstance(each, (Command, File)) for each in request.verifiers),
            prefill=request.prefill,
            history=tuple(_said(message) for message in request.before),
        )

    def _report(self, task: Task, result: TaskResult, trace: Trace, began: float) -> RolloutResult:
        children = tuple(
            _child(child.id, child.scope.parent_id, child.spec, child.result, child.state, trace)
            for child in task.subtree()[:-1]
        )
        return self._told(result, trace, task.offered, children, began)

    def _ended(self, begun: Begun, result: TaskResult, trace: Trace) -> RolloutResult:
        """What an attempt brought that came to its end in a process which died before it was written up."""
        children = tuple(
            _child(row.task_id, row.parent_id, stored_spec(row), stored_result(row), row.state, trace)
            for row in _leaves_first(begun.rows)
        )
        began = begun.root.started_at or begun.root.created_at
        return self._told(result, trace, begun.offered[begun.root.task_id], children, began)

    def _told(
        self,
        result: TaskResult,
        trace: Trace,
        offered: tuple[ToolSpec, ...],
        children: tuple[ChildRecord, ...],
        began: float,
    ) -> RolloutResult:
        state: RolloutState = result.state  # type: ignore[assignment]  # one of the ends
        error = None
        if result.partial and result.error_reason == "invalid_calls":
            state = "exhausted"  # the model's own doing: an answer of poor quality, not a fault to run again
        elif state not in ("completed", "exhausted"):
            kind = "timeout" if state == "timed_out" else result.error_reason or "crashed"
            message = result.error or f"the rollout ended as {result.state}"
            if message.startswith(_UNAVAILABLE):
                kind, message = "environment_unavailable", message.removeprefix(_UNAVAILABLE)
            error = RolloutError(
                kind=kind,
                message=message,
                permanent=result.permanent,
                retry_after=result.retry_after,
            )
        return RolloutResult(
            state=state,
            exit_reason="invalid_calls" if result.error_reason == "invalid_calls" else result.exit_reason,
            entries=tuple(trace.entries.get(trace.root, ())),
            usage=result.usage,
            api_calls=result.api_calls,
            model=result.model or self.model,
            tools=offered,
            error=error,
            started_at=began,
            duration=result.elapsed,
            partial=result.error_reason == "invalid_calls",
            call_success=trace.success,
            calls=trace.denials.calls,
            denied=dict(trace.denials.reasons),
            children=children,
            scores=result.verdict.scores,
        )


def _child(
    task_id: str, parent_id: str | None, spec: TaskSpec, result: TaskResult | None, state: str, trace: Trace
) -> ChildRecord:
    return ChildRecord(
        task_id=task_id,
        parent_id=parent_id or "",
        goal=plain_text(spec.goal),
        entries=tuple(trace.entries.get(task_id, ())),
        usage=result.usage if result is not None else Usage(),
        state=state,
    )


def _said(message: Mapping[str, str]) -> Entry:
    if message["role"] == "user":
        return User(content=(Text(message["content"]),))
    return Assistant(text=message["content"])


def _leaves_first(rows: Sequence[TaskRow]) -> list[TaskRow]:
    """Every child of a tree whose rows come in order of creation, in the order in which a living tree has them."""
    found: list[TaskRow] = []

    def visit(parent: str) -> None:
        for row in rows:
            if row.parent_id == parent:
                visit(row.task_id)
                found.append(row)

    visit(next(row.task_id for row in rows if row.parent_id is None))
    return found
