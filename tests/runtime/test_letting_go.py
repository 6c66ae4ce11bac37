"""What happens to a command that runs when its work is handed to another process."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from hermes.runtime.letting_go import mid_call
from hermes.runtime.task import Task
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel, call, hang, reply

pytestmark = pytest.mark.anyio


async def running_command(lab: Lab, command: str) -> Task:
    """A task inside a command that waits for the file `go`."""
    task = await lab.start(command)
    with anyio.fail_after(60):
        while not (lab.workspace / "begun").exists():
            await anyio.sleep(0.01)
    assert mid_call(task)
    return task


def model(command: str) -> ScriptedModel:
    return ScriptedModel("m", [reply(calls=[call("terminal", command=command)]), hang()], check=False)


async def test_a_command_may_end_before_its_work_is_handed_over(tmp_path: Path) -> None:
    command = "touch begun; until test -e go; do sleep 0.01; done; echo all of it"
    async with open_lab(model(command), workspace=tmp_path, memory=False) as lab:
        task = await running_command(lab, command)
        async with anyio.create_task_group() as group:
            group.start_soon(lab.runtime.supervisor.shutdown, 100.0)
            await anyio.wait_all_tasks_blocked()
            assert not task.done.is_set()
            (tmp_path / "go").touch()
        assert task.done.is_set() and not task.ended
        (row,) = await lab.runtime.store.calls(task.id, 1)
        assert row.state == "ended" and row.result is not None and b"all of it" in row.result
    again = ScriptedModel("m", [reply("seen")], check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        result = await lab.runtime.result(await lab.assembly.recovery.adopt(task.scope.session_id))
    assert result.summary == "seen" and len(again.requests) == 1


async def test_one_that_takes_too_long_is_ended_with_its_effect_unknown(tmp_path: Path) -> None:
    command = "touch begun; sleep 300"
    async with open_lab(model(command), workspace=tmp_path, memory=False) as lab:
        task = await running_command(lab, command)
        with anyio.fail_after(60):
            await lab.runtime.supervisor.shutdown(0.2)
        assert not task.ended
        (row,) = await lab.runtime.store.calls(task.id, 1)
        assert row.state == "started"
        report = await lab.assembly.recovery.look(task.scope.session_id)
        assert report.cut_off[0].unknown == ("terminal",)


async def test_what_may_be_repeated_is_not_waited_for(tmp_path: Path) -> None:
    steps = [reply(calls=[call("delegate_task", goal="child")])]
    async with open_lab(
        ScriptedModel("m", scripts={"root": steps, "child": [hang()]}), workspace=tmp_path, memory=False
    ) as lab:
        task = await lab.start("root")
        with anyio.fail_after(60):
            while not task.children or not task.children[0].started.is_set():
                await anyio.sleep(0.01)
        assert not mid_call(task) and not mid_call(task.children[0])
        with anyio.fail_after(60):
            await lab.runtime.supervisor.shutdown(1_000.0)
