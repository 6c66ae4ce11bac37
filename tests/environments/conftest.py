"""Environments in a temporary workspace; whatever a test leaves running is ended."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.core.environment import CommandResult
from hermes.core.scope import CallKey, TaskScope
from hermes.environments.cgroup import ControlGroups
from hermes.environments.local import LocalEnvironment, LocalSettings
from hermes.environments.output import OutputLimits
from hermes.environments.sandbox import Bubblewrap, SandboxSettings
from hermes.environments.scrub import command_environment
from hermes.testing.clock import VirtualClock

#: A task of this run alone: what is left of one is looked for on the whole machine, where other runs have tasks too.
ONE = f"sa-{os.getpid():x}"
#: A shell waits until what it has started last has left the group and is what it is to be, variables included.
LEFT = 'until [ "$(cat /proc/$!/comm)" = sleep ] && grep -q HERMES_CALL_KEY /proc/$!/environ; do sleep 0.01; done'

Make = Callable[..., LocalEnvironment]
RunOutOfTime = Callable[..., Awaitable[CommandResult]]


@pytest.fixture
def key() -> Callable[[int], CallKey]:
    return lambda position=1: CallKey(ONE, position, 0)


@pytest.fixture
def run_out_of_time(virtual_clock: VirtualClock) -> RunOutOfTime:
    """Run a command whose time is up as soon as it has printed something, however slow the machine is.

    The environment must hold the virtual clock while a command runs.
    """

    async def run(env: LocalEnvironment, command: str, *, key: CallKey, timeout: float = 60.0) -> CommandResult:
        return await env.run(command, key=key, timeout=timeout, progress=lambda _line: virtual_clock.jump(timeout))

    return run


@pytest.fixture
async def make(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Make]:
    made: list[LocalEnvironment] = []

    def build(task_id: str = ONE, *, workspace: Path | None = None, depth: int = 1, **more: Any) -> LocalEnvironment:
        folder = workspace or tmp_path / "work"
        folder.mkdir(exist_ok=True)
        more.setdefault("source", {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8"})
        more.setdefault("settings", LocalSettings(grace=0.3))
        more.setdefault("commands", anyio.CapacityLimiter(4))
        scope = TaskScope(task_id=task_id, session_id="s", root_id="main_1", depth=depth, workspace=str(folder))
        environment = LocalEnvironment(scope, tmp_path / "state" / task_id, **more)
        made.append(environment)
        return environment

    yield build
    for environment in made:
        await environment.close()


@pytest.fixture
async def sandboxed(tmp_path: Path, needs_tool: Callable[[str], Path], anyio_backend: str) -> AsyncIterator[Make]:
    """Makes environments in a sandbox, in the folder `project` of the test's own where no workspace is named."""
    needs_tool("bwrap")
    made: list[tuple[LocalEnvironment, Bubblewrap]] = []

    def build(
        task_id: str = ONE,
        *,
        workspace: Path | None = None,
        groups: ControlGroups | None = None,
        readable: Callable[[], Sequence[str]] = tuple,
        **limits: Any,
    ) -> LocalEnvironment:
        maker = Bubblewrap(SandboxSettings(**limits), tmp_path / "cache", groups=groups)
        folder = workspace or tmp_path / "project"
        folder.mkdir(exist_ok=True)
        state = tmp_path / "state" / task_id
        environment = LocalEnvironment(
            TaskScope(task_id=task_id, session_id="s", root_id="r", workspace=str(folder)),
            state,
            source=os.environ,
            commands=anyio.CapacityLimiter(4),
            settings=LocalSettings(grace=0.3, output=OutputLimits(visible=2_000, memory=20_000, disk=200_000)),
            enclosure=maker.sandbox(str(folder), state, command_environment(os.environ), readable=readable),
        )
        made.append((environment, maker))
        return environment

    yield build
    for environment, _ in made:
        await environment.close()
    for _, maker in made:
        maker.close()
