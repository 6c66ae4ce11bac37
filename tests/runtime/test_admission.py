"""Who may start, and who gets a lent slot back."""

from __future__ import annotations

import anyio
import pytest

from hermes.core.limits import Budget, Limits
from hermes.core.scope import TaskScope
from hermes.runtime.admission import Admission
from hermes.runtime.spec import TaskSpec
from hermes.runtime.task import Task
from hermes.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio


def make(name: str, parent: Task | None = None, *, unattended: bool = True) -> Task:
    scope = TaskScope(task_id=name, session_id="s", root_id="root", parent_id=parent.id if parent else None, kind="row")
    made = Task(
        scope,
        TaskSpec(kind="row", goal=(), unattended=unattended),
        parent=parent,
        budget=Budget(Limits(), name),
        owner="me",
        emit=lambda task, event: None,
    )
    if parent is not None:
        parent.children.append(made)
    return made


async def test_a_slot_on_its_way_back_is_not_kept_by_a_task_that_waits_again(virtual_clock: VirtualClock) -> None:
    """Two calls of one reply wait for children: the end of the first wait must not take the slot that the second one
    needs its child to have."""
    admission = Admission(max_running=1, max_children=1)
    parent = make("parent")
    first, second = make("first", parent), make("second", parent)
    async with anyio.create_task_group() as group:
        admission.start(group)
        await admission.acquire(parent)
        admission.lend(parent)
        with anyio.fail_after(10):
            await admission.acquire(first)
        group.start_soon(admission.take_back, parent)  # the first wait ran out of time; `first` still has the slot
        await anyio.wait_all_tasks_blocked()
        admission.lend(parent)  # the second call begins to wait
        admission.release(first)
        with anyio.fail_after(10):
            await admission.acquire(second)
        admission.release(second)
        with anyio.fail_after(10):
            await admission.take_back(parent)
        assert parent.slot and admission.running == 1
        group.cancel_scope.cancel()


async def test_a_start_that_is_given_up_leaves_nothing_behind(virtual_clock: VirtualClock) -> None:
    admission = Admission(max_running=1, max_children=1)
    parent = make("parent")
    first, second = make("first", parent), make("second", parent)
    async with anyio.create_task_group() as group:
        admission.start(group)
        await admission.acquire(first)
        with anyio.move_on_after(1):
            await admission.acquire(second)
        assert not second.waiting and admission.waiting() == 0
        admission.release(first)
        assert admission.running == 0
        group.cancel_scope.cancel()


async def test_tasks_with_a_person_waiting_go_before_those_without(virtual_clock: VirtualClock) -> None:
    admission = Admission(max_running=1, max_children=2)
    row, chat = make("row"), make("chat", unattended=False)
    waiting = [
        make("row-1", row),
        make("row-2", row),
        make("root"),
        make("child-1", chat, unattended=False),
        make("run", unattended=False),
        make("child-2", chat, unattended=False),
    ]
    started: list[str] = []

    async def live(task: Task) -> None:
        await admission.acquire(task)
        started.append(task.id)
        await anyio.sleep(1)
        admission.release(task)

    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as living:
            for task in waiting:
                living.start_soon(live, task)
                await anyio.wait_all_tasks_blocked()
            admission.start(group)
        group.cancel_scope.cancel()
    assert started == ["child-1", "run", "child-2", "row-1", "root", "row-2"]
