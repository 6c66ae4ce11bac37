"""Background processes: started, looked at, waited for, ended."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from hermes.core.clock import held
from hermes.core.environment import ProcessInfo
from hermes.core.errors import ToolError
from hermes.core.scope import CallKey
from hermes.environments.local import LocalSettings
from hermes.environments.output import OutputLimits
from hermes.environments.process import group_members
from hermes.testing.clock import VirtualClock

pytestmark = pytest.mark.anyio
ONE = f"sa-{os.getpid():x}"  # of this run alone
KEY = CallKey(ONE, 1, 0)


async def members(pgid: int) -> list[int]:
    return await anyio.to_thread.run_sync(group_members, pgid)


async def test_start_poll_wait(make: Any) -> None:
    ended: list[ProcessInfo] = []
    env = make(on_ended=ended.append)
    await env.run("cd /usr; export WORD=seen; mkfifo $OLDPWD/gate", key=KEY)
    info = await env.start(f"pwd; echo $WORD; cat {env.workspace}/gate; cd /; exit 4", key=KEY)
    assert (info.state, info.process_id[:5], len(info.process_id), info.limit) == ("running", "proc_", 13, None)
    await env.run(f"echo more > {env.workspace}/gate", key=KEY)
    output = await env.wait(info.process_id, 60)
    assert (output.info.state, output.info.exit_code) == ("exited", 4)
    assert output.text == "/usr\nseen\nmore\n"
    assert (await env.poll(info.process_id)).text == ""
    assert env.cwd == "/usr"
    assert [one.state for one in ended] == ["exited"]
    assert [one.process_id for one in env.processes()] == [info.process_id]


async def test_a_wait_that_is_too_short_says_running(make: Any) -> None:
    env = make()
    info = await env.start("sleep 160", key=KEY)
    assert (await env.wait(info.process_id, 0.05)).info.state == "running"
    killed = await env.kill(info.process_id)
    assert (killed.state, killed.reason, killed.exit_code) == ("killed", "request", 143)
    assert await members(info.pid) == []
    assert (await env.kill(info.process_id)).state == "killed"


async def test_log_pages_through_lines(make: Any) -> None:
    env = make()
    info = await env.start("seq 1 100", key=KEY)
    await env.wait(info.process_id, 60)
    last = await env.log(info.process_id, limit=3)
    assert (last.text, last.first, last.total_lines) == ("98\n99\n100", 98, 100)
    first = await env.log(info.process_id, offset=2, limit=2)
    assert (first.text, first.first) == ("2\n3", 2)


async def test_old_lines_go_and_their_numbers_stay(make: Any) -> None:
    env = make(settings=LocalSettings(output=OutputLimits(memory=1_000)))
    info = await env.start("seq 1 2000", key=KEY)
    await env.wait(info.process_id, 60)
    last = await env.log(info.process_id, limit=2)
    assert (last.text, last.total_lines) == ("1999\n2000", 2000)
    assert (await env.log(info.process_id, offset=1, limit=2)).truncated


@pytest.mark.fault("B051")
async def test_the_policy_limit_is_named_and_its_kill_is_told(make: Any, virtual_clock: VirtualClock) -> None:
    ended: list[ProcessInfo] = []
    settings = LocalSettings(background_limit=30.5, grace=0.2)
    env = make(on_ended=ended.append, settings=settings, hold=virtual_clock)
    with held(virtual_clock):
        info = await env.start("echo so far; sleep 160", key=KEY)
        assert info.limit == 30.5
        while (await env.log(info.process_id)).text != "so far":
            await anyio.to_thread.run_sync(time.sleep, 0.01)
        virtual_clock.jump(29.0)
        await anyio.lowlevel.checkpoint()
        assert [one.state for one in env.processes()] == ["running"]
        virtual_clock.jump(1.5)
        output = await env.wait(info.process_id, 60)
    assert (output.info.state, output.text) == ("killed", "so far\n")
    assert ended[0].reason == "policy: it ran longer than 30.5 s"


async def test_output_without_end_is_ended_by_policy(make: Any) -> None:
    env = make(settings=LocalSettings(output=OutputLimits(disk=2_500_000), grace=0.2))
    info = await env.start("yes", key=KEY)
    output = await env.wait(info.process_id, 100)
    assert output.info.reason == "policy: it printed more than 2500000 bytes"
    assert Path(output.output_path).stat().st_size < 6_000_000


async def ready(env: Any, processes: list[ProcessInfo]) -> None:
    with anyio.fail_after(60):
        for one in processes:
            while "ready" not in (await env.log(one.process_id)).text:
                await anyio.sleep(0.01)


async def test_closing_ends_what_does_not_listen_and_names_it(make: Any) -> None:
    env = make(settings=LocalSettings(grace=0.4))
    stubborn = [await env.start("trap '' TERM; echo ready; sleep 160 & wait; sleep 160", key=KEY) for _ in range(3)]
    done = await env.start("true", key=KEY)
    await env.wait(done.process_id, 60)
    await ready(env, stubborn)
    killed = await env.close()
    assert [one.process_id for one in killed] == [one.process_id for one in stubborn]
    assert {one.reason for one in killed} == {"the task ended"}
    for one in stubborn:
        assert await members(one.pid) == []
    assert await env.close() == killed


async def test_closing_ends_all_at_once(make: Any) -> None:
    # Each goes when all three were told to: one after the other they would have to be killed, the first ones at least.
    env = make(settings=LocalSettings(grace=60))
    told = "touch told$N; until [ -e told1 ] && [ -e told2 ] && [ -e told3 ]; do sleep 0.01; done; exit 7"
    waiting = [
        await env.start(f"N={number}; trap '{told}' TERM; echo ready; while :; do sleep 0.01; done", key=KEY)
        for number in (1, 2, 3)
    ]
    await ready(env, waiting)
    assert [one.exit_code for one in await env.close()] == [7, 7, 7]


async def test_closing_works_under_cancellation(make: Any) -> None:
    env = make()
    info = await env.start("sleep 160", key=KEY)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await env.close()
    assert await members(info.pid) == []


async def test_too_many_and_unknown_ones_are_refused(make: Any) -> None:
    env = make(settings=LocalSettings(max_background=1, grace=0.2))
    info = await env.start("sleep 160", key=KEY)
    with pytest.raises(ToolError, match="1 background processes run already"):
        await env.start("sleep 160", key=KEY)
    with pytest.raises(ToolError, match=f"proc_no.*{info.process_id}"):
        await env.poll("proc_no")


async def test_other_tasks_do_not_see_it(make: Any) -> None:
    info = await make(ONE).start("sleep 160", key=KEY)
    other = make(f"{ONE}-2")
    assert other.processes() == ()
    with pytest.raises(ToolError):
        await other.kill(info.process_id)
