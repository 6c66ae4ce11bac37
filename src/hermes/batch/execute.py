"""The engine of the ordinary batch: each rollout is a task of the runtime, like a conversation or a child.

What a row needs is folded from the events of its task and of the children under it, so the batch holds no callback in
the loop. Opening a runtime is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import anyio

from hermes.batch.attempt import COPY_THREADS
from hermes.batch.rollout import ChildRecord, RolloutError, RolloutRequest, RolloutResult, RolloutState
from hermes.batch.threads import Threads
from hermes.batch.workspace import remove
from hermes.core.clock import NO_HOLD, Hold
from hermes.core.events import (
    EntryAdded,
    Envelope,
    QuotaWaiting,
    RetryWaiting,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from hermes.core.limits import Limits
from hermes.core.messages import Entry, Text, Usage, plain_text
from hermes.core.model import Model
from hermes.core.result import TaskResult
from hermes.runtime.denials import Denials
from hermes.runtime.prompt import conversation_system
from hermes.runtime.runtime import Runtime
from hermes.runtime.spec import ModelChoice, TaskSpec
from hermes.runtime.task import Task

__all__ = ["RuntimeEngine"]

#: How an error begins that says that a workspace or environment cannot be had.
_UNAVAILABLE = "environment_unavailable: "
#: Seconds that a stopped rollout gets to end its commands.
STOP_GRACE = 5.0


class _Trace:
    """What the events say of one rollout: entries by task, and what the tools said of their calls."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.report = report
        self.root = ""
        self.entries: dict[str, list[Entry]] = {}
        self.success: dict[str, bool] = {}
        self.denials = Denials()

    def apply(self, envelope: Envelope) -> None:
        """Fold one event of the tree in."""
        event = envelope.event
        self.denials.hear(event)
        if isinstance(event, EntryAdded):
            self.entries.setdefault(envelope.task_id, []).append(event.entry)
        elif isinstance(event, ToolEnded):
            if envelope.task_id == self.root:
                self.success[f"{event.position}:{event.index}"] = event.success
            self.report(f"tool {event.name}")
        elif isinstance(event, ToolStarted):
            self.report(f"tool {event.name}")
        elif isinstance(event, TurnStarted):
            self.report("model")
        elif isinstance(event, RetryWaiting):
            self.report(f"retry in {event.seconds:.0f} s ({event.reason})")
        elif isinstance(event, QuotaWaiting):
            self.report(f"quota {event.seconds:.0f} s {event.provider}".rstrip() if event.seconds else "model")


class RuntimeEngine:
    """Carries rollouts out as tasks of `runtime`.

    `choice` is the model every rollout asks, `ceiling` what its children may be offered. All rollouts of a run stand in
    one session.
    """

    def __init__(
        self, runtime: Runtime, *, model: Model, choice: ModelChoice, ceiling: tuple[str, ...], hold: Hold = NO_HOLD
    ) -> None:
        self._runtime = runtime
        self._threads = Threads(COPY_THREADS, hold)
        self._model = model
        self._choice = choice
        self._ceiling = ceiling
        self._session = runtime.new_session()
        self._opened = False
        self._traces: dict[str, _Trace] = {}
        self._root_of: dict[str, str] = {}
        runtime.bus.subscribe(self._hear)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._choice.name or self._model.name

    @property
    def thinking(self) -> bool:
        """Whether the model reasons by itself."""
        return self._model.profile.thinking

    @property
    def toolsets(self) -> Mapping[str, tuple[str, ...]]:
        """The toolsets there are, with the names of their tools."""
        registry = self._runtime.registry
        return {name: registry.tool_names((name,)) for name in registry.names}

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

    def _hear(self, envelope: Envelope) -> None:
        root = self._root_of.get(envelope.task_id)
        if root is None and envelope.parent_id is not None:
            root = self._root_of.get(envelope.parent_id)
            if root is not None:
                self._root_of[envelope.task_id] = root
        if root is not None:
            self._traces[root].apply(envelope)

    async def run(self, request: RolloutRequest) -> RolloutResult:
        """Run one rollout. Cancelled, it stops the task and its commands first."""
        trace = _Trace(request.report)
        began = self._runtime.clock.now()
        task = await self._runtime.start(
            self._spec(request), source="batch", session=self._session if self._opened else None
        )
        if not self._opened:
            self._opened, self._session = True, task.scope.session_id
        trace.root = task.id
        self._traces[task.id] = trace
        self._root_of[task.id] = task.id
        try:
            report = self._report(request, task, await self._runtime.result(task), trace, began)
            await self._threads.run(_remove_state, request.state_dir, task)
            return report
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_GRACE):
                await self._runtime.control.cancel([task], "the batch was stopped", sender="batch")
                await task.done.wait()
            raise
        finally:
            for member in task.subtree():
                self._root_of.pop(member.id, None)
            self._traces.pop(task.id, None)
            if task.ended:
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
            label=" ".join(request.prompt.split())[:40],
            system=system,
            role="orchestrator",
            toolsets=toolsets,
            ceiling=tuple(dict.fromkeys((*self._ceiling, *toolsets))),
            model=self._choice,
            limits=Limits(turns=request.max_turns, clock=request.timeout),
            workspace=request.workspace,
            environment="docker" if request.image else "",
            image=request.image,
            reasoning_effort=request.reasoning_effort,
            max_tokens=request.max_tokens,
            prefill=request.prefill,
        )

    def _report(
        self, request: RolloutRequest, task: Task, result: TaskResult, trace: _Trace, began: float
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
            entries=tuple(trace.entries.get(task.id, ())),
            usage=result.usage,
            api_calls=result.api_calls,
            model=result.model or self.model,
            tools=task.offered,
            error=error,
            started_at=began,
            duration=result.elapsed,
            partial=result.error_reason == "invalid_calls",
            call_success=trace.success,
            calls=trace.denials.calls,
            denied=dict(trace.denials.reasons),
            children=tuple(self._child(child, trace) for child in task.subtree()[:-1]),
        )

    @staticmethod
    def _child(child: Task, trace: _Trace) -> ChildRecord:
        result = child.result
        return ChildRecord(
            task_id=child.id,
            parent_id=child.scope.parent_id or "",
            goal=plain_text(child.spec.goal),
            entries=tuple(trace.entries.get(child.id, ())),
            usage=result.usage if result is not None else Usage(),
            state=child.state,
        )


def _remove_state(state_dir: str, task: Task) -> None:
    """Remove what the shells of a rollout kept: in a long run it would fill the disk."""
    for member in task.subtree():
        remove(Path(state_dir, member.scope.session_id, member.id))
