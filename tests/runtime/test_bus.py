"""The bus hands each event to those who read its type, and asks only those who watch."""

from __future__ import annotations

from contextlib import closing

from hermes.core.events import Envelope, Event, TaskPhase, TurnStarted
from hermes.core.scope import TaskScope
from hermes.runtime.bus import Bus


def _told(bus: Bus, event: Event) -> Envelope:
    heard: list[Envelope] = []
    with closing(bus.subscribe(heard.append)):
        bus.emit(TaskScope(task_id="t1", session_id="s1", root_id="t1"), 1.0, event)
    return heard[0]


def test_a_subscription_reads_the_types_that_it_names() -> None:
    bus = Bus()
    everything: list[Envelope] = []
    turns: list[Envelope] = []
    bus.subscribe(everything.append)
    bus.subscribe(turns.append, types=(TurnStarted,))
    phase = _told(bus, TaskPhase(phase="idle"))
    turn = _told(bus, TurnStarted(turn=1, model="m"))
    assert everything == [phase, turn]
    assert turns == [turn]


def test_who_comes_later_reads_from_then_on_and_who_left_reads_nothing() -> None:
    bus = Bus()
    early: list[Envelope] = []
    late: list[Envelope] = []
    first = bus.subscribe(early.append)
    one = _told(bus, TaskPhase(phase="idle"))
    bus.subscribe(late.append)
    two = _told(bus, TaskPhase(phase="idle"))
    first.close()
    first.close()
    three = _told(bus, TaskPhase(phase="idle"))
    assert early == [one, two]
    assert late == [two, three]


def test_a_task_is_watched_while_somebody_wants_it() -> None:
    bus = Bus()
    bus.subscribe(lambda _: None)
    assert not bus.watched("t1")
    watching = bus.subscribe(lambda _: None, lambda task: task == "t1")
    assert bus.watched("t1") and not bus.watched("t2")
    watching.close()
    assert not bus.watched("t1")
