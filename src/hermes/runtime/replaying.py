"""Replaying: the tasks of a process get from a cassette what their models answered and their tools brought.

Nothing is asked, no command runs, no file is read or written for the tasks. Tools that work on the tree itself run: the
tree is built again and its children replay too. What is answered depends on the place of a task, its turn and its call
alone; within one tree it is given in the recorded order, so that reports arrive where they arrived. A request that is
not the recorded one is refused, and what nobody asked for is told at the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import msgspec

from hermes.core.errors import ModelError, ToolError
from hermes.core.events import Envelope, TaskEnded, TaskQueued
from hermes.core.inbox import ChildEnd, Remark
from hermes.core.messages import Text, opening
from hermes.core.model import CallArguments, Delta, Model, ModelRequest, TextDelta, ThinkingDelta
from hermes.core.tools import CallContext, Tool, ToolOutput
from hermes.providers.recorded import KeptReply, Replayed
from hermes.runtime.cassette import CallLine, Cassette, ReplyLine, RequestShape, TaskLine
from hermes.runtime.replay_account import ReplayAccount, entries
from hermes.runtime.taping import IDS, Caller, Names, Shapes, TapeShare, differences, root_of
from hermes.runtime.task import Task

__all__ = ["Player", "cassette_model"]

#: Seconds without any event after which an answer no longer waits for those that were recorded before it.
PATIENCE = 5.0
#: The same once something went otherwise than recorded: what is waited for may never come.
BROKEN_PATIENCE = 0.2


def cassette_model(cassette: Cassette) -> Model:
    """The model of the recorded conversation, for whoever looks at its name and profile; it answers nobody."""

    async def refuse(request: ModelRequest) -> KeptReply:
        raise _mismatch(f"{cassette.path} answers the tasks that were recorded, and nobody else")

    return Replayed(cassette.header.model, cassette.header.profile, refuse)


def _mismatch(text: str) -> ModelError:
    return ModelError(text, reason="format_error")


class _Order:
    """The recorded order of what happened in one tree, by number; `seconds` is how long a live call took."""

    def __init__(self, numbers: Sequence[int], seconds: Mapping[int, float]) -> None:
        self._numbers = sorted(numbers)
        self._seconds = seconds
        self._happened: set[int] = set()
        self._front = 0
        self._waiting: dict[int, anyio.Event] = {}
        self.broken = False  # something went otherwise than recorded

    def happened(self, number: int) -> None:
        """Something happened; what is next may."""
        self._happened.add(number)
        while self._front < len(self._numbers) and self._numbers[self._front] in self._happened:
            self._front += 1
        if self._front < len(self._numbers):
            event = self._waiting.get(self._numbers[self._front])
            if event is not None:
                event.set()

    async def reach(self, number: int) -> None:
        """Wait until everything before `number` has happened, or nothing happens any more."""
        place = bisect_left(self._numbers, number)
        event = self._waiting[number] = anyio.Event()
        try:
            while self._front < place and not event.is_set():
                seen = len(self._happened)
                missing = self._numbers[self._front]
                patience = BROKEN_PATIENCE if self.broken else PATIENCE + self._seconds.get(missing, 0.0)
                with anyio.move_on_after(patience):
                    await event.wait()
                if len(self._happened) == seen:
                    return
        finally:
            self._waiting.pop(number, None)


class _Ends:
    """Ends of children on their way to their parents: each is read at the boundary at which it was read."""

    def __init__(self, cassette: Cassette, names: Names, turns: Mapping[str, int]) -> None:
        self._names = names
        self._turns = turns
        self._groups: dict[tuple[str, int], list[str]] = {}  # children by reader and the request that tells of them
        self._kept: dict[str, dict[str, ChildEnd]] = {}
        self._gathered: dict[tuple[str, int], anyio.Event] = {}
        for line in cassette.replies.values():
            for message in line.request.new:
                if message.startswith("notice children "):
                    self._groups.setdefault((line.task, line.turn), []).extend(message.split()[2:])

    def _next(self, task: Task) -> tuple[str, int]:
        name = self._names.of(task)
        return name, self._turns.get(name, 0) + 1

    def keep(self, task: Task, end: ChildEnd) -> bool:
        """Keep an end back until its place."""
        self._kept.setdefault(self._names.of(task), {})[self._names.shown(end.task_id)] = end
        self.release(task)
        return True

    def release(self, task: Task) -> None:
        """Let the ends through that the next request tells of, once all of them have come."""
        place = self._next(task)
        group, kept = self._groups.get(place, []), self._kept.get(place[0], {})
        if not group or not all(child in kept for child in group):
            return
        for child in group:
            task.inbox.notify(kept.pop(child), now=True)
        del self._groups[place]
        event = self._gathered.pop(place, None)
        if event is not None:
            event.set()

    async def gathered(self, task: Task) -> None:
        """Wait until the ends that the next request tells of have come, or long enough."""
        place = self._next(task)
        if place in self._groups:
            event = self._gathered.setdefault(place, anyio.Event())
            with anyio.move_on_after(PATIENCE):
                await event.wait()


class Player:
    """Answers the tasks of one process from a cassette. `live` are the tools that work on the tree itself."""

    def __init__(self, cassette: Cassette, names: Names, *, live: Collection[str]) -> None:
        self._cassette = cassette
        self.names = names
        self._live = live
        self._orders = _orders(cassette)
        self._turns: dict[str, int] = {}
        self._ends = _Ends(cassette, names, self._turns)
        self._ids: dict[str, str] = {}  # what was recorded → what it is called now
        self._account = ReplayAccount(cassette)
        self._of = self._account.shown
        self._by_task: dict[str, list[ReplyLine | CallLine]] = {}
        self._trees: dict[str, list[str]] = {}
        for line in entries(cassette):
            self._by_task.setdefault(line.task, []).append(line)
        for name in self._by_task:
            self._trees.setdefault(root_of(name), []).append(name)

    # -- models -----------------------------------------------------------------------------------------------------

    def model(self, task: Task, model: Model) -> Model:
        """The recorded model of a task, which from now on hears of ends where it heard of them."""
        name = self.names.of(task)
        task.inbox.keep = partial(self._ends.keep, task)
        line = self._cassette.tasks.get(name)
        if line is None:
            raise self._refused(name, self._unknown(name, task))
        if line.choice != task.spec.model.name:
            what = f"the model asked for is {task.spec.model.name or 'none'}, not {line.choice or 'none'}"
            raise self._refused(name, f"{self._of(name)}: {what}")
        shapes = Shapes(task, self.names)
        return Replayed(line.model, line.profile, self._answers(task, line, shapes))

    def _answers(self, task: Task, line: TaskLine, shapes: Shapes) -> Callable[[ModelRequest], Awaitable[KeptReply]]:
        async def take(request: ModelRequest) -> KeptReply:
            return await self._take(task, line, shapes.of(line.model, request))

        return take

    async def _take(self, task: Task, about: TaskLine, shape: RequestShape) -> KeptReply:
        name = about.task
        turn = self._turns[name] = self._turns.get(name, 0) + 1
        line = self._cassette.replies.get((name, turn))
        if line is None:
            raise self._refused(name, f"{self._of(name)}: request {turn} was not recorded; the recording is used up")
        wrong = differences(line.request, shape)
        if wrong:
            raise self._refused(name, f"{self._of(name)}: request {turn} is not the recorded one: {'; '.join(wrong)}")
        order = self._order(name)
        order.happened(line.asked)
        if not line.reply.cut:
            await order.reach(line.seq)
        self._account.replied(name, turn)
        order.happened(line.seq)
        self._ends.release(task)
        now = self._translation(task, about)
        for remark in self._cassette.remarks.get((name, turn + 1), ()):
            # There is no process that could end: the task hears of it at the boundary at which it heard of it.
            task.inbox.remark(Remark(kind=remark.kind, text=now(remark.text)))
        reply = self._cassette.whole(line).reply
        return msgspec.structs.replace(reply, deltas=tuple([_delta(delta, now) for delta in reply.deltas]))

    # -- tools ------------------------------------------------------------------------------------------------------

    def guard(self, task: Task, guard: Caller) -> Caller:
        """The calls of a task: from the cassette, but for those that work on the tree."""

        async def run(tool: Tool, arguments: Any, context: CallContext) -> ToolOutput:
            key = self.names.call(task, context.key)
            line = self._cassette.calls.get(key)
            try:
                if tool.name in self._live:
                    output = await self._made(key, line, lambda: guard(tool, arguments, context))
                else:
                    output = await self._result(task, tool, key, line)
            except ToolError:
                await self._ends.gathered(task)
                raise
            await self._ends.gathered(task)
            return output

        return run

    async def _made(
        self, key: tuple[str, int, int], line: CallLine | None, make: Callable[[], Awaitable[ToolOutput]]
    ) -> ToolOutput:
        """A call of a tool that works on the tree: made when its turn has come."""
        if line is None:
            return await make()
        self._account.called(key)
        order = self._order(key[0])
        await order.reach(line.asked)
        order.happened(line.asked)
        try:
            return await make()
        finally:
            order.happened(line.seq)

    async def _result(self, task: Task, tool: Tool, key: tuple[str, int, int], line: CallLine | None) -> ToolOutput:
        name, number, index = key
        if line is None or line.tool != tool.name:
            was = f"it was a call of {line.tool}" if line is not None else "the recording is used up"
            what = f"{self._of(name)}: call {index + 1} of round {number} ({tool.name}) was not recorded; {was}"
            self._mark(name, what)
            raise ToolError(what)
        self._account.called(key)
        order = self._order(name)
        order.happened(line.asked)
        if line.cut:
            order.happened(line.seq)
            await anyio.sleep_forever()
        await order.reach(line.seq)
        order.happened(line.seq)
        now = self._translation(task, self._cassette.tasks[name])
        output = self._cassette.whole(line).output
        if output is None:
            raise ToolError(now(line.error or ""))
        content = tuple([Text(now(part.text)) if isinstance(part, Text) else part for part in output.content])
        return msgspec.structs.replace(output, content=content, preview=now(output.preview))

    # -- what happened ----------------------------------------------------------------------------------------------

    def hear(self, envelope: Envelope) -> None:
        """Name a task when it is queued; at its end give up what it did not ask for."""
        task = self.names.task(envelope.task_id)
        if task is None:
            return
        name, event = self.names.of(task), envelope.event
        if isinstance(event, TaskQueued):
            line = self._cassette.tasks.get(name)
            if line is not None:
                self._ids[line.id] = task.id
                if line.group and event.group:
                    self._ids[line.group] = event.group
        elif isinstance(event, TaskEnded):
            self._give_up(name)

    def _give_up(self, name: str) -> None:
        order = self._order(name)
        for other in self._trees.get(root_of(name), ()):
            if other == name or (other.startswith(f"{name}/") and not self.names.known(other)):
                for line in self._by_task[other]:
                    order.happened(line.asked)
                    order.happened(line.seq)
                end = self._cassette.ends.get(other)
                if end is not None:
                    order.happened(end.seq)

    def _order(self, name: str) -> _Order:
        return self._orders.setdefault(root_of(name), _Order((), {}))

    def _translation(self, task: Task, line: TaskLine) -> Callable[[str], str]:
        """Puts the ids and the folder of this run into a recorded text."""
        old, new = line.workspace, task.scope.workspace

        def now(text: str) -> str:
            if len(old) > 1 and old != new:
                text = text.replace(old, new)
            return IDS.sub(lambda found: self._ids.get(found[0], found[0]), text)

        return now

    # -- what went otherwise ----------------------------------------------------------------------------------------

    def _mark(self, name: str, what: str) -> None:
        self._account.strayed(name, what)
        self._order(name).broken = True

    def _refused(self, name: str, what: str) -> ModelError:
        self._mark(name, what)
        return _mismatch(f"{self._cassette.path}: {what}")

    def _unknown(self, name: str, task: Task) -> str:
        roots = [line for line in self._cassette.tasks.values() if "/" not in line.task]
        if task.parent is not None or not roots:
            return f"no task {name} was recorded"
        goals = ", ".join(f'"{opening(line.goal, 60)}"' if line.goal else "a conversation" for line in roots[:5])
        return f"this was not recorded ({name}). What was: {goals}{', …' if len(roots) > 5 else ''}"

    def settle(self) -> None:
        """Nothing is kept."""

    def share(self, task: Task) -> TapeShare:
        """What the tree of a task without a parent got so far."""
        return self._account.share(root_of(self.names.of(task)))

    def problems(self) -> Sequence[str]:
        """What went otherwise than recorded, and what nobody asked for."""
        return self._account.problems()

    def summary(self) -> str:
        """What was given."""
        return self._account.summary()


def _orders(cassette: Cassette) -> dict[str, _Order]:
    numbers: dict[str, list[int]] = {}
    seconds: dict[int, float] = {}
    for line in entries(cassette):
        numbers.setdefault(root_of(line.task), []).extend((line.asked, line.seq))
        if isinstance(line, CallLine) and line.live:
            seconds[line.seq] = line.seconds
    for end in cassette.ends.values():
        numbers.setdefault(root_of(end.task), []).append(end.seq)
    return {root: _Order(found, seconds) for root, found in numbers.items()}


def _delta(delta: Delta, now: Callable[[str], str]) -> Delta:
    if isinstance(delta, (TextDelta, ThinkingDelta)):
        return msgspec.structs.replace(delta, text=now(delta.text))
    if isinstance(delta, CallArguments):
        return CallArguments(delta.index, now(delta.text))
    return delta
