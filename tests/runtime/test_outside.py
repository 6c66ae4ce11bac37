"""Another process asks something of a task: it is done once, answered, and kept where nobody can answer yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from hermes.core.clock import Clock, NoHold, SystemClock
from hermes.core.errors import OperatorError
from hermes.core.events import ControlDelivered, TaskPhase, TaskSuspended, ToolStarted
from hermes.core.messages import Image, Interrupted, Notice, Steer, Text, User, plain_text
from hermes.core.model import ModelRequest
from hermes.runtime.carrying import packed
from hermes.runtime.moving import have_let_go, offer
from hermes.runtime.outside import NOBODY
from hermes.runtime.remote import Remote
from hermes.runtime.runtime import tell_slept
from hermes.runtime.session import Session
from hermes.store.ops import TaskRow
from hermes.store.owner import is_gone
from hermes.store.sqlite import open_store
from hermes.store.wake import ring
from hermes.testing.lab import open_lab
from hermes.testing.scripted import Reply, ScriptedModel, call, hang, reply

pytestmark = pytest.mark.anyio


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.01)


@asynccontextmanager
async def elsewhere(folder: Path, *, deaf: bool = False, clock: Clock | None = None) -> AsyncIterator[Remote]:
    """What another terminal sees of the labs in this folder; `deaf`: nobody can be rung."""
    home = folder / ".hermes-home"
    store = await open_store(home / "runtime.db")
    try:
        yield Remote(
            store,
            is_gone=partial(is_gone, home),
            ring=(lambda owner: False) if deaf else partial(ring, home),
            clock=clock or SystemClock(),
            redact=lambda body: body,
        )
    finally:
        await store.close()


async def row_of(remote: Remote, task_id: str) -> TaskRow:
    found = await remote.find(task_id)
    assert isinstance(found, TaskRow), found
    return found


def steers(request: ModelRequest) -> list[str]:
    return [entry.text for entry in request.entries if isinstance(entry, Steer)]


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_running_task_reads_a_correction_from_another_terminal(tmp_path: Path, deaf: bool) -> None:
    heard: list[Callable[[], bool]] = []

    async def first(request: ModelRequest) -> Reply:
        await until(lambda: any(condition() for condition in heard))
        return reply(calls=[call("terminal", command="true")])

    model = ScriptedModel("m", [first, reply("north")])
    async with open_lab(model, workspace=tmp_path, memory=False) as lab, elsewhere(tmp_path, deaf=deaf) as remote:
        task = await lab.start("go")
        heard.append(lambda: task.inbox.pending)
        await until(lambda: model.in_flight == 1)
        answer = await remote.send(await row_of(remote, task.id), "steer", "only the north", receipt="r-1", patience=60)
        again = await remote.send(await row_of(remote, task.id), "steer", "only the north", receipt="r-1")
        await lab.runtime.result(task)
        late = await remote.send(await row_of(remote, task.id), "steer", "too late")
        (delivered,) = lab.of(ControlDelivered)
    assert answer["ok"] and answer["receipt"] | {"position": 0} == {
        "id": "r-1", "verb": "steer", "state": "delivered", "position": 0,
    }  # fmt: skip
    assert answer["receipt"]["position"] == delivered.position
    assert again["receipt"] == answer["receipt"]
    assert steers(model.requests[1]) == ["only the north"]
    assert late == {"ok": False, "error": f"Task {task.id} is not running (status: completed)."}


async def test_a_cancel_from_another_terminal_ends_the_subtree(tmp_path: Path) -> None:
    model = ScriptedModel(
        "m",
        scripts={
            "root": [reply(calls=[call("spawn_parallel", tasks=[{"prompt": "alpha"}, {"prompt": "beta"}])])],
            "alpha": [hang()],
            "beta": [hang()],
        },
    )
    async with open_lab(model, workspace=tmp_path, memory=False) as lab, elsewhere(tmp_path) as remote:
        task = await lab.start("root")
        await until(lambda: model.in_flight == 2)
        answer = await remote.send(await row_of(remote, task.id), "cancel", "enough", patience=60)
        result = await lab.runtime.result(task)
        assert answer["ok"] and answer["receipt"]["state"] == "delivered"
        assert result.state == "cancelled" and {child.state for child in task.children} == {"cancelled"}
        assert (await remote.collect(await row_of(remote, task.id)))["status"] == "cancelled"


async def test_an_interrupt_and_a_next_input_reach_a_conversation(tmp_path: Path) -> None:
    model = ScriptedModel("m", [hang(), reply("better")], check=False)
    async with open_lab(model, workspace=tmp_path, memory=False) as lab, elsewhere(tmp_path) as remote:
        session = await lab.converse(goal="think")
        await until(lambda: model.in_flight == 1)
        row = await row_of(remote, session.task.id)
        assert (await remote.send(row, "interrupt", "stop thinking", patience=60))["receipt"]["state"] == "delivered"
        said = await remote.send(row, "follow_up", "be quick")
        await until(lambda: session.task.outcome is not None and session.task.outcome.text == "better")
        assert said["receipt"]["state"] in ("queued", "delivered")
        assert (await remote.send(row, "interrupt", patience=60))["receipt"]["state"] == "missed"
        assert "did not" in (await remote.send(row, "dance"))["error"]
    entries = model.requests[-1].entries
    assert [entry.reason for entry in entries if isinstance(entry, Interrupted)] == ["stop thinking"]
    assert plain_text([entry for entry in entries if isinstance(entry, User)][-1].content) == "be quick"


async def test_what_is_said_to_a_suspended_task_is_read_once_it_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel("m", [hang()])
    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        task = await lab.start("go")
        await until(lambda: model.in_flight == 1)
    async with elsewhere(tmp_path) as remote:
        row = await row_of(remote, task.id)
        answer = await remote.send(row, "steer", "only the north")
        assert answer["receipt"]["state"] == "queued" and f"--resume {row.session_id}" in answer["message"]
        shown = await remote.check(row)
        assert shown["status"] == "suspended" and shown["receipts"] == [answer["receipt"]]
        assert (await remote.collect(row))["status"] == "suspended"
    again = ScriptedModel("m", [reply("north", delay=1.2)], check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        root = await lab.assembly.recovery.adopt(row.session_id)
        await lab.runtime.result(root)
        (receipt,) = await lab.runtime.store.inbox(task.id)
    assert steers(again.requests[0]) == ["only the north"]
    assert receipt.state == "delivered"


async def test_a_suspended_task_is_cancelled_without_running(tmp_path: Path) -> None:
    background = [call("delegate_task_async", goal="alpha"), call("delegate_task_async", goal="beta")]
    scripts = {"root": [reply(calls=background), hang()], "alpha": [hang()], "beta": [hang()]}
    model = ScriptedModel("m", scripts=scripts)
    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        task = await lab.start("root")
        await until(lambda: model.in_flight == 3)
        alpha = task.children[0]
    async with elsewhere(tmp_path) as remote:
        row = await row_of(remote, alpha.id)
        said = packed((Text("never read"), Image(media_type="image/png", data="AAAA")), lambda body: body)
        await remote.send(row, "steer", said)
        answer = await remote.send(row, "cancel", "not needed")
        assert answer["ok"] and answer["status"] == "cancelled" and answer["ended"] == [alpha.id]
        ended = await row_of(remote, alpha.id)
        result = await remote.collect(ended)
        assert result["status"] == "cancelled" and result["missed_steer"] == ["never read"]
        listed = (await remote.list())["tasks"]
        assert [item["status"] for item in listed] == ["suspended", "suspended", "cancelled"]
        assert not (await remote.send(ended, "cancel"))["ok"]
    scripts = {"root": [reply("b only"), reply("done")], "beta": [reply("B")]}
    again = ScriptedModel("m", scripts=scripts, check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        root = await lab.assembly.recovery.adopt(row.session_id)
        await lab.runtime.result(root)
    notices = [e.text for r in again.requests for e in r.entries if isinstance(e, Notice)]
    assert any(alpha.id in text and "cancelled" in text for text in notices)
    assert all(
        "alpha" not in plain_text(r.entries[0].content) for r in again.requests if isinstance(r.entries[0], User)
    )


async def test_a_cancel_stored_for_a_lost_process_holds_when_the_session_is_taken_up(tmp_path: Path) -> None:
    model = ScriptedModel("m", [hang()])
    async with open_lab(model, workspace=tmp_path, memory=False) as lab, elsewhere(tmp_path) as remote:
        task = await lab.start("go")
        await until(lambda: model.in_flight == 1)
        row = await row_of(remote, task.id)
        lab.runtime.supervisor.closing = True  # its process does not come to answer any more
        await remote.send(row, "cancel", "stop it", patience=0)
    again = ScriptedModel("m", [])
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        result = await lab.runtime.result(await lab.assembly.recovery.adopt(row.session_id))
    assert (result.state, result.error, again.requests) == ("cancelled", "stop it", [])


async def test_a_session_is_let_go_and_goes_on_elsewhere(tmp_path: Path) -> None:
    scripts = {"root": [reply(calls=[call("spawn_parallel", tasks=[{"prompt": "alpha"}])])], "alpha": [hang()]}
    first = ScriptedModel("m", scripts=scripts)
    scripts = {"root": [reply("all")], "alpha": [reply("A")]}
    second = ScriptedModel("m", scripts=scripts, check=False)
    async with open_lab(first, workspace=tmp_path, memory=False) as lab, elsewhere(tmp_path) as remote:
        task = await lab.start("root")
        session = task.scope.session_id
        await until(lambda: first.in_flight == 1)
        with pytest.raises(OperatorError, match="another process"):
            await offer(remote, session)
        await have_let_go(remote, session, patience=60)
        assert first.in_flight == 0 and not lab.runtime.supervisor.tasks
        assert lab.of(TaskSuspended)[-1].reason == "another terminal goes on with it"
        assert {row.owner for row in await remote.store.tasks(session)} == {NOBODY}
        async with open_lab(second, workspace=tmp_path, memory=False) as other:
            result = await other.runtime.result(await other.assembly.recovery.adopt(session))
        assert result.summary == "all" and len(await remote.store.tasks(session)) == 2
        again = await lab.assembly.recovery.adopt(session, say="once more")  # and back to where it began
        assert len(again.children) == 1 and again.attempt == 3


async def test_a_process_that_does_not_answer_keeps_its_session(tmp_path: Path) -> None:
    model = ScriptedModel("m", [hang()])
    async with open_lab(model, workspace=tmp_path, memory=False) as lab, elsewhere(tmp_path) as remote:
        task = await lab.start("go")
        await until(lambda: model.in_flight == 1)
        lab.runtime.supervisor.closing = True  # as good as asleep
        with pytest.raises(OperatorError, match="does not answer"):
            await have_let_go(remote, task.scope.session_id, patience=0.3)
        lab.runtime.supervisor.closing = False  # and when it wakes, nothing is asked of it any more
        assert await lab.runtime.store.queued(lab.runtime.supervisor.owner) == []
        assert model.in_flight == 1 and (await row_of(remote, task.id)).owner == lab.runtime.supervisor.owner


async def test_ids_are_found_by_their_beginning_and_named_when_not(tmp_path: Path) -> None:
    async with open_lab(ScriptedModel("m", [reply("1")]), workspace=tmp_path, memory=False) as lab:
        task = await lab.start("count")
        await lab.runtime.result(task)
    async with elsewhere(tmp_path) as remote:
        assert (await row_of(remote, task.id[:9])).task_id == task.id
        wrong = task.id[:-1] + ("0" if task.id[-1] != "0" else "1")
        assert await remote.find(wrong) == {"error": f"Task not found: {wrong}", "nearest": [task.id]}


async def test_waiting_from_outside(tmp_path: Path) -> None:
    scripts = {
        "root": [reply(calls=[call("spawn_parallel", tasks=[{"prompt": "alpha"}, {"prompt": "beta"}])])],
        "alpha": [reply("A")],
        "beta": [hang()],
    }
    model = ScriptedModel("m", scripts=scripts)
    async with open_lab(model, workspace=tmp_path, memory=False) as lab, elsewhere(tmp_path) as remote:
        root = await lab.start("root")
        await until(lambda: len(root.children) == 2 and all(child.started.is_set() for child in root.children))
        ids = [child.id for child in root.children]
        assert (await remote.wait(ids, mode="any"))["ended"] == ids[:1]
        late = await remote.wait(ids, timeout=0)
        assert late == {"ended": ids[:1], "suspended": [], "running": ids[1:], "timed_out": True}
    async with elsewhere(tmp_path) as remote:
        done = await remote.wait(ids)
        assert done == {"ended": ids[:1], "suspended": ids[1:], "running": [], "timed_out": False}


async def test_a_conversation_that_waits_for_its_person_is_told_from_one_that_works(tmp_path: Path) -> None:
    model = ScriptedModel("m", [reply("hello"), reply(calls=[call("terminal", command="sleep 600")])], check=False)

    async def seen(remote: Remote) -> list[tuple[str, str]]:
        return [(row["status"], row.get("phase", "")) for row in (await remote.list())["tasks"]]

    async with open_lab(model, workspace=tmp_path, memory=False) as lab, elsewhere(tmp_path) as remote:
        session = await lab.converse()
        await session.exchange("hi")
        assert await seen(remote) == [("running", "idle")]
        assert (await remote.check(await row_of(remote, session.task.id)))["phase"] == "idle"
        await session.say("work")
        await until(lambda: bool(lab.of(ToolStarted)))
        assert await seen(remote) == [("running", "")]
        assert (await remote.check(await row_of(remote, session.task.id)))["phase"] == "tool terminal"
        await remote.send(await row_of(remote, session.task.id), "interrupt", "not now")
        with anyio.fail_after(60):
            while await seen(remote) != [("running", "idle")]:
                await anyio.sleep(0.01)
    async with elsewhere(tmp_path) as remote:  # its process is gone
        assert await seen(remote) == [("suspended", "idle")]
        shown = await remote.check(await row_of(remote, session.task.id))
        assert (shown["status"], shown["phase"]) == ("suspended", "idle")
    going = ScriptedModel("m", [hang()], check=False)
    async with open_lab(going, workspace=tmp_path, memory=False) as lab, elsewhere(tmp_path) as remote:
        task = await lab.assembly.recovery.adopt(session.id, interactive=True)
        await until(lambda: bool(lab.of(TaskPhase, task.id)))
        assert await seen(remote) == [("running", "idle")]
        await Session(task, lab.runtime.control).say("go on")
        await until(lambda: going.in_flight == 1)
        assert await seen(remote) == [("running", "")]
    async with elsewhere(tmp_path) as remote:
        assert await seen(remote) == [("suspended", "")]
        assert "phase" not in await remote.check(await row_of(remote, session.task.id))


class AfterAnHour(SystemClock, NoHold):
    """The time as it is when the machine has slept for an hour since the task began."""

    def now(self) -> float:
        return super().now() + 3_600


async def test_the_time_of_a_sleep_or_of_no_process_is_none_that_a_task_ran(tmp_path: Path) -> None:
    model = ScriptedModel("m", [hang()])

    async def elapsed(remote: Remote) -> float:
        (row,) = (await remote.list())["tasks"]
        assert row["elapsed"] == pytest.approx((await remote.check(await row_of(remote, task.id)))["elapsed"], abs=100)
        return float(row["elapsed"])

    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        async with elsewhere(tmp_path, clock=AfterAnHour()) as remote:
            task = await lab.start("go")
            await until(lambda: model.in_flight == 1)
            assert await elapsed(remote) >= 3_600
            tell_slept(lab.runtime, 3_600)
            with anyio.fail_after(60):
                while await elapsed(remote) >= 3_600:
                    await anyio.sleep(0.01)
                session = (await row_of(remote, task.id)).session_id
    again = ScriptedModel("m", [hang()], check=False)
    later = AfterAnHour()  # than its process was lost
    async with (
        open_lab(again, workspace=tmp_path, memory=False, clock=later) as lab,  # type: ignore[arg-type]
        elsewhere(tmp_path, clock=later) as remote,
    ):
        await lab.assembly.recovery.adopt(session)
        await until(lambda: again.in_flight == 1)
        assert await elapsed(remote) < 3_600
