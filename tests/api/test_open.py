"""`hermes.open` and `hermes.open_async`: the verbs on tasks from Python."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import anyio
import pytest

import hermes
from hermes.core.errors import UsageError
from hermes.core.messages import Steer
from hermes.core.model import ModelRequest
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import EndlessModel, ScriptedModel, call, first_user_text, hang, reply
from tests.runtime.repository import new_repository


class Steps:
    """A model whose tasks work until they are told to finish."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def __call__(self, request: ModelRequest) -> object:
        self.asked.set()
        if first_user_text(request) == "quick":
            return reply("quick report")
        if any(isinstance(entry, Steer) and entry.text == "finish" for entry in request.entries):
            return reply("finished as told")
        return reply(calls=[call("todo", todos=[])], delay=0.01)


def test_the_verbs_without_an_event_loop(tmp_path: Path) -> None:
    steps = Steps()
    with hermes.open(model=EndlessModel(steps), memory=True, workspace=str(tmp_path)) as h:
        assert h.list() == {"tasks": [], "active": 0, "limit": 10}
        assert h.delegate("quick")["summary"] == "quick report"
        steps.asked.clear()
        slow = h.delegate_async("slow")
        assert slow.startswith("async_")
        assert h.check(slow)["status"] in ("queued", "running")
        assert steps.asked.wait(60), "it runs"
        late = h.collect(slow, timeout=0.02)
        assert late["timed_out"] is True and late["status"] == "running"
        assert h.wait([slow], timeout=0) == {"ended": [], "running": [slow], "timed_out": True}
        assert h.steer(slow, "finish")["ok"] is True
        assert h.wait([slow], mode="any")["ended"] == [slow]
        first, again = h.collect(slow), h.collect(slow[:10])
        assert first["summary"] == "finished as told" and first == again
        assert h.check(slow)["receipts"][0]["state"] == "delivered"
        assert h.steer(slow, "more") == {"ok": False, "error": f"Task {slow} is not running (status: completed)."}
        endless = h.delegate_async("endless")
        assert h.cancel(endless)["cancelled"] == endless
        assert h.collect(endless)["status"] == "cancelled"
        assert h.cancel(endless)["ok"] is False
        assert [row["status"] for row in h.list()["tasks"]] == ["cancelled", "completed", "completed"]
        for answer in (h.check("nope"), h.steer("nope", "x"), h.collect("nope"), h.cancel("nope")):
            assert answer["error"] == "Task not found: nope"
        assert h.wait(["nope", slow])["error"] == "Task not found: nope"
        assert "message is required" in h.steer(slow, " ")["error"]
        with pytest.raises(UsageError, match="goal is required"):
            h.delegate_async("")
        with pytest.raises(UsageError, match="mode is"):
            h.wait([slow], mode="some")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not open"):
        h.list()


def test_ctrl_c_ends_the_wait_and_not_the_task(tmp_path: Path) -> None:
    steps = Steps()
    with hermes.open(model=EndlessModel(steps), memory=True, workspace=str(tmp_path)) as h:
        task = h.delegate_async("slow")
        living = h.portal.value.assembly.runtime.supervisor.tasks[task]

        def press() -> None:
            while not living.collectors or not steps.asked.is_set():
                steps.asked.wait(0.001)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            h.collect(task)
        presser.join()
        assert h.check(task)["status"] == "running"
        h.steer(task, "finish")
        assert h.collect(task)["summary"] == "finished as told"


def test_leaving_suspends_or_cancels(tmp_path: Path) -> None:
    for on_exit, state in (("suspend", "queued"), ("cancel", "cancelled")):
        with hermes.open(
            model=ScriptedModel(steps=[hang()]), memory=True, workspace=str(tmp_path), on_exit=on_exit
        ) as h:
            supervisor = h.portal.value.assembly.runtime.supervisor
            bus = h.portal.value.assembly.runtime.bus
            task = h.delegate_async("slow")
        ended = supervisor.tasks[task].state
        assert bus.tree.tasks[task].state == ("suspended" if on_exit == "suspend" else "cancelled")
        assert (ended == "cancelled") == (state == "cancelled")


@pytest.mark.anyio
async def test_the_real_interface_is_asynchronous(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    async with hermes.open_async(
        model=ScriptedModel(scripts={"a": [reply("A", delay=6000)], "b": [reply("B", delay=3000)]}),
        memory=True,
        workspace=str(tmp_path),
        clock=virtual_clock,
        hold=virtual_clock,
    ) as h:
        a, b = await h.delegate_async("a"), await h.delegate_async("b", timeout=6000, max_iterations=3)
        assert (await h.wait([a, b], mode="any"))["ended"] == [b]
        assert (await h.collect(a, timeout=10))["timed_out"] is True
        assert (await h.collect(a))["summary"] == "A"
        with anyio.fail_after(1):
            assert (await h.collect(a))["elapsed"] >= 6000
        assert (await h.delegate_async("b", timeout=5)) and (await h.list())["active"] == 1


def test_a_task_in_a_worktree_of_its_own(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "repo")
    before = repository.state()

    def steps(request: ModelRequest) -> object:
        if len(request.entries) == 1:
            return reply(calls=[call("terminal", command="echo x > x && git add x && git commit -qm x && pwd")])
        return reply("done")

    settings = {"terminal.backend": "local"}
    with hermes.open(model=EndlessModel(steps), memory=True, workspace=str(repository.path), settings=settings) as h:
        name = h.delegate_async("work", workspace="worktree", toolsets=["terminal"])
        place = h.collect(name)["worktree"]
        assert place["branch"] == f"hermes/{name}" and place["commits"] == 1
        with pytest.raises(UsageError, match="workspace is one of"):
            h.delegate_async("work", workspace="elsewhere")
    assert repository.state() == before
