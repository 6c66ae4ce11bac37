"""Where a task's commands run, as a protocol that the tools and every kind of environment know.

An environment belongs to one task: its directory, exported variables and functions survive between its commands and
are never seen by another task. This module holds only the values and the protocol; it starts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from hermes.core.scope import CallKey

__all__ = [
    "CommandResult",
    "Environment",
    "EnvironmentKind",
    "Files",
    "OnProcess",
    "OnStarted",
    "PathKind",
    "ProcessInfo",
    "ProcessOutput",
    "ProcessState",
]

#: Where commands can run: on this machine as they are, behind namespaces of the kernel, in a container.
EnvironmentKind = Literal["local", "sandbox", "docker"]

#: What stands in a directory; a link is named as such, whatever it leads to.
PathKind = Literal["file", "folder", "link", "other"]

#: Told (call key, process group, start time of its leader) as soon as a command has a process, before any output.
OnStarted = Callable[[CallKey, int, str], None]

ProcessState = Literal["running", "exited", "killed"]


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a foreground command went.

    `output` is what a model may read: stdout and stderr in the order they came, cut in the middle when `truncated`,
    with the whole in the file `output_path` (empty when nothing was cut). `exit_code` is None when the command was
    killed by us; a command killed by signal N has 128 + N. `duration` is seconds, `total_bytes` counts the raw output.
    `stopped` says why we killed it: `timeout`, `output` (more than the environment keeps), `limit` (of the boundary
    around it, which `passed` tells in a sentence) or "". `notes` are sentences about the session that the reader has to
    know (a directory that has gone, processes that still run). `escaped` are files outside of an isolated workspace
    that changed meanwhile.
    """

    output: str
    exit_code: int | None
    duration: float
    cwd: str
    stopped: Literal["", "timeout", "output", "limit"] = ""
    passed: str = ""
    truncated: bool = False
    output_path: str = ""
    total_bytes: int = 0
    notes: tuple[str, ...] = ()
    escaped: tuple[str, ...] = ()

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended it."""
        return self.stopped == "timeout"


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A background process. `elapsed` is seconds; `limit` the seconds it may live, None until its task ends.

    `reason` says who ended a killed one: `request`, `policy: …` or `the task ended`. `notify`: its task waits for its
    end and has not been told of it yet. `tail` are its last lines, once it has ended.
    """

    process_id: str
    command: str
    state: ProcessState
    pid: int
    elapsed: float
    exit_code: int | None = None
    limit: float | None = None
    reason: str = ""
    notify: bool = False
    tail: str = ""


class ProcessOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Output of a background process: `text` begins at line number `first` of `total_lines`, counted from 1."""

    info: ProcessInfo
    text: str
    first: int = 1
    total_lines: int = 0
    truncated: bool = False
    output_path: str = ""


#: Told when a background process has ended, whoever ended it.
OnProcess = Callable[[ProcessInfo], None]


class Files(Protocol):
    """The files that a task's commands see, for tools that work on them in this process.

    Paths are absolute, as commands write them. Methods block: call them on a thread. What the task may not reach is a
    `ToolError` that says so, everything else that fails an `OSError`; no link leads out.
    """

    def real(self, path: str) -> str:
        """The path on this machine of what `path` stands for, links followed; it need not exist. For comparing."""

    def stat(self, path: str) -> os.stat_result:
        """Status of what `path` stands for, links followed."""

    def open(self, path: str) -> int:
        """Open for reading and return the descriptor; it never waits for another end of a pipe."""

    def replace(self, path: str, data: bytes) -> None:
        """Replace or make a file as a whole, keeping its mode; missing directories are made. A link is followed."""

    def scan(self, path: str) -> list[tuple[str, PathKind]]:
        """The names in a directory, sorted."""


class Environment(Protocol):
    """One task's place for commands and files."""

    @property
    def kind(self) -> EnvironmentKind:
        """What holds its commands."""

    @property
    def files(self) -> Files:
        """The files its commands see."""

    @property
    def exchange(self) -> str:
        """A directory of the task's own that this process and its commands see under the same path. Absolute; it may
        have to be made."""

    @property
    def cwd(self) -> str:
        """The directory the next command starts in; relative paths of file tools start here too. Absolute."""

    @property
    def workspace(self) -> str:
        """The task's own directory, which it falls back to. Absolute."""

    def resolve(self, path: str) -> str:
        """Return `path` as an absolute, normalised path; `~` is the user's home. Symlinks are not followed."""

    async def run(
        self,
        command: str,
        *,
        key: CallKey,
        timeout: float | None = None,
        cwd: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> CommandResult:
        """Run a shell command to its end and return how it went; a time limit is an answer, not an exception.

        `timeout` is seconds (None: the environment's own limit). Cancelled, it kills the command's process group
        first and then raises the cancellation. `progress` gets the newest line, a few times a second at most.

        Raises:
            ToolError: the command could not be started (no such directory, no shell).
        """

    async def start(self, command: str, *, key: CallKey, cwd: str | None = None, notify: bool = False) -> ProcessInfo:
        """Start a shell command in the background. It starts in the session's directory and changes nothing of it.

        `notify`: its task does not end before it.

        Raises:
            ToolError: it could not be started, or too many run already.
        """

    def forget(self) -> None:
        """Let the next command start as the first one did: in the workspace, with nothing that earlier ones exported
        or defined."""

    def processes(self) -> tuple[ProcessInfo, ...]:
        """Background processes of this task, oldest first, ended ones included."""

    async def poll(self, process_id: str) -> ProcessOutput:
        """State and the output since the last poll. Raises ToolError for an unknown id."""

    async def log(self, process_id: str, *, offset: int | None = None, limit: int = 200) -> ProcessOutput:
        """`limit` lines of the kept output: from line `offset` on, or the last ones. Raises ToolError."""

    async def wait(self, process_id: str, timeout: float) -> ProcessOutput:
        """Wait for the end, at most `timeout` seconds; then as `poll`. Raises ToolError."""

    async def kill(self, process_id: str) -> ProcessInfo:
        """End it and its whole group. Killing an ended one changes nothing. Raises ToolError."""

    async def close(self) -> tuple[ProcessInfo, ...]:
        """End everything that still runs and return what was killed; a container is removed, the workspace stays.

        Safe to call twice; runs even when cancelled.
        """
