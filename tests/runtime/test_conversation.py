"""A conversation end to end on a scripted model: turns, tools, interrupts, background runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from hermes.core.codec import decode_entry
from hermes.core.errors import ModelError, OperatorError
from hermes.core.messages import LARGE, Assistant, Interrupted, ToolResult, User, plain_text
from hermes.core.model import ModelRequest
from hermes.runtime.control import Receipt
from hermes.runtime.pace import ATTENDED, ROUND
from hermes.runtime.rows import stored_spec
from hermes.store.ops import PutInbox, Store, Ticket, Unit
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import EndlessModel, Reply, ScriptedModel, call, hang, reply

pytestmark = pytest.mark.anyio


async def test_single_request_runs_a_command(tmp_path: Path) -> None:
    model = ScriptedModel("m", [reply(calls=[call("terminal", command="echo привет")]), reply("It said привет.")])
    async with open_lab(model, workspace=tmp_path) as lab:
        result = await lab.ask("say it")
    assert result.state == "completed"
    assert result.summary == "It said привет."
    assert result.api_calls == 2
    results = [entry for entry in model.requests[1].entries if isinstance(entry, ToolResult)]
    assert "привет" in plain_text(results[0].content)
    model.assert_complete()


async def test_conversation_keeps_its_history(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("one"), reply("two")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        assert (await session.exchange("first")).text == "one"
        assert (await session.exchange("second")).text == "two"
    kinds = [type(entry) for entry in model.requests[1].entries]
    assert kinds == [User, Assistant, User]


class Late:
    """A journal whose tickets for messages are kept back until `let_go`; everything else of it is the real one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.let_go = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def submit(self, unit: Unit) -> Any:
        ticket = self._store.submit(unit)
        return Kept(ticket, self.let_go) if any(isinstance(op, PutInbox) for op in unit.ops) else ticket


class Kept:
    def __init__(self, ticket: Ticket, let_go: anyio.Event) -> None:
        self._ticket = ticket
        self._let_go = let_go
        self.done = False

    async def wait(self) -> None:
        await self._let_go.wait()
        await self._ticket.wait()


async def test_a_line_is_read_while_its_own_row_is_on_its_way(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("one")])
    late: list[Late] = []

    def wrap(store: Store) -> Store:
        late.append(Late(store))
        return cast(Store, late[0])

    returned: list[Receipt] = []
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, wrap_store=wrap) as lab:
        session = await lab.converse()

        async def say() -> None:
            returned.append(await session.say("first"))

        async with anyio.create_task_group() as group:
            group.start_soon(say)
            while not model.requests:
                await anyio.sleep(0.01)
            assert not returned, "whoever said it hears that it is kept once it is"
            late[0].let_go.set()
        receipt = returned[0]
        assert lab.runtime.control.view(session.task).receipts[receipt.id]["state"] == "delivered"


async def test_a_line_that_is_on_its_way_when_a_conversation_is_handed_over_is_read_there(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel("m", [hang()])
    late: list[Late] = []

    def wrap(store: Store) -> Store:
        late.append(Late(store))
        return cast(Store, late[0])

    async with open_lab(model, workspace=tmp_path, clock=virtual_clock, wrap_store=wrap) as lab:
        session = await lab.converse()

        async def ask() -> None:
            with pytest.raises(OperatorError, match="ended before it answered: handed over"):
                await session.exchange("first")

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not model.in_flight:
                await anyio.sleep(0.01)
            await lab.runtime.supervisor.let_go(session.id, "handed over")
            assert session.task.id not in lab.runtime.bus.tree.tasks
            late[0].let_go.set()
        (row,) = await lab.runtime.store.inbox(session.task.id)
        assert row.state == "delivered"
        with pytest.raises(OperatorError, match="has ended"):
            await session.say("second")


async def test_others_are_let_by_more_slowly_only_while_a_person_waits(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    seen: dict[str, int] = {}

    def step(request: ModelRequest) -> Reply:
        child = plain_text(request.entries[0].content) == "part"  # type: ignore[union-attr]
        seen["child" if child else f"turn {len(request.entries)}"] = pace.most
        if child:
            return reply("done", delay=1)
        asked = len(request.entries) == 1
        return reply(calls=[call("delegate_task", goal="part")]) if asked else reply("all done")

    async with open_lab(EndlessModel(step), workspace=tmp_path, clock=virtual_clock) as lab:
        pace = lab.runtime.supervisor.admission.pace
        session = await lab.converse()
        await session.exchange("go")
        assert seen == {"turn 1": ATTENDED, "child": ROUND, "turn 3": ATTENDED}
        assert pace.most == ROUND, "it rests"
        await session.close()
        assert pace.most == ROUND


async def test_a_stop_before_anything_was_said_does_not_stop_what_is_said_next(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel("m", [reply("one")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        assert not session.stop_turn(), "its agent is not even built, and nothing waits for it"
        assert (await session.exchange("go")).text == "one"
        assert not session.stop_turn()


async def test_a_goal_is_stopped_before_its_turn_begins(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    def step(request: ModelRequest) -> Any:
        return reply("two") if len(request.entries) > 1 else hang()

    async with open_lab(EndlessModel(step), workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse(goal="first")
        assert session.stop_turn()
        await session.exchange("second")
        while session.task.outcome is None or session.task.outcome.text != "two":
            await session.task.rested.wait()


async def test_interrupt_stops_the_turn_and_the_conversation_goes_on(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    model = ScriptedModel("m", [hang(), reply("here")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        await session.say("think for ever")
        while model.in_flight == 0:
            await anyio.sleep(0.01)
        assert session.interrupt("enough")
        outcome = await session.exchange("are you there?")
    assert outcome.text == "here"
    assert any(isinstance(entry, Interrupted) for entry in model.requests[1].entries)


async def test_a_failed_turn_does_not_end_the_conversation(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [ModelError("no money", reason="billing"), reply("again")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        session = await lab.converse()
        failed = await session.exchange("first")
        assert failed.state == "failed" and "no money" in failed.error
        assert (await session.exchange("second")).text == "again"


async def test_invalid_calls_go_back_and_end_as_partial_after_three(tmp_path: Path) -> None:
    bad = reply(calls=[call("nonsense", x=1)])
    model = ScriptedModel("m", [bad, reply(calls=[call("terminal", raw="{broken")]), bad])
    async with open_lab(model, workspace=tmp_path) as lab:
        result = await lab.ask("go")
    assert result.state == "failed" and result.partial
    texts = [plain_text(e.content) for e in model.requests[2].entries if isinstance(e, ToolResult)]
    assert "no tool named 'nonsense'" in texts[0]
    assert "not valid JSON" in texts[1]


@pytest.mark.fault("B007")
async def test_turn_cap_brings_a_summary_and_says_truncated(tmp_path: Path) -> None:
    step = reply(calls=[call("terminal", command="true")])
    model = ScriptedModel("m", [step, step, step, reply("half done")])
    async with open_lab(model, workspace=tmp_path, settings={"agent.max_turns": 3}) as lab:
        result = await lab.ask("go")
    assert result.state == "exhausted" and result.truncated
    assert result.exit_reason == "max_iterations"
    assert result.summary == "half done"
    assert model.requests[-1].tool_choice == "none"


async def test_a_goal_of_many_megabytes_stands_in_the_journal_whole_and_without_secrets(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    """Whatever is that large is encoded in a thread."""
    secret = "sk-" + "live-0123456789abcdef0123456789"
    goal = "much to read " * (LARGE // 13 + 1)
    model = ScriptedModel("m", [reply("read")])
    async with open_lab(model, workspace=tmp_path, clock=virtual_clock) as lab:
        task = await lab.start(f"{goal}{secret}")
        assert (await lab.runtime.result(task)).summary == "read"
        store = lab.runtime.store
        row = await store.task(task.id)
        first = decode_entry((await store.entries(task.id))[0][1])
    assert row is not None and plain_text(stored_spec(row).goal) == f"{goal}[redacted:api_key]"
    assert isinstance(first, User) and plain_text(first.content) == f"{goal}[redacted:api_key]"
