"""What the benchmarks stand on: the loopback model as a process, a runtime in a temporary home, figures of a process.

Everything is in a temporary folder that is gone afterwards; nothing is written into the repository.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio

from hermes.compose import Assembly, Parts, open_runtime
from hermes.config import find_home, load
from hermes.core.model import Model
from hermes.credentials import Endpoint
from hermes.runtime.runtime import tune_interpreter

__all__ = ["HERE", "MODEL", "Usage", "model_process", "part", "peak_bytes", "peak_memory", "runtime", "scratch"]

HERE = Path(__file__).parent
MODEL = "test-model"


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def model_process(script: str, *more: str) -> Iterator[str]:
    """The loopback model as a process of its own; yields its base URL. `script` is a function of provider_script."""
    command = [sys.executable, "-m", "hermes.testing.server", "--watch-stdin"]
    command += ["--script", f"{HERE / 'provider_script.py'}:{script}", "--models", MODEL, *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["base_url"])
        finally:
            process.stdin.close()
            process.wait(timeout=10)


def part(program: str, *arguments: str, timeout: float = 300) -> dict[str, Any]:
    """Run `program --part …` as a process of its own, so that no run inherits another's memory; returns its JSON."""
    done = subprocess.run(
        [sys.executable, program, "--part", *arguments], stdout=subprocess.PIPE, text=True, check=False, timeout=timeout
    )
    if done.returncode:
        raise SystemExit(f"{Path(program).name} --part {' '.join(arguments)} ended with {done.returncode}")
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return value


@asynccontextmanager
async def runtime(
    folder: Path, base_url: str, settings: Mapping[str, Any], *, model: Model | None = None, **more: Any
) -> AsyncIterator[Assembly]:
    """A runtime as the command line opens it, with a database on disk, in a home of its own under `folder`.

    `model` replaces the model of the endpoint, `more` are further fields of `Parts`.
    """
    home = find_home({"HERMES_HOME": str(folder / "home")})
    loaded = load(home, {}, settings)
    loaded.require()
    endpoint = Endpoint(provider="custom", base_url=base_url, api_key="", key_source="none", model=MODEL)
    parts = Parts(loaded=loaded, endpoint=endpoint, model=model, environ={"PATH": os.environ["PATH"]}, **more)
    async with open_runtime(parts) as assembly:
        tune_interpreter()
        yield assembly


class Usage:
    """CPU seconds of this process, and of its commands that have ended, since it was made."""

    def __init__(self) -> None:
        self._own = _seconds(resource.RUSAGE_SELF)
        self._commands = _seconds(resource.RUSAGE_CHILDREN)

    def own(self) -> float:
        """Seconds of this process."""
        return _seconds(resource.RUSAGE_SELF) - self._own

    def commands(self) -> float:
        """Seconds of the commands it has waited for."""
        return _seconds(resource.RUSAGE_CHILDREN) - self._commands


def _seconds(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def peak_bytes() -> int:
    """The most resident bytes that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # in KiB on Linux


def memory() -> int:
    """Resident bytes of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@asynccontextmanager
async def peak_memory() -> AsyncIterator[list[int]]:
    """Resident bytes: the list holds what they were at first, and after the block their peak as well."""
    seen = [memory()]
    top = seen[0]

    async def look() -> None:
        nonlocal top
        while True:
            top = max(top, memory())
            await anyio.sleep(0.02)

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        yield seen
        top = max(top, memory())
        group.cancel_scope.cancel()
    seen.append(top)
