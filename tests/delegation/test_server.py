"""Delegation against the loopback provider: order of reports, the six verbs, many children at once."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import hermes
from hermes.compose import conversation_spec
from hermes.core.events import Envelope, TaskEnded
from hermes.core.messages import Notice
from hermes.runtime.session import Session
from hermes.testing.faults import Fault
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import ProviderServer, Request, Script
from tests.processes import sleeping

pytestmark = pytest.mark.anyio


def results(request: Request) -> list[dict[str, Any]]:
    """The tool results after the last reply of a request, decoded."""
    found: list[dict[str, Any]] = []
    for message in reversed(request.messages):
        if message["role"] == "assistant":
            break
        if message["role"] == "tool":
            found.insert(0, json.loads(message["content"].split("\n\n[")[0]))
    return found


def by_goal(**scripts: Script) -> Script:
    """A script for each task, chosen by the first word of its goal."""

    def script(request: Request) -> Reply | Fault | Awaitable[Reply | Fault]:
        return scripts[request.first_user.split()[0]](request)

    return script


def open_on(server: ProviderServer, workspace: Path, **settings: Any) -> Any:
    return hermes.open_async(
        model="test-model",
        base_url=server.base_url,
        api_key="sk-test-12345678",
        memory=True,
        workspace=str(workspace),
        settings=settings,
    )


async def converse(h: hermes.AsyncHermes, workspace: Path) -> Session:
    spec, _ = conversation_spec(h.assembly, interactive=True, workspace=str(workspace), unattended=False)
    return await h.assembly.runtime.open_session(spec, source="test")


async def test_three_reports_come_in_order_though_they_end_in_another(tmp_path: Path) -> None:
    def parent(request: Request) -> Reply:
        if request.turn == 0:
            return reply(
                calls=[call("spawn_parallel", tasks=[{"prompt": f"child {n}"} for n in ("slow", "mean", "fast")])]
            )
        return reply("all three are here")

    after = {"slow": "mean", "mean": "fast"}
    over = {name: anyio.Event() for name in ("slow", "mean", "fast")}
    ended: list[str] = []

    async def child(request: Request) -> Reply:
        name = request.first_user.split()[1]
        if name in after:
            await over[after[name]].wait()
        return reply(f"report of {request.first_user}")

    def hear(envelope: Envelope) -> None:
        if isinstance(envelope.event, TaskEnded):
            ended.append(envelope.event.summary.split()[-1])
            if ended[-1] in over:
                over[ended[-1]].set()

    async with (server := ProviderServer(by_goal(parent=parent, child=child))), open_on(server, tmp_path) as h:
        h.assembly.runtime.bus.subscribe(hear)
        answer = await h.delegate("parent")
    assert answer["summary"] == "all three are here"
    assert ended[:3] == ["fast", "mean", "slow"]
    (given,) = results(server.requests[-1])
    assert [entry["summary"] for entry in given["results"]] == [
        f"report of child {n}" for n in ("slow", "mean", "fast")
    ]
    assert [entry["task_index"] for entry in given["results"]] == [0, 1, 2]
    assert {entry["status"] for entry in given["results"]} == {"completed"}


class SixVerbs:
    """The scripts of a parent that uses all six asynchronous tools on three children."""

    def __init__(self, started: Path) -> None:
        self.started = started
        self.seconds = f"300.{os.getpid()}"
        self.ids: dict[str, str] = {}
        self.seen: dict[str, list[dict[str, Any]]] = {}
        self.steered = anyio.Event()

    async def parent(self, request: Request) -> Reply:
        given = results(request)
        match request.turn:
            case 0:
                return reply(calls=[call("delegate_task_async", goal=goal) for goal in ("worker", "victim", "quick")])
            case 1:
                self.ids = dict(zip(("worker", "victim", "quick"), (item["task_id"] for item in given), strict=True))
                self.seen["dispatched"] = given
                while not await anyio.to_thread.run_sync(self.started.exists):
                    await anyio.sleep(0.02)
                looks = [call("check_task", task_id=self.ids[name]) for name in ("worker", "victim")]
                return reply(calls=[*looks, call("list_tasks")])
            case 2:
                self.seen["looked"] = given
                return reply(
                    calls=[
                        call("steer_task", task_id=self.ids["worker"], message="Count in French."),
                        call("cancel_task", task_id=self.ids["victim"]),
                    ]
                )
            case 3:
                self.seen["controlled"] = given
                self.steered.set()
                names = ("worker", "quick", "victim")
                return reply(calls=[call("collect_task", task_id=self.ids[name]) for name in names])
        self.seen["collected"] = given
        return reply("over")

    async def worker(self, request: Request) -> Reply:
        if any("Count in French." in str(message["content"]) for message in request.messages):
            return reply("un, deux, trois")
        if request.turn > 0:
            await self.steered.wait()
        return reply(calls=[call("todo", todos=[])])

    def victim(self, request: Request) -> Reply:
        return reply(calls=[call("terminal", command=f"touch {self.started}; sleep {self.seconds}")])

    def quick(self, request: Request) -> Reply:
        return reply("quick report")


async def test_one_conversation_uses_the_six_verbs(tmp_path: Path) -> None:
    script = SixVerbs(tmp_path / "started")
    server = ProviderServer(
        by_goal(parent=script.parent, worker=script.worker, victim=script.victim, quick=script.quick)
    )
    async with server, open_on(server, tmp_path) as h:
        answer = await h.delegate("parent")
        assert not await anyio.to_thread.run_sync(sleeping, script.seconds), "a cancelled child leaves no command"
    assert answer["summary"] == "over" and answer["status"] == "completed"
    assert [item["status"] for item in script.seen["dispatched"]] == ["running"] * 3
    worker, victim, listing = script.seen["looked"]
    assert (worker["status"], victim["status"]) == ("running", "running")
    assert {row["task_id"] for row in listing["tasks"]} == set(script.ids.values())
    steered, cancelled = script.seen["controlled"]
    assert steered["ok"] is True and cancelled["cancelled"] == script.ids["victim"]
    worker, quick, victim = script.seen["collected"]
    assert (worker["status"], worker["summary"]) == ("completed", "un, deux, trois")
    assert (quick["status"], quick["summary"]) == ("completed", "quick report")
    assert (victim["status"], victim["exit_reason"]) == ("cancelled", "interrupted")
    by_victim = [request for request in server.requests if request.first_user == "victim"]
    assert len(by_victim) == 1, "a cancelled child asks nothing more"
    reading = [request for request in server.requests if request.first_user == "worker" and "French" in request.last]
    assert len(reading) == 1 and "OUT-OF-BAND" in reading[0].last
    assert "DELEGATION COMPLETE" not in server.requests[-1].last, "what was collected needs no notice"


CHILDREN = 200


class Crowd:
    """Scripts of a conversation with two hundred children and one more; none of them ends before it may."""

    def __init__(self) -> None:
        self.steered = anyio.Event()
        self.may_end = anyio.Event()

    def parent(self, request: Request) -> Reply:
        said = str(request.messages)
        if "are you there" in said and "yes, here" not in said:
            return reply("yes, here")
        if request.turn == 0:
            tasks = [{"goal": f"child {n}"} for n in range(CHILDREN)]
            return reply(calls=[call("delegate_task", tasks=tasks, background=True)])
        if request.turn == 1:
            return reply(calls=[call("delegate_task_async", goal="extra one")])
        if request.turn == 2:
            (given,) = results(request)
            return reply(calls=[call("steer_task", task_id=given["task_id"], message="Be brief.")])
        self.steered.set()
        return reply("noted")

    async def child(self, request: Request) -> Reply:
        if request.turn < 2:
            return reply(calls=[call("todo", todos=[])], delay=0.2)
        await self.may_end.wait()
        return reply(f"report of {request.first_user}")

    async def extra(self, request: Request) -> Reply:
        if "Be brief." in str(request.messages):
            return reply("brief")
        if request.turn > 0:
            await self.steered.wait()
        return reply(calls=[call("todo", todos=[])])


@pytest.mark.timeout(600)
async def test_a_crowd_of_children_blocks_nobody(tmp_path: Path) -> None:
    script = Crowd()
    server = ProviderServer(
        by_goal(parent=script.parent, child=script.child, extra=script.extra), latency=0.1, jitter=0.9, seed=7
    )
    settings = {"delegation.max_concurrent_children": CHILDREN + 1, "delegation.max_live_children": CHILDREN + 1}
    async with server, open_on(server, tmp_path, **settings) as h:
        session = await converse(h, tmp_path)
        first = await session.exchange("parent go")
        assert first.text == "noted"
        assert len(session.running()) >= CHILDREN, "the parent answers before its children are done"
        assert any(task.state == "running" for task in session.running()), "they work while the parent talks"
        assert (await session.exchange("are you there?")).text == "yes, here"
        assert len(session.running()) >= CHILDREN, "the line was answered before they were done"
        script.may_end.set()
        with anyio.fail_after(100):
            while session.running() or session.busy:
                await anyio.sleep(0.02)
        children = [task for task in h.assembly.runtime.supervisor.tasks.values() if task.parent is session.task]
        assert len(children) == CHILDREN + 1 and {task.state for task in children} == {"completed"}
        (extra,) = [task for task in children if task.scope.path[-1] == "extra one"]
        assert extra.result is not None and extra.result.summary == "brief"
        history = session.task.history
        assert history is not None
        told = [task for entry in history.full() if isinstance(entry, Notice) for task in entry.tasks]
        assert sorted(told) == sorted(task.id for task in children), "each end is told, and once"
        await session.close()
