"""What recording and replaying have in common: names of tasks and calls, and what of a request is compared.

A name says where a task stands and nothing of chance: two runs of the same work give the same names whatever their ids,
their order in time and the folders in which they run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from hermes.core.events import EntryAdded, Envelope, TaskEnded, TaskQueued
from hermes.core.ids import PREFIX
from hermes.core.messages import Assistant, Entry, Image, Interrupted, Notice, Steer, Summary, ToolResult, User, opening
from hermes.core.model import Model, ModelRequest
from hermes.core.scope import CallKey
from hermes.core.tools import CallContext, Tool, ToolOutput
from hermes.runtime.cassette import RequestShape
from hermes.runtime.task import Task

__all__ = ["HEARD", "IDS", "Caller", "Names", "Shapes", "Tape", "TapeShare", "differences", "root_of"]

#: Ids of tasks and groups of them, wherever they stand in a text.
IDS = re.compile(rf"\b(?:{'|'.join((*PREFIX.values(), 'deleg_'))})[0-9a-f]{{8}}\b")
#: Letters of a text that stand beside its digest, for people.
EXCERPT = 50


#: What a tape hears of.
HEARD = (TaskQueued, TaskEnded, EntryAdded)
#: Makes the calls of a task.
Caller = Callable[[Tool, Any, CallContext], Awaitable[ToolOutput]]


class TapeShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the tasks of one tree got of a cassette: `replies` by task and turn, `calls` by task, round and index; and
    the first thing that went otherwise in each task."""

    replies: tuple[tuple[str, int], ...] = ()
    calls: tuple[tuple[str, int, int], ...] = ()
    wrong: dict[str, str] = {}


class Tape(Protocol):
    """Stands between the tasks of a process and their models and tools."""

    @property
    def names(self) -> Names:
        """What the tasks are called."""

    def settle(self) -> None:
        """See that what was kept so far outlives this process. Blocks. Raises OperatorError: the disk takes no more."""

    def share(self, task: Task) -> TapeShare | None:
        """What the tree of a task without a parent got so far; None where nothing is replayed."""

    def model(self, task: Task, model: Model) -> Model:
        """The model of a task in place of `model`. Raises ModelError for a task that the tape does not know."""

    def guard(self, task: Task, guard: Caller) -> Caller:
        """What makes the calls of a task in place of `guard`."""

    def hear(self, envelope: Envelope) -> None:
        """Take an event of one of the types in `HEARD`."""

    def problems(self) -> Sequence[str]:
        """What went otherwise than it has to, a sentence each."""

    def summary(self) -> str:
        """One line for a person."""


class Names:
    """Names of tasks and of their calls."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._named: dict[str, str] = {}
        self._known: set[str] = set()
        self._taken: dict[str, int] = {}
        self._rounds: dict[str, dict[int, int]] = {}
        self._places: dict[str, int] = {}

    def place(self, session_id: str, number: int) -> None:
        """Say before it starts that the first task of a session is number `number`, from 1, of those of its name: where
        equal work is shared out among processes, or starts in any order, counting here would mix it up."""
        self._places[session_id] = number

    def task(self, task_id: str) -> Task | None:
        """A task of this process."""
        return self._tasks.get(task_id)

    def of(self, task: Task) -> str:
        """The name of a task. One that goes on after its end has another name for what follows."""
        name = self._named.get(task.id)
        if name is None:
            self._named[task.id] = name = self._new(task)
            self._known.add(name)
        return name if task.attempt == 1 else f"{name}~{task.attempt}"

    def known(self, name: str) -> bool:
        """Whether a task of this name was met."""
        return name in self._known

    def _new(self, task: Task) -> str:
        parent = task.parent
        if parent is None:
            number = self._places.pop(task.scope.session_id, 0)
            return _with_number(_root_name(task), number) if number else self._numbered(_root_name(task))
        above = self.of(parent)
        for (position, index), children in parent.spawned.items():
            if task in children:
                place = f".{children.index(task)}" if len(children) > 1 else ""
                return f"{above}/{self.round(parent, position)}.{index}{place}"
        return self._numbered(f"{above}/{_root_name(task)}")

    def _numbered(self, name: str) -> str:
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return _with_number(name, count)

    def round(self, task: Task, position: int) -> int:
        """Which of the replies with calls stands at a position of a task's history, from 1. Positions themselves depend
        on when notices and corrections arrived."""
        rounds = self._rounds.setdefault(self.of(task), {})
        return rounds.setdefault(position, len(rounds) + 1)

    def call(self, task: Task, key: CallKey) -> tuple[str, int, int]:
        """The name of a call: task, round, index."""
        return self.of(task), self.round(task, key.position), key.index

    def shown(self, task_id: str) -> str:
        """The name of a task by its id; its id where it is not of this process."""
        task = self._tasks.get(task_id)
        return self.of(task) if task is not None else "?"


def _with_number(name: str, number: int) -> str:
    return name if number == 1 else f"{name}.{number}"


def root_of(name: str) -> str:
    """The name of the task without a parent in whose tree a task of this name stands."""
    return name.partition("/")[0].partition("~")[0]


def _root_name(task: Task) -> str:
    goal = "".join(f"[{part.media_type}]" if isinstance(part, Image) else part.text for part in task.spec.goal)
    return f"{task.spec.kind}:{_digest(goal)}" if goal else task.spec.kind


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


class Shapes:
    """The requests of one task as what is compared of them."""

    def __init__(self, task: Task, names: Names) -> None:
        self._task = task
        self._names = names
        self._system: str | None = None
        self._tools: tuple[str, ...] | None = None
        self._messages: tuple[str, ...] = ()

    def of(self, model: str, request: ModelRequest) -> RequestShape:
        """The shape of the next request of the task, which goes to `model`."""
        messages = tuple([self._message(entry, request.steer_nonce) for entry in request.entries])
        kept = 0
        for old, new in zip(self._messages, messages, strict=False):
            if _plain(old) != _plain(new):
                break
            kept += 1
        system = _digest(self._neutral(request.system, request.steer_nonce))
        tools = tuple([tool.name for tool in request.tools])
        shape = RequestShape(
            model=model,
            system=None if system == self._system else system,
            tools=None if tools == self._tools else tools,
            effort=request.reasoning_effort or "",
            kept=kept,
            new=messages[kept:],
        )
        self._system, self._tools, self._messages = system, tools, messages
        return shape

    def _neutral(self, text: str, nonce: str) -> str:
        """A text without what is new in every run: ids, the marker of corrections, the folder."""
        if nonce:
            text = text.replace(nonce, "")
        workspace = self._task.scope.workspace
        if len(workspace) > 1:
            text = text.replace(workspace, "<workspace>")
        return IDS.sub("<id>", text)

    def _message(self, entry: Entry, nonce: str) -> str:
        if isinstance(entry, User):
            pictures = sum(isinstance(part, Image) for part in entry.content)
            text = "".join(part.text for part in entry.content if not isinstance(part, Image))
            return self._told(f"user+{pictures}" if pictures else "user", text, nonce)
        if isinstance(entry, Steer):
            return self._told("steer", entry.text, nonce)
        if isinstance(entry, Assistant):
            return " ".join(["assistant", *(call.name for call in entry.calls)])
        if isinstance(entry, ToolResult):
            return f"result {entry.name}"
        if isinstance(entry, Notice):
            return " ".join([f"notice {entry.kind}", *(self._names.shown(task) for task in entry.tasks)])
        if isinstance(entry, Interrupted):
            return "interrupted"
        assert isinstance(entry, Summary)
        return "summary"

    def _told(self, kind: str, text: str, nonce: str) -> str:
        excerpt = opening(text, EXCERPT)
        return f"{kind} {_digest(self._neutral(text, nonce))}: {excerpt}"


def _plain(message: str) -> str:
    """A message without the excerpt, which is for people and may have lost a secret."""
    return message.partition(": ")[0]


def differences(recorded: RequestShape, asked: RequestShape) -> list[str]:
    """What of a request is not as it was recorded, a clause each; empty if it is the same."""
    found = []
    if recorded.model != asked.model:
        found.append(f"the model is {asked.model or 'none'}, not {recorded.model or 'none'}")
    if recorded.effort != asked.effort:
        found.append(f"the reasoning effort is {asked.effort or 'not given'}, not {recorded.effort or 'not given'}")
    if recorded.system != asked.system:
        found.append("the system text is another one")
    if recorded.tools != asked.tools:
        found.append(_tools(recorded.tools, asked.tools))
    if recorded.kept != asked.kept:
        found.append(f"{asked.kept} messages of the request before are kept, not {recorded.kept}")
        return found
    for number, (was, now) in enumerate(zip(recorded.new, asked.new, strict=False), recorded.kept + 1):
        if _plain(was) != _plain(now):
            found.append(f"message {number} is `{now}`, not `{was}`")
            return found
    if len(recorded.new) != len(asked.new):
        found.append(f"there are {asked.kept + len(asked.new)} messages, not {recorded.kept + len(recorded.new)}")
    return found


def _tools(recorded: tuple[str, ...] | None, asked: tuple[str, ...] | None) -> str:
    if recorded is None or asked is None:
        return "the tools have changed" if recorded is None else "the tools have not changed as they did"
    missing = [name for name in recorded if name not in asked]
    more = [name for name in asked if name not in recorded]
    parts = [f"without {', '.join(missing)}"] * bool(missing) + [f"with {', '.join(more)}"] * bool(more)
    return f"the tools are {' and '.join(parts) or 'in another order'}"
