"""The supervisor: every task is born, runs and ends here, in one task group, whatever spawned it.

The tree is data (`parent`, `children`); a child never runs in its parent's coroutine. A task ends exactly once, the
first end wins, and the end is recorded shielded. The verbs on living tasks (steer, collect, cancel, …) are in
`control.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from hermes.core.agent import Agent, Outcome
from hermes.core.clock import NO_HOLD, Clock, Hold, loop_clock
from hermes.core.errors import AdmissionRefused, OperatorError, OwnershipLost, StoreError
from hermes.core.events import Event, TaskStarted, ToolEnded, ToolProgress, ToolStarted, TurnEnded
from hermes.core.history import DONE, Pending
from hermes.core.ids import IdSource, random_hex, task_id
from hermes.core.messages import plain_text
from hermes.core.scope import CallKey, TaskKind, TaskScope
from hermes.runtime.admission import Admission
from hermes.runtime.budgets import SessionBudgets
from hermes.runtime.bus import Bus
from hermes.runtime.deadlines import Deadlines
from hermes.runtime.delivery import Delivery
from hermes.runtime.ending import Ending, first_of, with_unfinished
from hermes.runtime.letting_go import suspend
from hermes.runtime.policy import Policy
from hermes.runtime.processes import awaits_process
from hermes.runtime.rows import large_specs, queued_event, task_row
from hermes.runtime.spec import SpawnRequest, TaskSpec
from hermes.runtime.task import Task
from hermes.store.ops import AddTask, Fence, Op, SetTaskState, Store, Ticket, Unit

__all__ = ["Build", "Policy", "Supervisor"]

#: Makes the agent of a task that got its slot.
Build = Callable[[Task], Awaitable[Agent]]
_PROGRESS = frozenset((TurnEnded, ToolStarted, ToolEnded, ToolProgress))


class Supervisor:
    """Owns the tasks of one process. `notice` writes what a parent reads of a child's end."""

    def __init__(
        self,
        *,
        store: Store,
        bus: Bus,
        admission: Admission,
        build: Build,
        policy: Policy,
        clock: Clock,
        owner: str,
        redact: Callable[[bytes], bytes],
        notice: Callable[[Task], str],
        ids: IdSource = random_hex,
        hold: Hold = NO_HOLD,
    ) -> None:
        self.bus = bus
        self.store = store
        self.policy = policy
        self.budgets = SessionBudgets(policy.unpriced)
        self.admission = admission
        self.tasks: dict[str, Task] = {}
        self.clock = clock
        self.owner = owner
        self.notice = notice
        self.redact = redact
        self.hold = hold
        self.closing = False
        self.adopting = 0  # sessions that are being taken up right now
        self.broken: StoreError | None = None
        self._build = build
        self._ids = ids
        self._used: set[str] = set()
        self._live: dict[str, int] = {}  # tasks under a root that have not ended, by the root's id
        self._ending = Ending(self)
        self._delivery = Delivery(self)
        self._group: TaskGroup | None = None
        self._now: Callable[[], float] = anyio.current_time
        self._deadlines = Deadlines(bus.tree)

    def start(self, group: TaskGroup) -> None:
        """Begin: everything runs in `group` from now on."""
        self._group, self._now = group, loop_clock()
        self.admission.start(group)
        self._deadlines.start(group)

    # -- events -----------------------------------------------------------------------------------------------------

    def emit(self, task: Task, event: Event) -> None:
        """Stamp an event and publish it."""
        kind = type(event)
        if kind in _PROGRESS:
            task.last_step = self._now()
            if kind is TurnEnded and task.spec.interactive:
                event = with_unfinished(event, task)  # type: ignore[arg-type]
        self.bus.emit(task.scope, self.clock.now(), event)

    # -- spawn ------------------------------------------------------------------------------------------------------

    async def spawn(
        self,
        requests: Sequence[SpawnRequest],
        *,
        session_id: str,
        parent: Task | None = None,
        key: CallKey | None = None,
        first: Sequence[Op] = (),
    ) -> list[Task]:
        """Create tasks, all or none, and return once their rows are committed; they start when admitted.

        Repeating a spawn with the same `key` returns the tasks it made before. `first` are operations of the same
        transaction (a new session's row).

        Raises:
            AdmissionRefused: depth, live cap, or the subtree is being stopped. Nothing was created.
            UsageError: money is limited and the model's price unknown. Nothing was created.
            StoreError: the rows could not be written. Nothing runs.
        """
        large = await large_specs(requests, self.redact, self.hold)
        known = self.spawned(parent, key) if key is not None and parent is not None else None
        if known is not None:
            return known
        self._admit(requests, session_id, parent)
        group = self._group
        if group is None:
            raise OperatorError("the runtime is not running")
        tasks = [self._create(request, session_id, parent) for request in requests]
        if key is not None and parent is not None:
            parent.spawned[(key.position, key.index)] = tasks
        if len(tasks) > 1 and requests[0].group:
            together = tuple(tasks)
            for task in tasks:
                task.together = together
        now = self.clock.now()
        rows = [
            AddTask(row=task_row(task, request, key, now, self.redact, large.get(id(request))))
            for task, request in zip(tasks, requests, strict=True)
        ]
        ticket = self.store.submit(Unit(ops=(*first, *rows)))
        waiting = self.admission.waiting()
        for offset, (task, request) in enumerate(zip(tasks, requests, strict=True)):
            task.emit(queued_event(task, request, waiting + offset + 1))
            group.start_soon(self._life, task, ticket, name=task.id)
        await ticket.wait()
        return tasks

    def spawned(self, parent: Task, key: CallKey) -> list[Task] | None:
        """The tasks that a call of `parent` made before, None if it made none."""
        return parent.spawned.get((key.position, key.index))

    def _admit(self, requests: Sequence[SpawnRequest], session_id: str, parent: Task | None) -> None:
        if self.broken is not None:
            raise AdmissionRefused(f"nothing can be started: {self.broken}")
        if self.closing:
            raise AdmissionRefused("nothing can be started: the program is ending")
        above = parent.budget if parent is not None else None
        self.budgets.admit([request.spec for request in requests], session_id, above)
        if parent is None:
            return
        ancestor: Task | None = parent
        while ancestor is not None:
            if ancestor.closed or ancestor.ending or ancestor.ended:
                raise AdmissionRefused(f"nothing can be started under {ancestor.id}: it is being stopped")
            ancestor = ancestor.parent
        detached = all(request.spec.detached for request in requests)
        if not detached and parent.scope.depth >= self.policy.max_spawn_depth:
            raise AdmissionRefused(
                f"the depth limit is reached: a task at depth {parent.scope.depth} may not start children "
                f"(delegation.max_spawn_depth is {self.policy.max_spawn_depth}). Do the work yourself."
            )
        live = self._live.get(parent.scope.root_id, 0)
        room = self.policy.max_live - live
        if len(requests) > room:
            raise AdmissionRefused(
                f"{len(requests)} tasks were asked for and {max(0, room)} more may live in this session "
                f"({live} of {self.policy.max_live} do, delegation.max_live_children). Ask for fewer, or wait for some."
            )

    def new_id(self, kind: TaskKind) -> str:
        """An id that no other task of this process has or will get."""
        new_id = next(found for found in iter(lambda: task_id(kind, self._ids), "") if found not in self._used)
        self._used.add(new_id)
        return new_id

    def _create(self, request: SpawnRequest, session_id: str, parent: Task | None) -> Task:
        spec = request.spec
        new_id = request.task_id or self.new_id(spec.kind)
        label = spec.label or plain_text(spec.goal[:1])[:40]
        scope = TaskScope(
            task_id=new_id,
            session_id=session_id,
            root_id=parent.scope.root_id if parent is not None else new_id,
            parent_id=parent.id if parent is not None else None,
            kind=spec.kind,
            role=spec.role,
            depth=0 if parent is None or spec.detached else parent.scope.depth + 1,
            workspace=spec.workspace,
            path=(*(parent.scope.path if parent is not None else ()), label),
        )
        budget = self.budgets.new(new_id, spec, session_id, parent.budget if parent is not None else None)
        task = Task(scope, spec, parent=parent, budget=budget, owner=self.owner, emit=self.emit)
        self.register(task)
        return task

    def register(self, task: Task, key: tuple[int, int] | None = None) -> None:
        """Take a task into the tree; `key` (position, index) names the parent's call that made a restored one."""
        self._used.add(task.id)
        self.tasks[task.id] = task
        parent = task.parent
        if parent is not None:
            parent.children.append(task)
            if key is not None:
                parent.spawned.setdefault(key, []).append(task)
            if not task.ended:
                root = task.scope.root_id
                self._live[root] = self._live.get(root, 0) + 1

    def reopen(self, task: Task, spec: TaskSpec, more: Sequence[Op]) -> Ticket:
        """Take back the end of a task, to go on as `spec` says; `more` is written with it. `resume` then runs it.

        Raises:
            AdmissionRefused, UsageError: as `spawn`. Nothing was changed.
        """
        self._admit([SpawnRequest(spec=spec)], task.scope.session_id, task.parent)
        self._delivery.withdraw(task)
        if task.parent is not None:
            self._live[task.scope.root_id] = self._live.get(task.scope.root_id, 0) + 1
        return self._ending.take_back(task, spec, more)

    def resume(self, task: Task, row: Pending = DONE) -> None:
        """Run a registered task that was restored, once `row` stands: it enters the loop with the history it has."""
        if self._group is None:
            raise OperatorError("the runtime is not running")
        self._group.start_soon(self._life, task, row, name=task.id)

    # -- life -------------------------------------------------------------------------------------------------------

    async def _life(self, task: Task, row: Pending) -> None:
        """Run one task from its row to its end. Nothing that fails in it reaches the group."""
        outcome: Outcome | None = None
        failure: Exception | None = None
        try:
            with task.cancel_scope:
                try:
                    await row.wait()
                    await anyio.lowlevel.checkpoint_if_cancelled()  # stopped while it was suspended: it never runs
                    await self.admission.acquire(task)
                    self._begin(task)
                    agent = await self._build(task)
                    outcome = await agent.run()
                    if self.policy.examine is not None:
                        await self.policy.examine(task, outcome)
                except Exception as error:  # noqa: BLE001  a task's failure is its result, never its siblings'
                    failure = first_of(error)
            task.ending = True
            if isinstance(failure, OwnershipLost):
                raise failure
            if task.stop in ("shutdown", "broken") or self.broken is not None:
                return  # no end is recorded: the disk is behind, or the task goes on in another process
            with anyio.CancelScope(shield=True):
                await self._ending.end(task, outcome, failure)
        except OwnershipLost:
            task.stop_text = "another process took the task up"
            for other in self.tasks.values():  # a session changes hands as a whole: none may wait for another's end
                if other.scope.session_id == task.scope.session_id:
                    other.halt("shutdown", task.stop_text)
        except StoreError as error:
            self.break_off(error)
        finally:
            task.ending = True
            self.admission.release(task)
            await self._ending.clean(task)
            task.done.set()
            task.rested.set()

    def _begin(self, task: Task) -> None:
        now = anyio.current_time()
        task.state = "running"
        task.started_at, task.last_step = now - task.ran, now
        self.store.submit(
            Unit(
                ops=(
                    SetTaskState(
                        task_id=task.id, state="running", started_at=self.clock.now() - task.ran, attempt=task.attempt
                    ),
                ),
                fences=(Fence(task_id=task.id, owner=task.owner, epoch=task.epoch),),
            )
        )
        task.emit(TaskStarted(attempt=task.attempt, model=task.spec.model.name))
        task.started.set()
        self.admission.awaited(task)
        self._deadlines.watch(task)

    async def rest(self, task: Task, outcome: Outcome) -> bool:
        """The model has nothing more to do. True: look at the inbox again; False: the task may end.

        An interactive task waits for the next input; any other waits for its living children, its slot lent.
        """
        inbox = task.inbox
        if task.spec.interactive:
            task.rest(outcome)
            self.admission.pace.let_up(task.id)
            try:
                return await self._next_input(task)
            finally:
                task.resting = False
                self.admission.awaited(task)
        if inbox.pending:
            return True
        if not task.living_children() and not awaits_process(task):
            return False
        self.admission.lend(task)
        try:
            while not inbox.pending and (task.living_children() or awaits_process(task)):
                await inbox.changed()
        finally:
            await self.admission.take_back(task)
        return True

    async def _next_input(self, task: Task) -> bool:
        """Wait for something to read; False when the conversation is closed."""
        inbox = task.inbox
        while not inbox.closed:
            if inbox.follow_ups or inbox.steers:
                return True
            if (inbox.ends or inbox.remarks) and not task.hushed:
                await self._let_type(task)
                return True
            await inbox.changed()
        return False

    async def _let_type(self, task: Task) -> None:
        """A completion takes a turn when nobody types, or after two seconds."""
        with anyio.move_on_after(2.0):
            while task.composing and not task.inbox.follow_ups:
                await task.inbox.changed()

    def tell(self, child: Task) -> None:
        """Let whoever has to hear of a child's end hear of it."""
        self._delivery.tell(child)

    def listener(self, child: Task) -> Task | None:
        """The nearest living ancestor, who hears of a child's end."""
        return self._delivery.listener(child)

    def consumed(self, child_id: str) -> bool:
        """Mark a child's end as told; False when it was, or is not known here."""
        return self._delivery.consumed(child_id)

    def left(self, task: Task) -> None:
        """A task has ended: it no longer counts as live."""
        if task.parent is not None:
            root = task.scope.root_id
            self._live[root] = self._live.get(root, 1) - 1
            task.parent.inbox.wake()

    def forget(self, task: Task) -> None:
        """Drop an ended tree from memory (a finished batch row); its rows stay in the store."""
        for child in task.children:
            self.forget(child)
        self.tasks.pop(task.id, None)
        if task.parent is None:
            self._live.pop(task.id, None)
            self.bus.tree.forget(task.id)
            self.budgets.forget(task.scope.session_id)

    # -- the end of everything --------------------------------------------------------------------------------------

    def break_off(self, error: StoreError) -> None:
        """The journal cannot be written: stop everything, record nothing more. Restarting recovers."""
        if self.broken is not None:
            return
        self.broken = error
        for task in list(self.tasks.values()):
            task.halt("broken", str(error))

    async def shutdown(self, patience: float = 0.0) -> None:
        """Stop every task where it stands, without an end: it can be resumed. Commands get `patience` seconds."""
        self.closing = True
        await suspend(list(self.tasks.values()), "the program is ending", self._ending.suspend, patience)

    async def let_go(self, session_id: str, reason: str, patience: float | None = None) -> None:
        """Stop a session's tasks where they stand, without an end, and forget them: another process may go on.
        Commands that run get `patience` seconds to end; None: what `policy.handover_wait` gives."""
        tasks = [task for task in self.tasks.values() if task.scope.session_id == session_id]
        wait = self.policy.handover_wait if patience is None else patience
        await suspend(tasks, reason, self._ending.suspend, wait)
        for root in [task for task in tasks if task.parent is None]:
            self.forget(root)
