"""The supervisor under any order of spawn, steer, check, collect, cancel, interrupt, failure and loss of its process,
in simulated time.

What has to hold whatever happens: a task ends once; collecting returns; an end is told once, to whoever is left to hear
it, and never lost; a correction is delivered, missed or refused, never forgotten; no more run than may; and with one
slot in all, everything still ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from hermes.core.errors import AdmissionRefused, ModelError, StoreError
from hermes.core.events import EntryAdded, TaskEnded
from hermes.core.limits import Limits
from hermes.core.messages import Assistant, Notice, Text, plain_text
from hermes.core.model import ModelRequest
from hermes.runtime.session import Session
from hermes.runtime.spec import SpawnRequest, TaskSpec
from hermes.runtime.task import Task
from hermes.store.memory import MemoryStore
from hermes.store.ops import EventRow, Store, Ticket, Unit
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import EndlessModel, call, first_user_text, hang, reply

R = TypeVar("R")
TOOLSETS = ("todo", "delegation")
CAPS = st.sampled_from([(1, 1), (2, 1), (3, 2), (8, 4)])
#: What a task does: turns with a tool before its end, seconds a turn, and how it ends.
PLANS = st.builds(
    lambda turns, seconds, end: f"task {turns} {seconds} {end}",
    st.integers(0, 3),
    st.sampled_from([0, 1, 7]),
    st.sampled_from(["answer", "answer", "fail", "hang", "crowd", "chain"]),
)


#: Seconds in which everything ends that does not hang.
QUIET = 400


def hangs(task: Task) -> bool:
    """Whether a task waits for a model that never answers."""
    return task.state == "running" and plain_text(task.spec.goal).endswith("hang")


def play(request: ModelRequest) -> object:
    """The model of every task: it follows the plan in the goal."""
    words = first_user_text(request).split()
    if words[:1] != ["task"]:
        return reply("noted", delay=1)
    turns, seconds, end = int(words[1]), int(words[2]), words[3]
    said = sum(isinstance(entry, Assistant) for entry in request.entries)
    if said < turns:
        return reply(f"turn {said}", calls=[call("todo", todos=[])], delay=seconds)
    if said == turns and end == "crowd":
        return reply(calls=[call("spawn_parallel", tasks=[f"task 1 {seconds} {way}" for way in ("answer", "fail")])])
    if said == turns and end == "chain":
        return reply(calls=[call("delegate_task", goal=f"task 0 {seconds} crowd", role="orchestrator")])
    if end == "fail":
        return ModelError("it broke", reason="server_error")
    return hang() if end == "hang" else reply("report", delay=seconds)


class Refused:
    """What becomes of a write in a process that is gone."""

    done = True

    async def wait(self) -> None:
        raise StoreError("this process is gone")


class Slow:
    """A write that stands, of which its process hears later, or never."""

    done = False

    def __init__(self, inner: Ticket, process: ProcessStore) -> None:
        self._inner = inner
        self._process = process

    async def wait(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.01)
        if self._process.gone:
            raise StoreError("this process is gone")
        await self._inner.wait()


class ProcessStore:
    """The journal as one process sees it: once that is `gone`, nothing it writes arrives."""

    def __init__(self, journal: MemoryStore) -> None:
        self._journal = journal
        self.gone = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def submit(self, unit: Unit) -> Ticket:
        return Refused() if self.gone else Slow(self._journal.submit(unit), self)

    def log(self, row: EventRow) -> None:
        if not self.gone:
            self._journal.log(row)


class SupervisorMachine(RuleBasedStateMachine):
    """One runtime with one conversation, on a loop that turns only inside the rules."""

    workspace: Path

    @initialize(caps=CAPS)
    def open(self, caps: tuple[int, int]) -> None:
        self.caps = caps
        self.clock = VirtualClock()
        self.loop = self.clock.loop()
        self.journal = MemoryStore()
        self.ends: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.collects: list[asyncio.Task[bool]] = []
        self.receipts: list[tuple[str, str]] = []
        self.lives = 0
        self.begin("")

    def begin(self, session: str) -> None:
        """Open a process, with a new conversation or with one to take up."""
        self.lives += 1
        self.stop = asyncio.Event()
        self.process = ProcessStore(self.journal)
        opened: asyncio.Future[tuple[Lab, Session]] = self.loop.create_future()
        self.main = self.loop.create_task(self._live(opened, self.stop, self.process, session))
        self.run(asyncio.wait([self.main, opened], return_when=asyncio.FIRST_COMPLETED))
        self.lab, self.session = opened.result() if opened.done() else self.main.result()

    async def _live(
        self,
        opened: asyncio.Future[tuple[Lab, Session]],
        stop: asyncio.Event,
        process: ProcessStore,
        session: str,
    ) -> Any:
        values = {
            "runtime.max_running": self.caps[0],
            "delegation.max_concurrent_children": self.caps[1],
            "delegation.max_live_children": 30,
            "delegation.max_spawn_depth": 4,
        }
        model = EndlessModel(play)
        shared: Callable[[Store], Store] = lambda _: process  # type: ignore[assignment,return-value]  # noqa: E731
        async with open_lab(
            model, workspace=self.workspace, clock=self.clock, settings=values, wrap_store=shared
        ) as lab:
            lab.runtime.bus.subscribe(lambda envelope: None if process.gone else self._hear(envelope))
            if session:
                main = await lab.assembly.recovery.adopt(session)
                opened.set_result((lab, Session(main, lab.runtime.control)))
            else:
                opened.set_result((lab, await lab.converse()))
            await stop.wait()

    def _hear(self, envelope: Any) -> None:
        event = envelope.event
        if isinstance(event, TaskEnded):
            self.ends[envelope.task_id] += 1
        elif isinstance(event, EntryAdded) and isinstance(event.entry, Notice):
            self.told.update(event.entry.tasks)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        return self.loop.run_until_complete(work)

    @property
    def children(self) -> list[Task]:
        return [task for task in self.lab.runtime.supervisor.tasks.values() if task is not self.session.task]

    def one(self, number: int) -> Task:
        return self.children[number % len(self.children)]

    # No preconditions: which rules are offered must not hang on what a thread did a moment earlier or later.

    # -- rules ------------------------------------------------------------------------------------------------------

    @rule(plans=st.lists(PLANS, min_size=1, max_size=3), under=st.integers(0, 50), limit=st.sampled_from([None, 3.0]))
    def spawn(self, plans: list[str], under: int, limit: float | None) -> None:
        family = [self.session.task, *(task for task in self.children if not task.ended and task.scope.depth < 3)]
        parent = family[under % len(family)]
        spec = TaskSpec(
            kind="async",
            role="orchestrator",
            toolsets=TOOLSETS,
            ceiling=TOOLSETS,
            model=self.session.task.spec.model,
            workspace=str(self.workspace),
            limits=Limits(clock=limit, turns=6),
        )
        requests = [SpawnRequest(spec=_with_goal(spec, plan)) for plan in plans]

        async def work() -> None:
            try:
                await self.lab.runtime.supervisor.spawn(requests, session_id=self.session.id, parent=parent)
            except AdmissionRefused:
                pass  # over the cap, or its parent is just ending: nothing was created

        self.run(work())

    @rule(seconds=st.sampled_from([0.005, 0.01, 0.5, 2.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self.run(anyio.sleep(seconds))

    @rule(number=st.integers(0, 100))
    def steer(self, number: int) -> None:
        if not self.children:
            return
        task = self.one(number)
        receipt = self.run(self.lab.runtime.control.steer(task, "otherwise"))
        assert (receipt is None) == (task.ended or task.ending)
        if receipt is not None:
            self.receipts.append((task.id, receipt.id))

    @rule(number=st.integers(0, 100))
    def check(self, number: int) -> None:
        if not self.children:
            return
        task = self.one(number)

        async def look() -> dict[str, Any]:
            return self.lab.assembly.delegation.verbs.check(task)

        assert self.run(look())["task_id"] == task.id

    @rule(number=st.integers(0, 100), timeout=st.sampled_from([None, 0.0, 5.0]))
    def collect(self, number: int, timeout: float | None) -> None:
        if not self.children:
            return
        work = self.lab.runtime.control.collect([self.one(number)], timeout=timeout)
        self.collects.append(self.loop.create_task(work))

    @rule(number=st.integers(0, 100))
    def cancel(self, number: int) -> None:
        if not self.children:
            return
        self.run(self.lab.runtime.control.cancel([self.one(number)], "not needed any more"))

    @rule()
    def interrupt(self) -> None:
        async def press() -> None:
            self.session.interrupt()

        self.run(press())

    @rule()
    def say(self) -> None:
        self.run(self.session.say("and now?"))

    @rule(seconds=st.sampled_from([0.0, 3.0, 1_000.0]))
    def lose_the_process(self, seconds: float) -> None:
        """Nothing is ended: what was not written is gone, and another process takes the session up."""
        known = {task.id: task.scope.parent_id for task in self.children}
        self.process.gone = True
        for waiting in self.collects:
            waiting.cancel()
        self.main.cancel()
        self.run(asyncio.wait([self.main, *self.collects]))
        self.collects = []
        self.run(anyio.sleep(seconds))
        self.begin(self.session.id)
        assert {task.id: task.scope.parent_id for task in self.children} == known, "a task was lost or made twice"

    # -- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        supervisor = self.lab.runtime.supervisor
        running = [task for task in self.children if task.slot]
        assert supervisor.admission.running == len(running) <= self.caps[0]
        counted = Counter(task.parent.id for task in self.children if task.counted and task.parent is not None)
        assert all(count <= self.caps[1] for count in counted.values())
        assert all(self.ends[task.id] == task.ended for task in self.children)
        assert max(self.told.values(), default=0) <= 1, "an end was told twice"
        tree = self.lab.runtime.bus.tree.tasks
        assert all(tree[task.id].state == task.state for task in self.children)

    def teardown(self) -> None:
        if not hasattr(self, "lab"):
            return
        try:
            self.run(self._finish())
            self.holds()
        finally:
            self.stop.set()
            self.run(asyncio.wait_for(self.main, 100))
            self.loop.close()

    async def _finish(self) -> None:
        """Let everything end that can, stop what hangs, and look at what became of it."""
        await anyio.sleep(QUIET)
        control = self.lab.runtime.control
        stuck = [task for task in self.children if not task.ended]
        assert not stuck or any(hangs(task) for task in stuck), f"nothing hangs, and yet these never ended: {stuck}"
        for _ in range(20):
            await control.cancel([task for task in self.children if hangs(task)], "it hangs")
            await anyio.sleep(QUIET)
            if all(task.ended for task in self.children):
                break
        assert [task.id for task in self.children if not task.ended] == []
        async with asyncio.timeout(100):
            for waiting in self.collects:
                await waiting
        for _ in range(100):
            if not self.session.busy:
                break
            await anyio.sleep(10)
        tree = self.lab.runtime.bus.tree.tasks
        lost = [receipt for task, receipt in self.receipts if tree[task].receipts[receipt]["state"] == "queued"]
        assert lost == [], "corrections were forgotten"
        unheard = [task.id for task in self.children if task.delivery != "consumed"]
        assert unheard == [], "ends were told to nobody"
        assert self.lab.runtime.supervisor.admission.running == 0
        await self.session.close()


def _with_goal(spec: TaskSpec, plan: str) -> TaskSpec:
    return msgspec.structs.replace(spec, goal=(Text(plan),), label=plan)


@pytest.mark.timeout(600)  # ten seconds of work, which a busy machine does in minutes
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_whatever_happens_in_whatever_order(tmp_path: Path) -> None:
    class Bound(SupervisorMachine):
        workspace = tmp_path

    run_state_machine_as_test(
        Bound,
        settings=settings(
            max_examples=60,
            stateful_step_count=25,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
