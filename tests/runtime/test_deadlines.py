"""Limits of time count time in which the process ran."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from hermes.core.codec import decode_event
from hermes.core.events import TaskPhase
from hermes.core.limits import Limits
from hermes.core.messages import Text
from hermes.runtime.runtime import tell_slept
from hermes.runtime.spec import SpawnRequest, TaskSpec
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import EndlessModel, hang

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("limits", [Limits(clock=100), Limits(inactivity=100)])
async def test_a_closed_laptop_counts_for_no_limit(tmp_path: Path, virtual_clock: VirtualClock, limits: Limits) -> None:
    async with open_lab(EndlessModel(lambda request: hang()), workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        model, goal = session.task.spec.model, (Text("wait"),)
        spec = TaskSpec(kind="async", goal=goal, model=model, workspace=str(tmp_path), limits=limits)
        (task,) = await lab.runtime.supervisor.spawn(
            [SpawnRequest(spec=spec)], session_id=session.id, parent=session.task
        )
        await anyio.sleep(60)
        virtual_clock.jump(3_600)
        tell_slept(lab.runtime, 3_600)  # as the watchdog does
        await anyio.sleep(30)
        assert not task.ended
        with anyio.fail_after(11):
            await task.done.wait()
        assert task.result is not None and task.result.state == "timed_out"
        assert task.result.elapsed == pytest.approx(100, abs=1)
        (told,) = [event for event in lab.of(TaskPhase, task.id) if event.slept]
        assert told.slept == pytest.approx(3_600, abs=1)
        stored = [decode_event(row.body) for row in await lab.runtime.store.events_of_type("task.phase")]
        assert told in stored, "whoever takes the task up has to know it too"
        assert lab.runtime.bus.tree.tasks[task.id].elapsed == pytest.approx(100, abs=1)
        await session.close()
