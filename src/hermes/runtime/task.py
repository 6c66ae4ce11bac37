"""Task: the living object behind a task id, owned by the supervisor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import anyio
import msgspec

from hermes.core.agent import Outcome
from hermes.core.environment import Environment
from hermes.core.events import Event
from hermes.core.history import History
from hermes.core.inbox import Inbox
from hermes.core.limits import Budget
from hermes.core.model import Model, ToolSpec
from hermes.core.result import UNJUDGED, TaskResult
from hermes.core.scope import TaskScope
from hermes.runtime.latch import Latch
from hermes.runtime.spec import TaskSpec

__all__ = ["StopReason", "Task"]

StopReason = Literal["cancelled", "clock", "inactivity", "shutdown", "broken"]


class Task:
    """One task of this process.

    `slot` says that it holds a running slot, `lent` counts the calls during which it gave it away. `collectors` counts
    who waits for its end right now; while somebody does, no notice is made. `delivery` is the state of its end:
    none (not ended, or nobody to tell), pending, consumed.
    """

    __slots__ = (
        "__weakref__",
        "_emit",
        "attempt",
        "budget",
        "cancel_scope",
        "cancels",
        "children",
        "closed",
        "collectors",
        "composing",
        "counted",
        "delivery",
        "diagnosis",
        "done",
        "ending",
        "epoch",
        "history",
        "hushed",
        "id",
        "inbox",
        "last_step",
        "lent",
        "make_environment",
        "model",
        "offered",
        "opened",
        "outcome",
        "owner",
        "parent",
        "ran",
        "renews",
        "rested",
        "rested_at",
        "resting",
        "result",
        "scope",
        "slot",
        "spawned",
        "spec",
        "started",
        "started_at",
        "state",
        "stop",
        "stop_text",
        "together",
        "unsafe",
        "verdict",
        "waiting",
    )

    def __init__(
        self,
        scope: TaskScope,
        spec: TaskSpec,
        *,
        parent: Task | None,
        budget: Budget,
        owner: str,
        emit: Callable[[Task, Event], None],
    ) -> None:
        self.id = scope.task_id
        self.scope = scope
        self.spec = spec
        self.parent = parent
        self.budget = budget
        self.owner = owner
        self.epoch = 1
        self.attempt = 1
        self.children: list[Task] = []
        self.together: tuple[Task, ...] = ()  # it and those that the same call spawned
        self.spawned: dict[tuple[int, int], list[Task]] = {}  # children by the call that made them: position, index
        self.state = "queued"
        self.inbox = Inbox()
        self.history: History | None = None
        self.opened: Environment | None = None  # where its commands run, once something needs it
        self.make_environment: Callable[[Task], Environment] | None = None
        self.model: Model | None = None
        self.offered: tuple[ToolSpec, ...] = ()
        self.unsafe: frozenset[str] = frozenset()  # names of its tools whose calls must not be made twice
        self.renews = False  # it goes on with another model: its history gets a segment of its own for that
        self.cancel_scope = anyio.CancelScope()
        self.stop: StopReason | None = None
        self.stop_text = ""
        self.diagnosis = ""  # what it was doing when time ran out before its model answered once
        self.ending = False  # its end is decided and on its way to the disk
        self.closed = False  # no more children may be born under it
        self.cancels: list[str] = []  # receipts of what asked it to stop; its end answers them
        self.done = Latch()
        self.started = Latch()
        self.result: TaskResult | None = None
        self.verdict = UNJUDGED  # of its answer so far
        self.slot = False
        self.counted = False
        self.lent = 0
        self.waiting = False
        self.collectors = 0
        self.delivery: Literal["none", "pending", "consumed"] = "none"
        self.ran = 0.0  # seconds it ran in processes that are gone; limits go on from there
        self.started_at: float | None = None  # of the loop's clock, as if it had run here from the beginning
        self.last_step = 0.0  # of the loop's clock
        self.resting = False  # between inputs
        self.rested = Latch()  # replaced each time it rests
        self.rested_at = 0  # length of its history when it last came to rest
        self.outcome: Outcome | None = None  # of the last turn of a conversation
        self.composing = False  # a person is typing: notices wait a little
        self.hushed = False  # everything was stopped: ends of tasks wait for the person's next line
        self._emit = emit

    @property
    def environment(self) -> Environment | None:
        """Where its commands run, made now if nothing needed it before; None before it is built and after its end."""
        make, self.make_environment = self.make_environment, None
        if make is not None:
            self.opened = make(self)
        return self.opened

    @environment.setter
    def environment(self, environment: Environment | None) -> None:
        self.opened, self.make_environment = environment, None

    @property
    def ended(self) -> bool:
        """Whether the task has its result."""
        return self.result is not None

    def reopen(self, spec: TaskSpec) -> None:
        """Take the end back: the task is as one that is queued, with another attempt and the specification it gets."""
        self.spec = spec
        self.scope = msgspec.structs.replace(self.scope, role=spec.role)
        self.attempt += 1
        self.state, self.result, self.verdict, self.outcome = "queued", None, UNJUDGED, None
        self.inbox, self.cancel_scope, self.cancels = Inbox(), anyio.CancelScope(), []
        self.stop, self.stop_text, self.diagnosis = None, "", ""
        self.ending = self.closed = self.resting = self.hushed = False
        self.done, self.started = Latch(), Latch()
        self.delivery, self.started_at, self.rested_at, self.ran = "none", None, 0, 0.0

    def rest(self, outcome: Outcome) -> None:
        """The conversation rests: keep how its last turn went, and wake whoever waits for that."""
        self.resting, self.outcome = True, outcome
        self.rested_at = self.history.next_position if self.history is not None else 0
        rested, self.rested = self.rested, Latch()
        rested.set()

    def emit(self, event: Event) -> None:
        """Publish an event of this task."""
        self._emit(self, event)

    def living_children(self) -> list[Task]:
        """Children this task has to wait for."""
        return [child for child in self.children if not child.ended and not child.spec.detached]

    def subtree(self) -> list[Task]:
        """The task and everything under it, leaves first."""
        return [task for child in self.children for task in child.subtree()] + [self]

    def halt(self, reason: StopReason, text: str) -> bool:
        """End the task where it stands; False when it has ended or is ending. The first reason counts."""
        if self.ended or self.ending or self.stop is not None:
            return False
        self.stop, self.stop_text = reason, text
        self.cancel_scope.cancel()
        return True
