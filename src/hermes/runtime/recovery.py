"""Taking a session up again in this process: after a crash, a closed terminal, or on purpose.

A session belongs to a process as long as that process holds its lock; a held lock is never questioned, however old.
Once it is gone, the whole session is adopted in one step, so that a tree is never split. Then every task is put
together from its rows before any of them runs, commands that the lost process left behind are ended, and each
unfinished task enters the ordinary loop with the history it has. Looking adopts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import anyio
import anyio.to_thread
import msgspec

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.codec import decode_entry, encode_json
from hermes.core.errors import OperatorError, OwnershipLost, UsageError
from hermes.core.events import ControlDelivered, ControlMissed, Envelope, TaskAdopted
from hermes.core.messages import Assistant, Content, ToolResult, Usage, opening
from hermes.core.result import ENDED
from hermes.core.scope import CallKey, TaskScope
from hermes.core.views import TreeView
from hermes.environments.process import end_leftovers
from hermes.runtime.carrying import carried, spoken
from hermes.runtime.control import Control
from hermes.runtime.finding import find_session
from hermes.runtime.outside import apply_message
from hermes.runtime.restoring import load_histories
from hermes.runtime.rows import ended_event, fold_events, queued_event, stored_result, stored_spec
from hermes.runtime.spec import SpawnRequest, TaskSpec
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task
from hermes.store.ops import AdoptTasks, CallRow, Op, ReopenTask, SetTaskSpec, Store, TaskRow, TouchSession, Unit

__all__ = ["CutOff", "Recovery", "Revise", "SessionReport"]

#: What a specification is to be from now on.
Revise = Callable[[TaskSpec], TaskSpec]


def _as_it_is(spec: TaskSpec) -> TaskSpec:
    return spec


class CutOff(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished task as the journal has it. `unknown` are calls whose effect nobody knows."""

    task_id: str
    label: str
    state: str
    steps: int
    unknown: tuple[str, ...] = ()


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a session looks like before it is taken up. `ended` are (id, label, status) of ends nobody was told of."""

    session_id: str
    title: str
    main: TaskRow | None
    owner_alive: bool
    owner: str
    ended: tuple[tuple[str, str, str], ...] = ()
    cut_off: tuple[CutOff, ...] = ()
    usage: Usage = Usage()


class Recovery:
    """Looks at and adopts sessions. `is_gone(owner)` says whether a process is proven to have ended."""

    def __init__(
        self,
        supervisor: Supervisor,
        control: Control,
        *,
        is_gone: Callable[[str], bool],
        hold: Hold = NO_HOLD,
    ) -> None:
        self._supervisor = supervisor
        self._control = control
        self._store: Store = supervisor.store
        self._is_gone = is_gone
        self._hold = hold

    # -- looking ----------------------------------------------------------------------------------------------------

    async def find(self, wanted: str) -> str:
        """The id of a session: `latest`, an id, a unique prefix, or a title.

        Raises:
            UsageError: there is none, or several; the text names the nearest.
        """
        return await find_session(self._store, wanted)

    async def look(self, session_id: str) -> SessionReport:
        """What there is to take up. Adopts nothing, changes nothing."""
        session = await self._store.session(session_id)
        rows = await self._store.tasks(session_id)
        main = next((row for row in rows if row.parent_id is None and row.kind in ("main", "card")), None)
        alive = await self._living_owner(row for row in rows if row.ended_at is None)
        cut_off = []
        for row in rows:
            if row.ended_at is None:
                cut_off.append(await self._cut_off(row))
        pending = await self._store.deliveries(main.task_id) if main is not None else []
        told = {delivery.child_id for delivery in pending}
        ended = [(row.task_id, _label(row), row.state) for row in rows if row.task_id in told]
        tree = TreeView()
        await fold_events(self._store, session_id, rows, tree)
        usage = sum((view.usage for view in tree.tasks.values()), Usage())
        return SessionReport(
            session_id=session_id,
            title=session.title if session is not None else "",
            main=main,
            owner_alive=bool(alive),
            owner=alive,
            ended=tuple(ended),
            cut_off=tuple(cut_off),
            usage=usage,
        )

    async def _living_owner(self, rows: Iterable[TaskRow]) -> str:
        """The owner of one of these tasks, if its process lives and is not this one."""
        for owner in sorted({row.owner for row in rows if row.owner != self._supervisor.owner}):
            with held(self._hold):
                if not await anyio.to_thread.run_sync(self._is_gone, owner):
                    return owner
        return ""

    async def _cut_off(self, row: TaskRow) -> CutOff:
        entries = await self._store.entries(row.task_id)
        steps, unknown = 0, []
        for position, body in entries:
            if isinstance(decode_entry(body), Assistant):
                steps += 1
                last = position
        if steps:
            answered = {p for p, body in entries if p > last and isinstance(decode_entry(body), ToolResult)}
            if not answered:
                calls = await self._store.calls(row.task_id, last)
                unknown = [call.name for call in calls if call.state == "started"]
        return CutOff(task_id=row.task_id, label=_label(row), state=row.state, steps=steps, unknown=tuple(unknown))

    # -- adopting ---------------------------------------------------------------------------------------------------

    async def adopt(
        self,
        session_id: str,
        *,
        interactive: bool | None = None,
        say: Content | str = "",
        children: bool = True,
        revise: Revise = _as_it_is,
    ) -> Task:
        """Take a session up: every unfinished task goes on; returns the conversation, or the one-shot run.

        A conversation that had ended goes on with its history. `interactive` makes of a one-shot run a conversation and
        the other way round; `say` is the next input. `revise` changes what it is, its model or its limits: for good,
        and not what its children are. What was asked of its tasks meanwhile is done first. Without `children` the
        unfinished tasks under it are stopped with what they have.

        Raises:
            UsageError: there is no such session, or money is limited and the price of its model unknown.
            OperatorError: another process has it open, or took it up first, or this one has it open.
        """
        self._clear(session_id)
        self._supervisor.adopting += 1
        try:
            return await self._adopt(session_id, _revision(interactive, revise), say, children)
        finally:
            self._supervisor.adopting -= 1

    def _clear(self, session_id: str) -> None:
        """Forget what ended of a session in this process: it is put together again from its rows."""
        here = [task for task in self._supervisor.tasks.values() if task.scope.session_id == session_id]
        if not all(task.done.is_set() for task in here):
            raise OperatorError(f"session {session_id} is open in this process already; use it, or end it first")
        for task in here:
            if task.parent is None:
                self._supervisor.forget(task)

    async def _adopt(self, session_id: str, revise: Revise, say: Content | str, children: bool) -> Task:
        rows = await self._store.tasks(session_id)
        main = next((row for row in rows if row.parent_id is None), None)
        if main is None:
            raise UsageError(f"session {session_id} has no task to go on with")
        owner = await self._living_owner(rows)
        if owner:
            raise OperatorError(
                f"session {session_id} is open in another process (owner {owner}); use that one, or end it first"
            )
        stored = stored_spec(main)
        spec = revise(stored)
        self._supervisor.budgets.admit([spec], "", None)
        await self._take(session_id, rows, main, spec if spec != stored else None)
        rows = await self._store.tasks(session_id)
        await self._replay(session_id, rows)
        tasks: dict[str, Task] = {}
        for row in rows:  # parents stand before their children: rows come in order of creation
            again = row.task_id == main.task_id and main.ended_at is not None
            tasks[row.task_id] = self._put_together(row, tasks, counted=again)
        tasks[main.task_id].renews = spec.model != stored.model
        _group(rows, tasks)
        for row in rows:
            await self._catch_up(tasks[row.task_id])
        unfinished = [tasks[row.task_id] for row in rows if row.ended_at is None]
        await self._restore_histories(unfinished)
        await self._tell_ends(rows, tasks)
        for message in await self._store.queued(self._supervisor.owner):
            if message.task_id in tasks:
                await apply_message(self._supervisor, self._control, tasks[message.task_id], message, taken_up=True)
        if not children:
            under = [task for task in unfinished if task.parent is not None]
            await self._control.cancel(under, "the conversation was reopened without it")
        if say:
            await self._control.follow_up(tasks[main.task_id], say)
        for task in unfinished:
            task.emit(TaskAdopted(epoch=task.epoch))
            self._supervisor.resume(task)
        return tasks[main.task_id]

    async def _tell_ends(self, rows: Sequence[TaskRow], tasks: Mapping[str, Task]) -> None:
        """Tell the ends that nobody was told of yet."""
        ended = []
        for parent in dict.fromkeys(row.parent_id for row in rows if row.parent_id is not None):
            ended += [
                tasks[delivery.child_id]
                for delivery in await self._store.deliveries(parent)
                if delivery.child_id in tasks and tasks[delivery.child_id].ended
            ]
        for child in ended:
            child.delivery = "pending"
        for child in ended:
            self._supervisor.tell(child)

    async def _catch_up(self, task: Task) -> None:
        """Say the end of a task that stands, and of which its process had no time to say so."""
        view = self._supervisor.bus.tree.tasks[task.id]
        if task.result is None or view.ended:
            return
        for message in await self._store.inbox(task.id):
            if view.receipts.get(message.receipt, {}).get("state") != "queued":
                continue
            if message.state == "missed":
                words = spoken(carried(message.text))
                task.emit(ControlMissed(receipt=message.receipt, verb=message.verb, text=words))
            elif message.state == "delivered":
                at = message.position
                task.emit(ControlDelivered(receipt=message.receipt, verb=message.verb, position=at))
        task.emit(ended_event(task.result))

    async def _take(self, session_id: str, rows: Sequence[TaskRow], main: TaskRow, spec: TaskSpec | None) -> None:
        """Become the owner of every task; one process wins. `spec` is what the first one is from now on."""
        me = self._supervisor.owner
        ops = [
            AdoptTasks(session_id=session_id, from_owner=owner, to_owner=me)
            for owner in sorted({row.owner for row in rows if row.owner != me})
        ]
        reopen: list[Op] = [ReopenTask(task_id=main.task_id)] if main.ended_at is not None else []
        touch = TouchSession(session_id=session_id, updated_at=self._supervisor.clock.now())
        if spec is not None:
            reopen.append(SetTaskSpec(task_id=main.task_id, spec=self._supervisor.redact(encode_json(spec))))
            touch = msgspec.structs.replace(touch, model=spec.model.name)
        try:
            await self._store.submit(Unit(ops=(*ops, *reopen, touch))).wait()
        except OwnershipLost as error:
            raise OperatorError(f"session {session_id} was taken up by another process a moment ago") from error

    async def _replay(self, session_id: str, rows: Sequence[TaskRow]) -> None:
        """Fold the kept events into the tree view, so that it shows the session as it was; number on from there."""
        bus = self._supervisor.bus
        await fold_events(self._store, session_id, rows, bus.tree)
        bus.number_from(await self._store.last_seq(session_id))

    def _put_together(self, row: TaskRow, tasks: dict[str, Task], *, counted: bool) -> Task:
        """The living object of a row, registered but not running. `counted`: its new attempt is in the row already."""
        supervisor = self._supervisor
        spec = stored_spec(row)
        parent = tasks.get(row.parent_id) if row.parent_id is not None else None
        scope = TaskScope(
            task_id=row.task_id,
            session_id=row.session_id,
            root_id=row.root_id,
            parent_id=row.parent_id,
            kind=spec.kind,
            role=spec.role,
            depth=row.depth,
            workspace=spec.workspace,
            path=(*(parent.scope.path if parent is not None else ()), _label(row, spec)),
        )
        above = parent.budget if parent is not None else None
        budget = supervisor.budgets.new(row.task_id, spec, row.session_id, above)
        task = Task(scope, spec, parent=parent, budget=budget, owner=supervisor.owner, emit=supervisor.emit)
        task.epoch = row.epoch
        task.attempt = row.attempt + (0 if counted or row.state in ENDED else 1)
        self._charge(task)
        if row.ended_at is not None:
            task.result = stored_result(row)
            task.state = row.state
            task.delivery = "consumed"
            task.done.set()
        key: tuple[int, int] | None = None
        if row.call_key is not None:
            position, _, index = row.call_key.partition(":")
            key = (int(position), int(index))
        supervisor.register(task, key)
        return task

    def _charge(self, task: Task) -> None:
        """Charge what the task has used by its events; one that left none yet is announced to the view alone."""
        tree = self._supervisor.bus.tree
        view = tree.tasks.get(task.id)
        if view is None:
            tree.apply(
                Envelope(
                    seq=0,
                    at=self._supervisor.clock.now(),
                    session_id=task.scope.session_id,
                    task_id=task.id,
                    parent_id=task.scope.parent_id,
                    event=queued_event(task, SpawnRequest(spec=task.spec), 0),
                )
            )
            return
        task.ran = 0.0 if view.ended else view.lived
        task.budget.recall(view.usage, requests=view.api_calls, calls=view.tool_count)

    async def _restore_histories(self, tasks: Sequence[Task]) -> None:
        """Load the last segments of tasks and their open calls; end what commands they left."""
        loaded = await load_histories(self._store, [(task.id, self._control.journal(task)) for task in tasks])
        for task, restored in zip(tasks, loaded, strict=True):
            if restored is not None:  # else it never came to its first entry: it begins as a new one
                await self._end_commands(task, restored.began)
                task.history, task.budget.turns = restored.history, restored.turns

    async def _end_commands(self, task: Task, began: Sequence[CallRow]) -> None:
        """End what a lost process left of started calls, before anything is said about their effect."""
        for call in began:
            key = str(CallKey(task.id, call.position, call.index))
            with held(self._hold):
                await anyio.to_thread.run_sync(end_leftovers, key, call.pgid, call.process_started)


def _revision(interactive: bool | None, revise: Revise) -> Revise:
    if interactive is None:
        return revise
    return lambda spec: msgspec.structs.replace(revise(spec), interactive=interactive, unattended=not interactive)


def _group(rows: Sequence[TaskRow], tasks: Mapping[str, Task]) -> None:
    """Let tasks know those that the same call spawned."""
    groups: dict[tuple[str | None, str], list[Task]] = {}
    for row in rows:
        if row.group_id:
            groups.setdefault((row.parent_id, row.group_id), []).append(tasks[row.task_id])
    for group in groups.values():
        for task in group if len(group) > 1 else ():
            task.together = tuple(group)


def _label(row: TaskRow, spec: TaskSpec | None = None) -> str:
    return (spec or stored_spec(row)).label or opening(row.goal, 40) or row.kind
