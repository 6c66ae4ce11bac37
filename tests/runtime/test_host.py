"""The host takes up what it is asked to, refuses what it cannot run, and ends when there is nothing to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.compose import conversation_spec
from hermes.core.errors import OperatorError
from hermes.runtime.host import Host
from hermes.runtime.moving import offer
from hermes.runtime.outside import NOBODY
from hermes.runtime.remote import Remote
from hermes.runtime.spec import ModelChoice
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import Lab, open_lab
from hermes.testing.scripted import ScriptedModel, call, hang, reply

pytestmark = pytest.mark.anyio


class Serving:
    """A host in a lab, and how it ended."""

    def __init__(self, lab: Lab, remote: Remote) -> None:
        self.lab = lab
        self.remote = remote
        self.log: list[str] = []
        self.why = ""
        self.stop = False
        self.missing = ""

    def check(self, choice: ModelChoice) -> None:
        if self.missing:
            raise OperatorError(self.missing)

    async def run(self) -> None:
        async def asked() -> bool:
            return self.stop

        recovery = self.lab.assembly.recovery
        host = Host(self.lab.runtime.supervisor, recovery, check=self.check, asked_to_stop=asked, say=self.log.append)
        self.why = await host.run()

    async def place(self, goal: str) -> str:
        """Store a question that nobody has, and offer it."""
        spec, _ = conversation_spec(self.lab.assembly, goal=goal, interactive=False, workspace=str(self.lab.workspace))
        session = await self.lab.runtime.place(spec)
        await offer(self.remote, session)
        return session


@asynccontextmanager
async def serving(model: ScriptedModel, folder: Path, clock: VirtualClock) -> AsyncIterator[Serving]:
    async with open_lab(model, workspace=folder, clock=clock, memory=False) as lab:
        remote = Remote(
            lab.runtime.store,
            is_gone=lambda owner: False,
            ring=lambda owner: False,
            clock=clock,
            redact=lambda body: body,
            hold=clock,
        )
        yield Serving(lab, remote)


async def test_it_runs_what_it_is_asked_to_and_ends_a_minute_later(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    model = ScriptedModel("m", [reply("42", delay=100)])
    async with serving(model, tmp_path, virtual_clock) as there:
        session = await there.place("the answer?")
        (row,) = await there.remote.store.tasks(session)
        assert (row.owner, row.state) == (NOBODY, "queued")
        began = anyio.current_time()
        await there.run()
        assert there.why == "nothing to do for 60 s" and 159 <= anyio.current_time() - began < 165
        assert there.log == [f"session {session} was taken up"]
        (row,) = await there.remote.store.tasks(session)
        assert (await there.remote.collect(row))["summary"] == "42"
        (request,) = await there.remote.store.inbox(row.task_id)
        assert request.state == "delivered" and await there.remote.check(row) == await there.remote.check(row)
        assert "receipts" not in await there.remote.check(row)


async def test_a_conversation_that_waits_for_a_person_is_no_work(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    scripts = {"go": [reply(calls=[call("delegate_task_async", goal="dig")]), hang()], "dig": [hang()]}
    first = ScriptedModel("m", scripts=scripts)
    async with open_lab(first, workspace=tmp_path, clock=virtual_clock, memory=False) as lab:
        conversation = await lab.converse(goal="go")
        while first.in_flight < 2:
            await anyio.sleep(0.01)
    scripts = {"go": [reply("it digs"), reply("gold it is")], "dig": [reply("gold", delay=300)]}
    second = ScriptedModel("m", scripts=scripts, check=False)
    async with serving(second, tmp_path, virtual_clock) as there:
        gone = Remote(
            there.lab.runtime.store, is_gone=lambda owner: True, ring=lambda owner: False, clock=virtual_clock,
            redact=lambda body: body, hold=virtual_clock,
        )  # fmt: skip
        await offer(gone, conversation.id)
        began = anyio.current_time()
        await there.run()
        assert 359 <= anyio.current_time() - began < 370
    second.assert_complete()


async def test_what_it_cannot_run_stays_as_it_is(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    async with serving(ScriptedModel("m", []), tmp_path, virtual_clock) as there:
        there.missing = "no key for example.org"
        session = await there.place("hello")
        await there.run()
        assert there.log == [f"session {session} was not taken up: no key for example.org"]
        (row,) = await there.remote.store.tasks(session)
        assert row.owner == NOBODY and row.ended_at is None
        (request,) = await there.remote.store.inbox(row.task_id)
        assert request.state == "refused"


async def test_it_stops_when_asked(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    async with serving(ScriptedModel("m", [hang()]), tmp_path, virtual_clock) as there:
        session = await there.place("for ever")
        async with anyio.create_task_group() as group:
            group.start_soon(there.run)
            await anyio.sleep(200)
            assert not there.why and there.lab.runtime.supervisor.tasks
            there.stop = True
        assert there.why == "asked to stop"
    assert session
