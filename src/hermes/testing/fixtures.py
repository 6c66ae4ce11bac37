"""Fixtures for pytest, for the tests of this package and of whoever builds on it.

Put `pytest_plugins = ["hermes.testing.fixtures"]` into the `conftest.py` at the root of your tests. Then

- an async test marked `anyio` runs on asyncio, and one that asks for `virtual_clock` runs in simulated time on that
  clock (pass it as `clock` and `hold` to the parts under test);
- `home` is an empty home of the test's own, and no key or setting of yours is seen;
- a connection beyond this machine, a call of this package that blocks the event loop, a thread or task that outlives
  the test, a connection, pipe or process of a loop that is not closed fail it. `may_block` and `may_leave` are marks
  for tests whose subject that is;
- `needs_tool("tmux")` returns the path of a program, or of any file if its path is given; without it the test is
  skipped, and fails where `CI` is set.

It needs pytest and blockbuster, which this package does not install.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hermes
from hermes.testing.clock import VirtualClock
from hermes.testing.guards import (
    LoopbackOnly,
    NonBlocking,
    OpenTransports,
    home_environment,
    new_tasks,
    new_threads,
)

__all__ = ["anyio_backend", "home", "needs_tool", "virtual_clock"]

Backend = str | tuple[str, dict[str, Any]]


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks."""
    config.addinivalue_line("markers", "may_block: blocking calls on the event loop are this test's subject")
    config.addinivalue_line("markers", "may_leave: a task or thread that outlives the test is this test's subject")


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """The clock on which the test's event loop runs."""
    return VirtualClock()


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Asyncio; on the virtual clock for a test or fixture that asks for it."""
    if "virtual_clock" in request.fixturenames:
        return "asyncio", {"loop_factory": request.getfixturevalue("virtual_clock").loop}
    return "asyncio"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; `HOME` and `HERMES_HOME` point to it, and no key or setting of whoever runs the test is seen."""
    path = tmp_path / "home"
    path.mkdir()
    wanted, foreign = home_environment(os.environ, path)
    for name in foreign:
        monkeypatch.delenv(name)
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    return path


@pytest.fixture(scope="session")
def loopback_guard() -> LoopbackOnly:
    """The guard of the network, one a process."""
    return LoopbackOnly()


@pytest.fixture(autouse=True)
def loopback_only(loopback_guard: LoopbackOnly) -> Iterator[LoopbackOnly]:
    """Fail a test that tries to reach another machine, even when the code under test caught the refusal."""
    with loopback_guard as guard:
        yield guard
    if guard.attempts:
        pytest.fail(f"the test tried to reach {', '.join(guard.attempts)}: tests speak to 127.0.0.1 only")


@pytest.fixture(scope="session")
def non_blocking() -> NonBlocking:
    """The guard of the event loop."""
    return NonBlocking(hermes)


@pytest.fixture(scope="session")
def transports() -> OpenTransports:
    """The guard of connections, pipes and processes."""
    return OpenTransports()


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest, transports: OpenTransports) -> Iterator[None]:
    """Fail a test that leaves a thread or a task behind, and an async one in which this package blocks the loop."""
    before = threading.enumerate()
    open_before = transports.open()
    may_leave = request.node.get_closest_marker("may_leave") is not None
    asynchronous = request.node.get_closest_marker("anyio") is not None
    if asynchronous and not may_leave:
        request.getfixturevalue("no_task_left")
    if asynchronous and request.node.get_closest_marker("may_block") is None:
        with request.getfixturevalue("non_blocking").active():
            yield
    else:
        yield
    left = [] if may_leave else new_threads(before)
    if left:
        pytest.fail(f"the test left threads behind: {', '.join(thread.name for thread in left)}; join them")
    if not asynchronous and not may_leave and (still := transports.open() - open_before):
        pytest.fail(f"the test left open: {', '.join(map(repr, still))}; close them")


@pytest.fixture
async def no_task_left(anyio_backend: Backend, transports: OpenTransports) -> AsyncIterator[None]:
    """Fail a test that leaves a task, connection, pipe or process of its loop behind."""
    before = asyncio.all_tasks()
    open_before = transports.open()
    yield
    left = await new_tasks(before)
    if left:
        pytest.fail(f"the test left tasks behind: {', '.join(repr(task) for task in left)}; cancel or await them")
    if still := await transports.new(open_before):
        pytest.fail(f"the test left open: {', '.join(map(repr, still))}; close them")


@pytest.fixture
def needs_tool() -> Callable[[str], Path]:
    """Return the path of a program by name, or of a file that has to be there; without it the test is skipped, and
    fails where `CI` is set."""

    def find(name: str) -> Path:
        path = name if os.path.isabs(name) and os.path.exists(name) else shutil.which(name)
        if path is not None:
            return Path(path)
        message = f"{name} is not installed or not on PATH"
        if os.environ.get("CI"):
            pytest.fail(f"{message}; a machine that checks this project needs it")
        pytest.skip(message)

    return find
