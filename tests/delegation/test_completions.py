"""How ends of children reach their parent: together or one by one; and an answer that did not wait for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.core.events import TaskEnded, TurnEnded
from hermes.core.messages import Notice
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel, call, hang, reply
from tests.delegation.family import family, told, until

pytestmark = pytest.mark.anyio

GROUP = call("delegate_task", tasks=[{"goal": "quick"}, {"goal": "middling"}, {"goal": "slow"}], background=True)


def three(**delays: float) -> dict[str, Any]:
    return {name: [reply(f"from {name}", delay=delay)] for name, delay in delays.items()}


def notices(lab: Lab, task_id: str) -> list[tuple[str, ...]]:
    task = lab.runtime.supervisor.tasks[task_id]
    assert task.history is not None
    return [entry.tasks for entry in task.history.full() if isinstance(entry, Notice)]


@pytest.mark.parametrize("independent", [False, True])
async def test_children_of_one_call_report_together_unless_told_otherwise(
    tmp_path: Path, virtual_clock: VirtualClock, independent: bool
) -> None:
    model = family([reply(calls=[GROUP]), *[reply("ok")] * 4], **three(quick=10, middling=50, slow=90))
    settings = {"delegation.independent_completions": independent}
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, settings=settings) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        await until(lambda: not session.running() and not session.busy)
        ids = [child.id for child in session.task.children]
        assert notices(lab, session.task.id) == ([(name,) for name in ids] if independent else [tuple(ids)])
        await session.close()


async def test_ends_of_different_calls_do_not_wait_for_each_other(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    both = [call("delegate_task_async", goal=name) for name in ("quick", "slow")]
    model = family([reply(calls=both), *[reply("ok")] * 4], **three(quick=10, slow=90))
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        await until(lambda: not session.running() and not session.busy)
        assert [len(names) for names in notices(lab, session.task.id)] == [1, 1]
        await session.close()


async def test_what_was_collected_of_a_group_is_not_told_with_the_rest(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = family([reply(calls=[GROUP]), *[reply("ok")] * 4], **three(quick=10, middling=50, slow=90))
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        quick, middling, slow = session.task.children
        await quick.done.wait()
        assert told(session.task) == [] and quick.delivery == "pending"
        lab.runtime.supervisor.consumed(quick.id)  # as a call that brings it does
        await until(lambda: not session.running() and not session.busy)
        assert notices(lab, session.task.id) == [(middling.id, slow.id)]
        await session.close()


async def test_a_group_is_told_together_though_its_process_was_lost(tmp_path: Path) -> None:
    scripts = {"parent": [reply(calls=[GROUP]), reply("ok")], **three(quick=0, middling=0), "slow": [hang()]}
    model = ScriptedModel("m", scripts=scripts)
    async with open_lab(model, workspace=tmp_path, memory=False) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        await until(lambda: len(lab.of(TaskEnded)) == 2)
        await anyio.sleep(0.1)
        assert told(session.task) == []
    again = ScriptedModel("m", scripts={"parent": [reply("all three")], **three(slow=0)}, check=False)
    async with open_lab(again, workspace=tmp_path, memory=False) as lab:
        root = await lab.assembly.recovery.adopt(session.id)
        await until(lambda: root.history is not None and told(root))
        assert sorted(told(root)) == sorted(child.id for child in root.children) and len(notices(lab, root.id)) == 1


async def test_an_answer_that_did_not_wait_names_who_still_works(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = family([reply(calls=[GROUP]), reply("they run"), reply("all in")], **three(quick=10, middling=50, slow=90))
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        await session.exchange("parent")
        ids = tuple(child.id for child in session.task.children)
        await until(lambda: not session.running() and not session.busy)
        turns = [event.unfinished_children for event in lab.of(TurnEnded, session.task.id)]
        kept = await lab.runtime.store.events_of_type("turn.ended", session_id=session.id)
        await session.close()
    assert turns == [(), ids, ()]
    assert sum(b'"unfinished_children":["async_' in row.body for row in kept) == 1


async def test_a_single_request_has_no_answer_before_its_children_ended(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = family([reply(calls=[GROUP]), reply("too early"), reply("all in")], **three(quick=1, middling=2, slow=3))
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        result = await lab.ask("parent")
        assert {event.unfinished_children for event in lab.of(TurnEnded)} == {()}
    assert result.summary == "all in"
