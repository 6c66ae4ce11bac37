"""Recording: every reply of a model and every result of a tool on its way to a task is kept in a cassette.

It changes nothing of what it sees. Calls of tools that work on the tree of tasks itself are marked: they are made again
when the cassette is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import anyio

from hermes.core.errors import StoreError, ToolError
from hermes.core.events import EntryAdded, Envelope, TaskEnded, TaskQueued
from hermes.core.messages import Notice, plain_text
from hermes.core.model import Model, ModelRequest
from hermes.core.tools import CallContext, Tool, ToolOutput
from hermes.providers.recorded import KeptReply, Recorded
from hermes.runtime.cassette import CallLine, CassetteFile, EndLine, Header, RemarkLine, ReplyLine, TaskLine
from hermes.runtime.taping import Caller, Names, Shapes, TapeShare
from hermes.runtime.task import Task

__all__ = ["Recorder", "recorded_words"]

#: Notices of these kinds come from outside the tree, so that a replay has to bring them.
_TOLD = ("process", "cards")
#: Letters of a goal that are kept, for people.
GOAL = 200


class Recorder:
    """Keeps what the tasks of one process do. `live` are the tools that work on the tree itself."""

    def __init__(self, file: CassetteFile, names: Names, *, header: Header, live: Collection[str]) -> None:
        self._file = file
        self.names = names
        self._live = live
        self._happened = 0
        self._began = anyio.current_time()
        self._turns: dict[str, int] = {}
        self._groups: dict[str, str] = {}
        self._replies = self._calls = 0
        file.put(header)

    def _next(self) -> int:
        self._happened += 1
        return self._happened

    def _at(self) -> float:
        return round(anyio.current_time() - self._began, 3)

    def model(self, task: Task, model: Model) -> Model:
        """The model of a task, listened to."""
        name = self.names.of(task)
        self._file.put(
            TaskLine(
                task=name,
                id=task.id,
                kind=task.spec.kind,
                goal=plain_text(task.spec.goal)[:GOAL],
                group=self._groups.get(task.id, ""),
                workspace=task.scope.workspace,
                choice=task.spec.model.name,
                model=model.name,
                profile=model.profile,
            )
        )
        shapes = Shapes(task, self.names)
        return Recorded(model, lambda request: self._asked(name, model.name, shapes, request))

    def _asked(self, name: str, model: str, shapes: Shapes, request: ModelRequest) -> Callable[[KeptReply], None]:
        asked, shape = self._next(), shapes.of(model, request)
        turn = self._turns[name] = self._turns.get(name, 0) + 1

        def keep(reply: KeptReply) -> None:
            self._replies += 1
            self._file.put(
                ReplyLine(
                    task=name, turn=turn, asked=asked, seq=self._next(), at=self._at(), request=shape, reply=reply
                )
            )

        return keep

    def guard(self, task: Task, guard: Caller) -> Caller:
        """The calls of a task, listened to."""

        async def run(tool: Tool, arguments: Any, context: CallContext) -> ToolOutput:
            if context.key.sub:  # a part of the call that made it, whose result is kept
                return await guard(tool, arguments, context)
            name, number, index = self.names.call(task, context.key)
            asked, began = self._next(), anyio.current_time()
            output: ToolOutput | None = None
            problem: str | None = None
            try:
                output = await guard(tool, arguments, context)
                return output
            except StoreError:
                raise
            except ToolError as error:
                problem = str(error)
                raise
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                raise
            finally:
                self._calls += 1
                self._file.put(
                    CallLine(
                        task=name,
                        round=number,
                        index=index,
                        tool=tool.name,
                        asked=asked,
                        seq=self._next(),
                        at=self._at(),
                        seconds=round(anyio.current_time() - began, 3),
                        output=output,
                        error=problem,
                        cut=output is None and problem is None,
                        live=tool.name in self._live,
                    )
                )

        return run

    def hear(self, envelope: Envelope) -> None:
        """Name a task when it is queued, note its end and what it was told of its background commands."""
        task = self.names.task(envelope.task_id)
        if task is None:
            return
        name, event = self.names.of(task), envelope.event
        if isinstance(event, TaskEnded):
            self._groups.pop(task.id, None)
            self._file.put(EndLine(task=name, seq=self._next(), state=event.state))
        elif isinstance(event, EntryAdded):
            if isinstance(event.entry, Notice) and event.entry.kind in _TOLD:
                turn = self._turns.get(name, 0) + 1
                self._file.put(RemarkLine(task=name, turn=turn, text=event.entry.text, kind=event.entry.kind))
        elif isinstance(event, TaskQueued) and event.group:
            self._groups[task.id] = event.group

    def settle(self) -> None:
        """See that what was kept so far stands in the file. Blocks."""
        self._file.settle()

    def share(self, task: Task) -> TapeShare | None:
        """Nothing is replayed."""
        return None

    def problems(self) -> Sequence[str]:
        """A recording has none."""
        return ()

    def summary(self) -> str:
        """What was kept."""
        return recorded_words(self._replies, self._calls, self._file.path)


def recorded_words(replies: int, calls: int, path: Path) -> str:
    """What was kept, for a person."""
    return f"recorded {_count(replies, 'reply', 'replies')} and {_count(calls, 'call', 'calls')} to {path}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
