"""A machine that slept, or a process that was stopped: what was asked of models is asked again, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from hermes.chat.stream import Narrator
from hermes.compose import open_runtime
from hermes.core.events import CredentialCooled, LoopStalled, RetryWaiting, StreamRestarted, TaskPhase
from hermes.core.result import TaskResult
from hermes.core.views import TaskView
from hermes.observe.transcript_text import lines_of
from hermes.testing.faults import Stall
from hermes.testing.lab import Lab
from hermes.testing.scripted import reply
from hermes.testing.server import ProviderServer, serve_in_thread
from tests.compose.served import parts_for

ROOT = Path(__file__).parents[2]


@pytest.mark.anyio
async def test_after_a_sleep_each_request_under_way_is_asked_again_by_the_same_key(tmp_path: Path) -> None:
    ahead, results = [0.0], list[TaskResult]()
    slept = anyio.Event()

    def script(request: object) -> object:
        return reply("whole") if slept.is_set() else Stall(reply=reply("half a reply", pieces=4), events=3)

    async with ProviderServer(script) as server:  # type: ignore[arg-type]
        parts = await anyio.to_thread.run_sync(
            lambda: parts_for(server.base_url, tmp_path, awake=lambda: time.monotonic() + ahead[0])
        )
        async with open_runtime(parts) as assembly:
            lab = Lab(assembly, tmp_path)

            async def ask() -> None:
                results.append(await lab.ask("go"))

            with anyio.fail_after(100):
                async with anyio.create_task_group() as group:
                    group.start_soon(ask)
                    group.start_soon(ask)
                    while server.in_flight < 2:
                        await anyio.sleep(0.01)
                    before = len(lab.of(LoopStalled))  # a busy machine may have let what is loaded first take long
                    slept.set()
                    ahead[0] = 3_600
    assert [(each.state, each.summary) for each in results] == [("completed", "whole")] * 2
    assert server.count == 4 and {request.key for request in server.requests} == {"sk-aaaa-0123456789"}
    told = lab.of(RetryWaiting)
    assert [(event.reason, event.attempt, event.seconds) for event in told] == [("suspended", 1, 0.0)] * 2
    assert len(lab.of(StreamRestarted)) == 2, "what came of the lost replies is taken back from whoever watched"
    assert not lab.of(CredentialCooled) and len(lab.of(LoopStalled)) == before
    slept = lab.of(TaskPhase)
    assert [event.slept for event in slept if event.slept] == [pytest.approx(3_600, abs=30)] * 2
    assert all(result.elapsed < 600 for result in results) and {view.elapsed < 600 for view in _views(lab)} == {True}
    said = _said(lab)
    assert said == [
        "⏳ what was asked is asked again: nothing ran here for 60 min (the machine slept, or the process was "
        "stopped). "
        f"The request to 127.0.0.1:{server.port} was dropped."
    ]
    (kept, _) = [each for each in lab.events if isinstance(each.event, RetryWaiting)]
    assert "asks again: nothing ran here for 60 min" in lines_of(kept)


def _views(lab: Lab) -> list[TaskView]:
    return list(lab.runtime.bus.tree.tasks.values())


def _said(lab: Lab) -> list[str]:
    """What a person reads of it, the conversations seen as one."""
    said: list[str] = []
    narrator = Narrator(lab.runtime.bus.tree, said.append, session_id=lambda: "one")
    for envelope in lab.events:
        if isinstance(envelope.event, RetryWaiting):
            narrator.tell(msgspec.structs.replace(envelope, session_id="one"))
    return said


def test_a_program_that_was_stopped_asks_again_when_it_goes_on(tmp_path: Path) -> None:
    ahead = tmp_path / "ahead"
    ahead.write_text("0")
    steps = [Stall(), reply("whole")]
    with serve_in_thread(steps) as server:
        command = [sys.executable, "-m", "tests.compose.sleeper", server.base_url, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ) as program:
            try:
                _until(lambda: server.in_flight == 1)
                program.send_signal(signal.SIGSTOP)
                _until(lambda: Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
                ahead.write_text("100")
                program.send_signal(signal.SIGCONT)
                output = program.communicate(timeout=100)[0]
            finally:
                program.kill()
        assert server.count == 2
    assert output.splitlines()[-1] == "answer: whole"
    assert [line[:18] for line in output.splitlines()[:-1]] == ["again: suspended 1"]


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end, "the program did not come that far"
        time.sleep(0.01)
