"""The guards find what they are for, and only that."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

import hermes
from hermes.testing.guards import (
    LoopbackOnly,
    NetworkBlocked,
    NonBlocking,
    OpenTransports,
    home_environment,
    is_local,
    new_tasks,
    new_threads,
)

#: An address for documentation: nobody answers there.
ELSEWHERE = "192.0.2.1"


@pytest.fixture
def expects_refusal(loopback_guard: LoopbackOnly) -> Iterator[LoopbackOnly]:
    """Forget the refusals that the test provokes, since the guard would fail it for them."""
    yield loopback_guard
    loopback_guard.attempts.clear()


def test_a_connection_to_another_machine_is_refused_and_noted(expects_refusal: LoopbackOnly) -> None:
    with socket.socket() as sock, pytest.raises(NetworkBlocked, match=ELSEWHERE):
        sock.connect((ELSEWHERE, 80))
    assert expects_refusal.attempts == [ELSEWHERE]


def test_a_datagram_to_another_machine_is_refused(expects_refusal: LoopbackOnly) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises(NetworkBlocked):
        sock.sendto(b"x", (ELSEWHERE, 53))


def test_a_name_is_not_looked_up(expects_refusal: LoopbackOnly) -> None:
    with pytest.raises(NetworkBlocked, match="example.org"):
        socket.getaddrinfo("example.org", 443)


@pytest.mark.anyio
async def test_the_event_loop_is_guarded_too(expects_refusal: LoopbackOnly) -> None:
    with pytest.raises(NetworkBlocked):
        await asyncio.open_connection(ELSEWHERE, 80)


def test_a_host_that_cannot_exist_is_an_ordinary_fault() -> None:
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("no-such-host.invalid", 443)


def test_this_machine_is_reachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("", True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("example.org", False),
        ("127.0.0.1.example.org", False),
    ],
)
def test_what_is_local(host: str, local: bool) -> None:
    assert is_local(host) is local


def test_no_setting_of_the_user_is_seen(home: Path) -> None:
    wanted, foreign = home_environment(
        {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "u", "XDG_CONFIG_HOME": "c", "HERMES_MODEL": "m", "PATH": "p"}, home
    )
    assert sorted(foreign) == ["HERMES_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "XDG_CONFIG_HOME"]
    assert wanted["HOME"] == str(home)
    assert Path.home() == home


def test_a_thread_left_behind_is_found() -> None:
    before = threading.enumerate()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="left")
    thread.start()
    try:
        assert new_threads(before, patience=0) == [thread]
    finally:
        stop.set()
    assert new_threads(before) == []


@pytest.mark.anyio
async def test_a_task_left_behind_is_found() -> None:
    before = asyncio.all_tasks()
    task = asyncio.get_running_loop().create_task(anyio.sleep(60), name="left")
    assert await new_tasks(before) == [task]
    task.cancel()
    assert await new_tasks(before) == []


@pytest.mark.anyio
async def test_a_call_that_blocks_the_loop_fails_in_this_package_only(tmp_path: Path) -> None:
    """A package named here stands for ours."""
    (tmp_path / "blocks.py").write_text("import time\n\ndef nap():\n    time.sleep(0.001)\n", encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    try:
        import blocks  # edge: made by this test
    finally:
        sys.path.remove(str(tmp_path))
    with NonBlocking(blocks).active(), pytest.raises(Exception, match=r"Blocking call to time\.sleep"):
        blocks.nap()
    with NonBlocking(hermes).active():
        time.sleep(0.001)
    blocks.nap()


def test_a_transport_that_another_thread_makes_meanwhile_is_in_nobodys_way(transports: OpenTransports) -> None:
    made: list[Making] = []

    class Making(asyncio.Transport):
        closed = False

        def is_closing(self) -> bool:
            if len(made) < 2:  # as another thread would at this moment
                made.append(Making())
            return self.closed

    made.append(Making())
    assert made[0] in transports.open()
    for each in made:
        each.closed = True
    assert len(made) == 2 and transports.open().isdisjoint(made)


CASES = {
    "task": (
        "import anyio, asyncio, pytest\n@pytest.mark.anyio\nasync def test_it():\n"
        "    asyncio.get_running_loop().create_task(anyio.sleep(9))\n"
    ),
    "thread": (
        "import threading, pytest\nstop = threading.Event()\ndef test_it():\n"
        "    threading.Thread(target=stop.wait, daemon=True).start()\n"
    ),
    "process": (
        "import anyio, pytest\n@pytest.mark.anyio\nasync def test_it():\n"
        "    await anyio.open_process(['sleep', '2'], stdin=None, stdout=None, stderr=None)\n"
    ),
    "pipe": (
        "import asyncio, os, pytest\n@pytest.mark.anyio\nasync def test_it():\n"
        "    read, _ = os.pipe()\n"
        "    await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, os.fdopen(read, 'rb'))\n"
    ),
    "network": (
        "import socket\ndef test_it():\n    try:\n        socket.getaddrinfo('example.org', 1)\n"
        "    except AssertionError:\n        pass\n"
    ),
    "hang": (
        "import anyio, pytest\n@pytest.mark.anyio\nasync def test_it(virtual_clock):\n    await anyio.Event().wait()\n"
    ),
}


def test_the_fixtures_fail_a_test_that_leaves_something_behind(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["hermes.testing.fixtures"]\n', encoding="utf-8")
    for case, code in CASES.items():
        (tmp_path / f"test_{case}.py").write_text(code, encoding="utf-8")
    # In a folder of its own, since pytest warns of what other runs left in the usual one.
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "its_own")]
    command += ["--tb=short", "--rootdir", ".", "."]
    source = Path(hermes.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(source), "COLUMNS": "200"}
    output = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert "ERROR test_task.py::test_it - Failed: the test left tasks behind" in output
    assert "ERROR test_thread.py::test_it - Failed: the test left threads behind" in output
    assert "ERROR test_network.py::test_it - Failed: the test tried to reach example.org" in output
    assert "FAILED test_hang.py::test_it - hermes.testing.clock.Deadlock" in output
    assert "ERROR test_process.py::test_it - Failed: the test left open: " in output
    assert "ERROR test_pipe.py::test_it - Failed: the test left open: <_UnixReadPipeTransport" in output
    assert "1 failed, 5 passed, 5 errors" in output


def test_a_missing_tool_skips_here_and_fails_where_ci_is_set(
    needs_tool: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert needs_tool("sh").name == "sh" and needs_tool(__file__) == Path(__file__)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-tool"):
        needs_tool("no-such-tool")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-tool"):
        needs_tool("no-such-tool")
