"""`execute_code` on the real runtime: what scripts can call, the gate and the limits they meet, and what is left."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from hermes.compose import conversation_spec
from hermes.config.approvals import ApprovalRule
from hermes.core.limits import Limits
from hermes.core.messages import ToolResult, plain_text
from hermes.core.scope import CallKey, TaskScope
from hermes.environments.local import LocalEnvironment
from hermes.environments.process import end_leftovers, processes_of_call
from hermes.testing.clock import VirtualClock
from hermes.testing.lab import open_lab
from hermes.testing.scripted import ScriptedModel, call, reply
from tests.processes import sleeping

pytestmark = pytest.mark.anyio
TOOLSETS = ("terminal", "file", "code_execution", "todo", "delegation")


async def scripts(
    tmp_path: Path,
    *codes: str,
    settings: dict[str, Any] | None = None,
    limits: Limits | None = None,
    toolsets: tuple[str, ...] = TOOLSETS,
    clock: VirtualClock | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """Run scripts one after the other in one conversation and return what each answered."""
    steps = [reply(calls=[call("execute_code", code=code, **more)]) for code in codes]
    model = ScriptedModel("m", [*steps, reply("over")])
    async with open_lab(model, workspace=tmp_path, settings=settings, clock=clock) as lab:
        spec, _ = conversation_spec(
            lab.assembly, goal="go", interactive=False, workspace=str(tmp_path), toolsets=toolsets
        )
        if limits is not None:
            spec = msgspec.structs.replace(spec, limits=limits)
        await lab.runtime.result(await lab.runtime.start(spec))
    results = [entry for entry in model.requests[-1].entries if isinstance(entry, ToolResult)]
    return [json.loads(plain_text(entry.content)) for entry in results]


async def test_a_script_calls_tools_and_only_what_it_prints_comes_back(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"f{number}.txt").write_text(f"{number}\n" * 1_000)
    (tmp_path / "own.py").write_text("DOUBLE = 2\n")
    code = """
import hermes_tools, own
from hermes_tools import read_file, write_file, terminal
total = 0
for number in range(20):
    total += len(read_file(f"f{number}.txt", limit=5)["content"].splitlines())
write_file("sum.txt", content=str(total * own.DOUBLE))
print(terminal("cat sum.txt; pwd")["output"])
print(hermes_tools.__all__, read_file.__doc__)
print(read_file("nowhere.txt"))
"""
    (answer,) = await scripts(tmp_path, code)
    assert answer["status"] == "success" and answer["exit_code"] == 0 and answer["tool_calls_made"] == 23
    assert answer["output"].startswith(f"200{tmp_path}")
    assert "['patch', 'read_file', 'search_files', 'terminal', 'write_file']" in answer["output"]
    assert "'error': 'There is no file" in answer["output"] and len(answer["output"]) < 2_000
    assert (tmp_path / "sum.txt").read_text() == "200"


async def test_what_a_script_may_not_call_is_refused(tmp_path: Path) -> None:
    code = """
import hermes_tools
for name in ("execute_code", "todo", "spawn_parallel", "process", "nothing", "web_search"):
    assert not hasattr(hermes_tools, name), name
ask = hermes_tools.read_file.__globals__["_ask"]
print(ask("execute_code", {}), ask("spawn_parallel", {}))
try:
    hermes_tools.read_file("a", "b", "c", "d", "e", "f", "g")
except TypeError as error:
    print(error)
print(hermes_tools.read_file())
"""
    (answer,) = await scripts(tmp_path, code)
    assert answer["output"].count("Code cannot call") == 2, answer
    assert "takes at most" in answer["output"] and "missing required field" in answer["output"]


@pytest.mark.fault("B144")
async def test_the_gate_is_the_same_one(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    rules = (ApprovalRule(decision="deny", command="rm *"),)
    code = "import hermes_tools; print(hermes_tools.terminal('rm precious'))"
    (answer,) = await scripts(tmp_path, code, settings={"approvals.rules": rules})
    assert "Denied" in answer["output"] and (tmp_path / "precious").exists()
    (answer,) = await scripts(tmp_path, "import shutil; shutil.rmtree('x')")
    assert "Denied" in answer["error"]


async def test_calls_are_counted_and_limited(tmp_path: Path) -> None:
    code = "from hermes_tools import terminal\nfor n in range(9): print(terminal(f'echo ran > ran{n}'))"
    (answer,) = await scripts(tmp_path, code, settings={"code_execution.max_tool_calls": 4})
    assert answer["output"].count("code_execution.max_tool_calls") == 5 and answer["tool_calls_made"] == 4
    assert sorted(path.name for path in tmp_path.glob("ran*")) == [f"ran{n}" for n in range(4)]
    for path in tmp_path.glob("ran*"):
        path.unlink()
    (answer,) = await scripts(tmp_path, code, limits=Limits(calls=4))  # the script itself is one of them
    assert answer["output"].count("The limit on tool calls is reached") == 6
    assert len(list(tmp_path.glob("ran*"))) == 3


async def test_threads_of_a_script_call_side_by_side(tmp_path: Path) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
from hermes_tools import terminal
with ThreadPoolExecutor(20) as pool:
    print(sorted(int(r["output"]) for r in pool.map(lambda n: terminal(f"echo {n}"), range(20))))
"""
    (answer,) = await scripts(tmp_path, code, settings={"terminal.max_parallel": 1})
    assert answer["output"].strip() == str(list(range(20))), answer


async def test_time_ends_a_script_with_all_it_started(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    seconds = f"987.{os.getpid()}"
    code = f"""
import subprocess, hermes_tools, threading
subprocess.Popen(["sleep", "{seconds}"])
threading.Thread(target=lambda: hermes_tools.terminal("sleep {seconds}")).start()
import time; time.sleep(600)
"""
    answers: list[dict[str, Any]] = []

    async def run() -> None:
        settings = {"approvals.mode": "allow"}
        answers.extend(await scripts(tmp_path, code, settings=settings, clock=virtual_clock, timeout=3))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        while len(await anyio.to_thread.run_sync(sleeping, seconds)) < 2:
            await anyio.to_thread.run_sync(time.sleep, 0.01)
        virtual_clock.jump(3)
    (answer,) = answers
    assert answer["status"] == "timeout" and "3 s" in answer["error"] and answer["exit_code"] is None
    assert answer["tool_calls_made"] == 1
    assert not await anyio.to_thread.run_sync(sleeping, seconds)


async def test_a_script_that_fails_says_where(tmp_path: Path) -> None:
    broken, wrong, exits, empty = await scripts(tmp_path, "x = 1\nx / 0", "def f(:", "raise SystemExit(7)", "print()")
    assert broken["status"] == "error" and "ZeroDivisionError" in broken["output"] and "line 2" in broken["output"]
    assert "SyntaxError" in wrong["output"] and exits["exit_code"] == 7 and empty["status"] == "success"


async def test_a_flood_is_cut(tmp_path: Path) -> None:
    (answer,) = await scripts(tmp_path, "for n in range(200_000): print(n, 'x' * 20)")
    assert answer["status"] == "success" and answer["truncated"] and len(answer["output"]) < 60_000
    assert Path(answer["full_output"]).stat().st_size > 1_000_000


@pytest.mark.fault("B127")
async def test_odd_text_goes_both_ways(tmp_path: Path) -> None:
    text = "Привет ± 🙂 \u2028 \x1b[31m \\ \" '''"
    code = f"from hermes_tools import *\nwrite_file('a.txt', {text!r})\nprint(ascii(read_file('a.txt')['content']))"
    (answer,) = await scripts(tmp_path, code)
    assert (tmp_path / "a.txt").read_text() == text, answer


async def test_nothing_is_left_and_nobody_else_gets_in(tmp_path: Path) -> None:
    code = """
import os, sys, socket, json
folder = os.path.dirname(os.path.abspath(__file__))
modes = {name: oct(os.stat(os.path.join(folder, name)).st_mode & 0o777) for name in os.listdir(folder)}
print(json.dumps({"folder": folder, "mode": oct(os.stat(folder).st_mode & 0o777), "modes": modes}))
directory = os.open(folder, os.O_RDONLY)
forged = b'{"token": "x", "tool": "terminal", "arguments": {"command": "touch forged"}}\\n'
for request in (b"", b"\\n", b"{}\\n", forged, b"\\xff" * 100 + b"\\n"):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("/proc/self/fd/%d/tools.sock" % directory)
    connection.sendall(request)
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(100) == b"", request
import hermes_tools
print(hermes_tools.terminal("echo still")["output"])
"""
    (answer,) = await scripts(tmp_path, code, settings={"approvals.mode": "allow"})
    first, second = answer["output"].splitlines()[:2]
    seen = json.loads(first)
    assert second == "still" and not (tmp_path / "forged").exists()
    assert seen["mode"] == "0o700" and set(seen["modes"].values()) == {"0o600"}
    assert "start.json" not in seen["modes"]  # the token is read once
    assert not Path(seen["folder"]).exists()


@pytest.mark.parametrize("backend", ["sandbox"])
async def test_it_works_behind_the_boundary_too(tmp_path: Path, needs_tool: Any, backend: str) -> None:
    needs_tool("bwrap")
    (tmp_path / "a.txt").write_text("inside")
    code = """
from hermes_tools import read_file, terminal
print(read_file("a.txt")["content"], terminal("hostname")["output"])
import os; print(os.path.exists(os.path.expanduser("~/.hermes")), os.uname().nodename)
"""
    (answer,) = await scripts(tmp_path, code, settings={"terminal.backend": backend})
    assert answer["status"] == "success", answer
    assert "inside" in answer["output"] and answer["output"].count("sandbox") == 2 and "False" in answer["output"]


def test_the_socket_is_found_behind_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    with pytest.raises(OSError, match="AF_UNIX path too long"), socket.socket(socket.AF_UNIX) as plain:
        plain.bind(str(folder / "s"))
    assert stat.S_ISDIR(folder.stat().st_mode)  # why the script goes by the directory's descriptor


async def test_children_keep_it_and_a_recording_holds_only_the_script(tmp_path: Path) -> None:
    code = "import hermes_tools; print(hermes_tools.terminal('echo nested')['output'])"

    children = [reply(calls=[call("execute_code", code=code)]), reply("seen")]
    model = ScriptedModel(
        "m", scripts={"go": [reply(calls=[call("spawn_parallel", tasks=["child"])]), reply("over")], "child": children}
    )
    tape = tmp_path / "tape.jsonl"
    async with open_lab(model, workspace=tmp_path, record=tape) as lab:
        assert (await lab.ask("go")).summary == "over"
    results = [entry for request in model.requests for entry in request.entries if isinstance(entry, ToolResult)]
    assert any(json.loads(plain_text(entry.content)).get("output", "").strip() == "nested" for entry in results)
    kept = [json.loads(line) for line in tape.read_text().splitlines()]
    assert [line["tool"] for line in kept if line.get("type") == "call"] == ["execute_code", "spawn_parallel"], kept


async def test_what_a_call_of_a_call_left_is_ended_with_it(tmp_path: Path) -> None:
    lost = f"lost-{os.getpid():x}"  # looked for on the whole machine
    scope = TaskScope(task_id=lost, session_id="s", root_id="r", workspace=str(tmp_path))
    place = LocalEnvironment(scope, tmp_path / "state", source=os.environ, commands=anyio.CapacityLimiter(1))
    inner = CallKey(lost, 3, 0, 7)
    assert str(inner) == f"{lost}:3:0.7" and str(CallKey(lost, 3, 0)) == f"{lost}:3:0"
    await place.start("sleep 654", key=inner)
    with anyio.fail_after(60):
        while not await anyio.to_thread.run_sync(processes_of_call, f"{lost}:3:0.7"):
            await anyio.sleep(0.01)
    assert await anyio.to_thread.run_sync(end_leftovers, f"{lost}:3:0") > 0
    assert not await anyio.to_thread.run_sync(processes_of_call, f"{lost}:")
    await place.close()
