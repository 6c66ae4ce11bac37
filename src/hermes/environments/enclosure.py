"""What stands around the commands of one task: nothing (`Host`), or a boundary that holds them.

An enclosure only says how a command is started inside, which files are seen there and what has to be ended there. The
terminal session around it, its output and its limits of time are the same for all and stand in `local.py`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import anyio
import anyio.to_thread

from hermes.core.environment import EnvironmentKind, Files
from hermes.environments.files import LocalFiles

__all__ = ["Enclosure", "Host", "Launch", "Shell", "Watching", "find_shell"]

T = TypeVar("T")
Watching = Callable[[int, Callable[[str], None]], Callable[[], None]]


class Launch(NamedTuple):
    """What is really started: arguments, environment and directory of a process of this machine.

    `handed` is an open descriptor that it gets under the same number; whoever starts it closes it.
    """

    argv: list[str]
    env: Mapping[str, str]
    cwd: str
    handed: int | None = None


class Shell(NamedTuple):
    """The shell inside: `bash` or `sh`, and its path there."""

    kind: str
    path: str


class Enclosure(Protocol):
    """One task's boundary. Methods block unless they are coroutines; `open` comes first."""

    @property
    def kind(self) -> EnvironmentKind:
        """Which one it is."""

    @property
    def files(self) -> Files:
        """The files seen inside."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that commands begin with."""

    @property
    def state_dir(self) -> Path:
        """Where the session keeps its state: seen inside under the same path, and written from there too."""

    @property
    def output_dir(self) -> Path:
        """Where output that is too long to show is kept, seen inside under the same path."""

    def open(self) -> Shell:
        """Make what has to be there before the first command, `state_dir` too. Raises OSError, ToolError."""

    def prologue(self, shell: Shell) -> Sequence[str]:
        """Lines of shell that come before a command."""

    def launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Launch:
        """How a program is started inside; `env` and `cwd` are meant there."""

    @property
    def watch(self) -> Watching | None:
        """Called for a process that was started inside, it looks after limits that the kernel does not set; None where
        there are none. A sentence about one that was passed is told on a thread. What it returns ends the looking."""

    async def starting(self, work: Callable[[], T]) -> T:
        """Run `work`, which starts a process or does little more, on a thread that may do so. It is not abandoned when
        cancelled."""

    def end_inside(self, call_key: str) -> None:
        """End what a call left where signals from outside do not reach."""

    def remarks(self) -> tuple[str, ...]:
        """Sentences about the boundary for whoever reads how a command went (a limit that it met)."""

    @property
    def closes_at_once(self) -> bool:
        """Whether `close` does not block, and `remarks` not for long."""

    def close(self) -> None:
        """Remove what was made. Safe to call twice."""


def find_shell(path: str) -> Shell:
    """The shell of this machine to use: bash, else sh. Raises FileNotFoundError."""
    for kind in ("bash", "sh"):
        found = shutil.which(kind, path=path) or (f"/bin/{kind}" if os.access(f"/bin/{kind}", os.X_OK) else None)
        if found:
            return Shell(kind, found)
    raise FileNotFoundError(f"no bash and no sh on PATH ({path}): install one")


class Host:
    """No boundary: commands run as the program itself does."""

    kind: EnvironmentKind = "local"

    def __init__(self, state_dir: Path, environment: Mapping[str, str], files: Files | None = None) -> None:
        self.files: Files = files or LocalFiles()
        self.state_dir = state_dir
        self.output_dir = state_dir / "output"
        self.environment = environment

    @cached_property
    def _threads(self) -> anyio.CapacityLimiter:
        """Of our own, so that a command never waits for somebody else's blocking work."""
        return anyio.CapacityLimiter(64)

    async def starting(self, work: Callable[[], T]) -> T:
        """On any thread."""
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    def open(self) -> Shell:
        """Find the shell."""
        self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return find_shell(self.environment["PATH"])

    def prologue(self, shell: Shell) -> Sequence[str]:
        """Nothing."""
        return ()

    def launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Launch:
        """As it is."""
        return Launch(list(argv), env, cwd)

    def end_inside(self, call_key: str) -> None:
        """Signals reach everything."""

    def remarks(self) -> tuple[str, ...]:
        """None."""
        return ()

    closes_at_once = True
    watch: Watching | None = None

    def close(self) -> None:
        """Nothing was made."""
