"""Environments in a temporary workspace; whatever a test leaves running is ended."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hermes.core.scope import CallKey, TaskScope
from hermes.environments.local import LocalEnvironment, LocalSettings

#: A task of this run alone: what is left of one is looked for on the whole machine, where other runs have tasks too.
ONE = f"sa-{os.getpid():x}"

Make = Callable[..., LocalEnvironment]


@pytest.fixture
def key() -> Callable[[int], CallKey]:
    return lambda position=1: CallKey(ONE, position, 0)


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
