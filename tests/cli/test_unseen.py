"""Results nobody saw stand at the top of the next conversation in the same home, once."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from hermes.chat.interactive import Chat
from hermes.chat.unseen_text import MOST, unseen_line
from hermes.core.codec import encode_json
from hermes.core.result import TaskResult
from hermes.observe.unseen import Unseen
from hermes.store.ops import AddSession, AddTask, EndTask, Op, PutDelivery, Store, Unit
from hermes.store.sqlite import open_store
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, call, hang, reply
from tests.cli.test_interactive import Desk, FakeComposer
from tests.store.rows import child, delivery, session, task

pytestmark = pytest.mark.anyio


async def earlier(home: Path, *ends: TaskResult, over: bool = True) -> None:
    """A conversation of the past whose children ended without its being told."""
    home.mkdir(parents=True, exist_ok=True)
    ops: list[Op] = [AddSession(row=session()), AddTask(row=task())]
    for number, end in enumerate(ends):
        ops += [
            AddTask(row=child(end.task_id, number, goal=f"part {number}")),
            EndTask(task_id=end.task_id, state=end.state, ended_at=5.0, end=encode_json(end)),
            PutDelivery(row=delivery(end.task_id)),
        ]
    if over:
        ops.append(EndTask(task_id="t1", state="completed", ended_at=6.0, end=encode_json(result("t1"))))
    store = await open_store(home / "runtime.db")
    await store.submit(Unit(ops=tuple(ops))).wait()
    await store.close()


def result(task_id: str, state: str = "completed", **more: str) -> TaskResult:
    return TaskResult(task_id=task_id, state=state, exit_reason="x", **more)  # type: ignore[arg-type]


async def opened(path: Path) -> list[str]:
    """The lines of a conversation that is left at once."""
    composer = FakeComposer()
    async with open_lab(ScriptedModel("m", []), workspace=path, memory=False) as lab:
        composer.type("/quit")
        await Chat(lab.assembly, composer, workspace=str(path)).run()  # type: ignore[arg-type]
    return [line for line in composer.lines if "nobody saw" in line or line.startswith("  ")]


async def left(path: Path) -> list[str]:
    store: Store = await open_store(path / ".hermes-home" / "runtime.db")
    try:
        return [row.task_id for row in await store.unseen()]
    finally:
        await store.close()


@pytest.mark.fault("B041")
async def test_they_are_shown_once(tmp_path: Path) -> None:
    ends = (
        result("sa-1", summary="The\x1b[31m parser is fine."),
        result("sa-2", "failed", error="no such model"),
        result("sa-3", "cancelled"),
    )
    await earlier(tmp_path / ".hermes-home", *ends)
    lines = await opened(tmp_path)
    assert lines[0] == "2 results of earlier conversations that nobody saw:", "a stopped task without a text is none"
    assert "✓ sa-1 part 0 (completed " in lines[1] and lines[1].endswith(
        "The parser is fine. — hermes sessions show s1"
    )
    assert "✗ sa-2 part 1 (failed " in lines[2] and "no such model" in lines[2] and len(lines) == 3
    assert await opened(tmp_path) == [] and await left(tmp_path) == []


async def test_many_come_in_several_starts(tmp_path: Path) -> None:
    await earlier(tmp_path / ".hermes-home", *(result(f"sa-{n:02}", summary="x") for n in range(MOST + 2)))
    lines = await opened(tmp_path)
    assert len(lines) == MOST + 2 and "2 more" in lines[-1]
    assert await left(tmp_path) == [f"sa-{MOST}", f"sa-{MOST + 1}"]
    assert len(await opened(tmp_path)) == 3


async def test_one_whose_conversation_was_cut_off_says_how_to_go_on(tmp_path: Path) -> None:
    await earlier(tmp_path / ".hermes-home", result("sa-1", summary="seven"), over=False)
    assert (await opened(tmp_path))[1].endswith("seven — hermes chat --resume s1")


async def test_what_leaving_a_conversation_reports_was_seen(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    steps = [reply(calls=[call("delegate_task_async", goal="part")]), reply("started"), hang()]
    model = ScriptedModel("m", steps)
    composer = FakeComposer()
    async with open_lab(model, workspace=tmp_path, memory=False, clock=virtual_clock) as lab:
        chat = Chat(lab.assembly, composer, workspace=str(tmp_path))  # type: ignore[arg-type]
        person = Desk(chat, composer, lab)
        async with anyio.create_task_group() as group:
            group.start_soon(person.run)
            person.type("go")
            await person.until(lambda: len(chat.running()) == 1 and model.in_flight == 1, "a child at work")
            await person.quiet()
            person.type("/quit")
            person.type("/quit")
            await person.until(lambda: person.code is not None, "the end")
        rows = await lab.runtime.store.tasks(lab.events[0].session_id)
        assert [row.state for row in rows] == ["completed", "cancelled"]
        assert await lab.runtime.store.unseen() == []


def test_a_line_hides_secrets_and_stays_short() -> None:
    item = Unseen(
        task_id="sa-1", session_id="s1", goal="g" * 90, status="completed", ended_at=0.0, summary="key hunter2\n" * 99
    )
    line = unseen_line(item, 7_200.0, lambda text: text.replace("hunter2", "[redacted]"))
    assert "hunter2" not in line and "2h 00m ago" in line and len(line) < 260 and "\n" not in line
    assert unseen_line(replace(item, resumable=True), 0.0).endswith("hermes chat --resume s1")
