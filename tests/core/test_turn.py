"""One model call of a task, and how its history is written."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from hermes.core.errors import StoreFull
from hermes.core.events import EntryAdded, Event
from hermes.core.history import History, MemoryJournal, Pending, Taken
from hermes.core.limits import Budget, Limits
from hermes.core.messages import Assistant, Entry
from hermes.core.scope import TaskScope
from hermes.core.turn import Turns, TurnSettings
from hermes.testing.scripted import ScriptedModel

pytestmark = pytest.mark.anyio


class SlowJournal(MemoryJournal):
    """Everything stands once `written` is set; `error` is then raised by whoever waits."""

    def __init__(self, error: Exception | None = None) -> None:
        self.written = anyio.Event()
        self.error = error

    def entries(
        self, entries: Sequence[tuple[int, Entry]], started: Sequence[tuple[int, int, str]], taken: Taken
    ) -> Pending:
        return self

    async def wait(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.written.wait()
        await anyio.lowlevel.checkpoint_if_cancelled()
        if self.error is not None:
            raise self.error


def turns(journal: SlowJournal, events: list[Event]) -> Turns:
    return Turns(
        TurnSettings(model=ScriptedModel("m", []), tools=(), watched=lambda: False),
        scope=TaskScope(task_id="t", session_id="s", root_id="t", kind="main"),
        history=History(journal),
        budget=Budget(Limits(), "t"),
        emit=events.append,
        now=lambda: 0.0,
    )


async def test_an_entry_written_while_its_turn_was_stopped_is_told_to_the_views() -> None:
    """It stands in the history, so whoever follows the events must know it."""
    events: list[Event] = []
    journal = SlowJournal()
    async with anyio.create_task_group() as group:
        group.start_soon(turns(journal, events).append, [Assistant(text="a reply")])
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
        journal.written.set()
    (event,) = events
    assert isinstance(event, EntryAdded) and event.entry == Assistant(text="a reply")


async def test_an_entry_that_could_not_be_written_is_told_to_nobody() -> None:
    events: list[Event] = []
    journal = SlowJournal(StoreFull("the disk is full"))
    journal.written.set()
    with pytest.raises(StoreFull):
        await turns(journal, events).append([Assistant(text="a reply")])
    assert events == []
