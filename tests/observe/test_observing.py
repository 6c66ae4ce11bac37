"""A whole run that a person follows: its transcript, its notifications, and old sessions gone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import anyio
import pytest

from hermes.core.events import TaskQueued
from hermes.core.messages import ToolResult, plain_text
from hermes.core.model import ModelRequest
from hermes.store.ops import AddSession, SessionRow, Unit
from hermes.store.sqlite import open_store
from hermes.testing.lab import open_lab
from hermes.testing.scripted import EndlessModel, Reply, ScriptedModel, call, first_user_text, reply

pytestmark = pytest.mark.anyio

OLD = "20200225_143052_a1b2c3"


class Hook:
    """A loopback server that takes any POST."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.bodies: list[dict[str, object]] = []
        self.url = ""

    async def __aenter__(self) -> Hook:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/services/T0/s3cr3t-part"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        self.bodies.append(json.loads(await reader.readexactly(length)))
        writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


async def test_a_run_leaves_a_transcript_and_tells_its_end(tmp_path: Path) -> None:
    model = ScriptedModel("m", [reply(calls=[call("terminal", command="echo seven")]), reply("It is seven.")])
    async with Hook() as hook:
        settings = {"notify.webhook": hook.url}
        async with open_lab(model, workspace=tmp_path, memory=False, observed=True, settings=settings) as lab:
            result = await lab.ask("say it")
            session = lab.events[0].session_id
    live = tmp_path / ".hermes-home" / "cache" / "delegation" / "live" / session
    text = (live / f"{result.task_id}.log").read_text("utf-8")
    assert "→ terminal" in text and "seven" in text and "ended: completed" in text
    (row,) = json.loads((live / "manifest.json").read_text())["tasks"]
    assert (row["id"], row["status"], row["goal"]) == (result.task_id, "completed", "say it")
    assert [(body["event"], body["text"]) for body in hook.bodies] == [("done", "It is seven.")]


async def test_a_webhook_that_fails_changes_nothing_and_its_address_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Hook(status=500) as hook:
        settings = {"notify.webhook": hook.url}
        model = ScriptedModel("m", [reply("fine")])
        async with open_lab(model, workspace=tmp_path, memory=False, observed=True, settings=settings) as lab:
            assert (await lab.ask("go")).state == "completed"
    async with open_lab(
        ScriptedModel("m", [reply("fine")]), workspace=tmp_path, memory=False, observed=True, settings=settings
    ) as lab:
        assert (await lab.ask("go")).state == "completed"
    told = [record.getMessage() for record in caplog.records if "notify" in record.getMessage()]
    assert len(told) == 2 and "status 500" in told[0] and "127.0.0.1 cannot be reached" in told[1]
    assert "s3cr3t" not in caplog.text


async def test_a_child_names_its_transcript(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> Reply:
        if first_user_text(request).startswith("part"):
            return reply("part done")
        results = [entry for entry in request.entries if isinstance(entry, ToolResult)]
        if not results:
            return reply(calls=[call("delegate_task_async", goal="part")])
        child = json.loads(plain_text(results[0].content))["task_id"]
        if len(results) == 1:
            return reply(calls=[call("check_task", task_id=child)])
        return reply(plain_text(results[1].content))

    model = EndlessModel(answer)
    async with open_lab(model, workspace=tmp_path, memory=False, observed=True) as lab:
        result = await lab.ask("delegate it")
    path = Path(json.loads(result.summary)["live_transcript"])
    assert path.is_file() and "part done" in path.read_text("utf-8")


async def test_nothing_is_written_where_nobody_follows(tmp_path: Path) -> None:
    settings = {"store.transcript_days": 0}
    for observed, more in ((False, {}), (True, settings)):
        model = ScriptedModel("m", [reply("fine")])
        async with open_lab(model, workspace=tmp_path, memory=False, observed=observed, settings=more) as lab:
            await lab.ask("go")
            assert lab.of(TaskQueued)
    assert not (tmp_path / ".hermes-home" / "cache" / "delegation").exists()


async def test_old_sessions_go_while_the_run_works(tmp_path: Path) -> None:
    database = tmp_path / ".hermes-home" / "runtime.db"
    store = await open_store(database)
    await store.submit(
        Unit(ops=(AddSession(row=SessionRow(session_id=OLD, root_task="", created_at=1.0, updated_at=1.0)),))
    ).wait()
    await store.close()
    model = ScriptedModel("m", [reply("fine")])
    async with open_lab(model, workspace=tmp_path, memory=False, observed=True) as lab:
        await lab.ask("go")
        with anyio.fail_after(60):
            while await lab.runtime.store.session(OLD) is not None:
                await anyio.sleep(0.01)
    assert (tmp_path / ".hermes-home" / "cache" / "last-prune").exists()
