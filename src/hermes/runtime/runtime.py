"""The runtime of one process: its parts, opened and closed together."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import anyio
import msgspec

from hermes.core.clock import Clock
from hermes.core.codec import encode_envelope, encode_event
from hermes.core.errors import OperatorError
from hermes.core.events import (
    EPHEMERAL,
    EVENT_TYPES,
    EntryAdded,
    Envelope,
    Event,
    LoopStalled,
    TaskPhase,
    TurnEnded,
    TurnStarted,
)
from hermes.core.ids import session_id, task_id
from hermes.core.limits import Budget
from hermes.core.messages import opening, plain_text
from hermes.core.result import TaskResult
from hermes.core.scope import TaskScope
from hermes.core.toolsets import ToolsetRegistry
from hermes.runtime.approval import Gate
from hermes.runtime.bus import Bus
from hermes.runtime.control import Control
from hermes.runtime.outside import NOBODY
from hermes.runtime.rows import queued_event, task_row
from hermes.runtime.session import Session
from hermes.runtime.spec import SpawnRequest, TaskSpec
from hermes.runtime.standstill import Standstill
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task
from hermes.runtime.watchdog import Watchdog
from hermes.store.ops import AddSession, AddTask, EventRow, Op, SessionRow, Store, Unit

__all__ = ["Runtime", "running", "tell_slept", "tune_interpreter"]

#: Events that are kept, with their names. Entries are the history itself and stand there.
_KEPT: dict[type[Any], str] = {
    kind: str(kind.__struct_config__.tag) for kind in EVENT_TYPES if kind not in EPHEMERAL and kind is not EntryAdded
}
#: Phases are for whoever watches, except what another process has to know: that a conversation rests, and for how long
#: nothing ran.
_KEPT[TaskPhase] = "task.phase"


class Runtime:
    """What faces and features work with. Made by `hermes.compose`; entered with `running`."""

    def __init__(
        self,
        *,
        supervisor: Supervisor,
        control: Control,
        bus: Bus,
        store: Store,
        gate: Gate,
        registry: ToolsetRegistry,
        clock: Clock,
        redact: Callable[[bytes], bytes],
    ) -> None:
        self.supervisor = supervisor
        self.control = control
        self.bus = bus
        self.store = store
        self.gate = gate
        self.registry = registry
        self.clock = clock
        self.redact = redact
        if store.keeps:
            bus.subscribe(self._keep, types=_KEPT)

    def _keep(self, envelope: Envelope) -> None:
        """Keep an event in the log."""
        event = envelope.event
        if type(event) is TaskPhase and not event.slept and not self._rests(envelope, event):
            return
        body = encode_event(event)
        if not _is_ours(event):
            body = self.redact(body)
        self.store.log(
            EventRow(
                session_id=envelope.session_id,
                task_id=envelope.task_id,
                seq=envelope.seq,
                type=_KEPT[type(event)],
                at=envelope.at,
                body=encode_envelope(envelope, body),
            )
        )

    def _rests(self, envelope: Envelope, event: TaskPhase) -> bool:
        """Whether a conversation begins to wait for its person."""
        task = self.supervisor.tasks.get(envelope.task_id) if event.phase == "idle" else None
        return task is not None and task.spec.interactive

    def new_session(self) -> str:
        """A new session id."""
        return session_id(datetime.fromtimestamp(self.clock.now()))

    async def open_session(self, spec: TaskSpec, *, source: str = "cli") -> Session:
        """Start a conversation. `spec.goal` may hold its first input."""
        task = await self.start(spec, source=source)
        return Session(task, self.control)

    async def start(self, spec: TaskSpec, *, source: str = "cli", session: str | None = None, named: str = "") -> Task:
        """Spawn a task without a parent, in a session of its own (which is `named`, if given) or in a given one."""
        sid = session or named or self.new_session()
        first: Sequence[Op] = () if session is not None else (self._session(sid, spec, source),)
        planned = spec.isolation.task_id if spec.isolation is not None else ""
        request = SpawnRequest(spec=spec, task_id=planned)
        tasks = await self.supervisor.spawn([request], session_id=sid, first=first)
        return tasks[0]

    async def place(self, spec: TaskSpec, *, source: str = "cli") -> str:
        """Store a task without a parent in a session of its own, without running it; returns the session.

        It belongs to nobody until a process takes it up.

        Raises:
            UsageError: money is limited and the model's price unknown.
        """
        sid = self.new_session()
        self.supervisor.budgets.admit([spec], sid, None)
        new = task_id(spec.kind)
        scope = TaskScope(
            task_id=new, session_id=sid, root_id=new, kind=spec.kind, role=spec.role, workspace=spec.workspace
        )
        task = Task(scope, spec, parent=None, budget=Budget(spec.limits, new), owner=NOBODY, emit=self.supervisor.emit)
        request = SpawnRequest(spec=spec)
        row = task_row(task, request, None, self.clock.now(), self.redact)
        await self.store.submit(Unit(ops=(self._session(sid, spec, source), AddTask(row=row)))).wait()
        task.emit(queued_event(task, request, 0))
        return sid

    def _session(self, sid: str, spec: TaskSpec, source: str) -> AddSession:
        now = self.clock.now()
        title = opening(plain_text(spec.goal[:1]), 80)  # files that go along stand behind
        return AddSession(
            row=SessionRow(
                session_id=sid,
                root_task="",
                created_at=now,
                updated_at=now,
                source=source,
                title=self.redact(title.encode("utf-8", "replace")).decode(),
                cwd=spec.workspace,
                model=spec.model.name,
            )
        )

    async def background(self, spec: TaskSpec, session: Session) -> Task:
        """Spawn an independent run in a session; nobody waits for it, its end shows in the events."""
        tasks = await self.supervisor.spawn(
            [SpawnRequest(spec=msgspec.structs.replace(spec, kind="background", detached=True))],
            session_id=session.id,
            parent=session.task,
        )
        return tasks[0]

    async def result(self, task: Task) -> TaskResult:
        """Wait for the end of a task.

        Raises:
            StoreError: the journal broke; nothing more was recorded.
            OperatorError: the program is ending and the task was suspended.
        """
        await task.done.wait()
        if task.result is None:
            raise self.supervisor.broken or OperatorError(f"task {task.id} was suspended: {task.stop_text}")
        return task.result


@asynccontextmanager
async def running(
    runtime: Runtime,
    *,
    standstill: Standstill | None = None,
    beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
) -> AsyncIterator[Runtime]:
    """Run the runtime's tasks, and what is to run `beside` them, for the length of a block; what still runs at its end
    is suspended, not ended. What the block raises leaves as it is. With a `standstill` the loop is watched."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        runtime.supervisor.start(group)
        if standstill is not None:
            standstill.noticed.append(lambda seconds: tell_slept(runtime, seconds))
            group.start_soon(Watchdog(lambda seconds, where: _stalled(runtime, seconds, where), standstill).run)
        for each in beside:
            group.start_soon(each)
        try:
            yield runtime
        except Exception as error:  # noqa: BLE001  raised below, where no group wraps it
            failure = error
        finally:
            with anyio.CancelScope(shield=True):
                await runtime.supervisor.shutdown()
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _is_ours(event: Event) -> bool:
    """Whether every text of an event is our own word: it then needs no search for secrets, which costs more than all
    else that is done with it."""
    kind = type(event)
    return kind is TurnStarted or kind is TurnEnded and not event.error  # type: ignore[union-attr]


def _stalled(runtime: Runtime, seconds: float, where: str) -> None:
    """Tell everyone that something blocked the loop; it belongs to no task, so the newest session hears it."""
    running_tasks = [task for task in runtime.supervisor.tasks.values() if not task.ended]
    if running_tasks:
        running_tasks[0].emit(LoopStalled(seconds=seconds, where=where))


def tell_slept(runtime: Runtime, seconds: float) -> None:
    """Tell everyone that nothing ran for `seconds`, which count for no task that works. It belongs into the log:
    whoever takes a task up later reckons from there how long it has run."""
    views = runtime.bus.tree.tasks
    for task in list(runtime.supervisor.tasks.values()):
        view = views.get(task.id)
        if not task.ended and view is not None and view.state == "running" and view.phase != "idle":
            task.emit(TaskPhase(phase=view.phase, detail=view.phase_detail, slept=round(seconds, 3)))


def tune_interpreter(*, attended: bool = False) -> None:
    """Tune the interpreter for a process of our own; never called when the package is used as a library.

    The cyclic collector was a fifth of the CPU and most of the worst delay. Where a person is `attended`, threads get
    the interpreter's lock sooner: the journal's asks for it ten times in a commit and each time took up to the usual
    5 ms, so that with a thousand children an answer came half a second later. It costs a tenth more CPU.
    """
    if attended:
        sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
