"""Commands of one task: one shell a command, in a process group of its own, with the session's state around it.

By itself it isolates tasks from each other (directory, variables, functions, processes), not the machine from the task:
that is what an enclosure does, and approvals. Files are touched only to keep state and long output.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import msgspec

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.environment import (
    CommandResult,
    EnvironmentKind,
    Files,
    OnProcess,
    OnStarted,
    ProcessInfo,
    ProcessOutput,
)
from hermes.core.errors import ToolError
from hermes.core.scope import CallKey, TaskScope
from hermes.environments.background import BackgroundProcesses
from hermes.environments.enclosure import Enclosure, Host
from hermes.environments.output import Output, OutputLimits, Redact
from hermes.environments.process import ProcessGroup, Spawned, end_escaped, end_leftovers, processes_of_call, spawn
from hermes.environments.pump import Pump
from hermes.environments.scrub import command_environment
from hermes.environments.session import Session

__all__ = ["LocalEnvironment", "LocalSettings", "default_parallel"]

Stopped = Literal["", "timeout", "output", "limit"]

_LEFT_RUNNING = (
    "Processes that this command started in the background still run; they are ended with this task. "
    "Use background=true to read what they print."
)
_ENDED_WITH_IT = (
    "What a command starts with & ends with the command in the sandbox. Use background=true for what keeps running."
)
#: Changed files outside of the workspace that are named.
_ESCAPED = 20
#: Seconds in which a short-lived rest of a command (a process substitution) may end without being mentioned.
_PATIENCE = 0.05
#: Commands that may leave processes outside their group, which are then looked for by their call key.
_MAY_ESCAPE = re.compile(r"(?<![&>])&(?![&>])|\b(?:setsid|nohup|disown|coproc|daemon|systemd-run)\b|set -m")
_BEHIND = re.compile(r"(?<![&>])&\s*(?:$|[;)}\n])|\b(?:nohup|setsid|disown)\b")


def default_parallel() -> int:
    """Commands that may run at once when nothing is configured: four for each core."""
    return 4 * (os.cpu_count() or 1)


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of local commands. Times are seconds; `background_limit` None lets a process live as long as its task.

    `levels_above` are the levels of tasks over this process, which commands are told with the depth of their own.
    """

    timeout: float = 180.0
    grace: float = 2.0
    env_passthrough: tuple[str, ...] = ()
    levels_above: int = 0
    output: OutputLimits = OutputLimits()
    background_limit: float | None = None
    max_background: int = 16


def _same(text: str) -> str:
    return text


def _ignore_start(_key: CallKey, _pgid: int, _started: str) -> None:
    """Nobody wants to know."""


def _ignore_end(_info: ProcessInfo) -> None:
    """Nobody wants to know."""


class LocalEnvironment:
    """The `Environment` of one task; on this machine as it is, unless an enclosure stands around its commands.

    Args:
        scope: the task; its workspace must be absolute.
        state_dir: a directory of the task's own; made on first use.
        source: variables of which commands get the allowed ones (usually `os.environ`).
        commands: limits the commands that run at once, over all tasks.
        redact: applied to everything that is returned or written.
        on_started: told of each process group before its output is read.
        on_ended: told of each background process that has ended.
        enclosure: what holds the commands; None for nothing.
        outside: (blocking) files outside of an isolated workspace with their state, compared around each command.
    """

    def __init__(
        self,
        scope: TaskScope,
        state_dir: str | Path,
        *,
        source: Mapping[str, str],
        commands: anyio.CapacityLimiter,
        settings: LocalSettings | None = None,
        redact: Redact = _same,
        on_started: OnStarted = _ignore_start,
        on_ended: OnProcess = _ignore_end,
        enclosure: Enclosure | None = None,
        outside: Callable[[], Mapping[str, str]] | None = None,
        hold: Hold = NO_HOLD,
    ) -> None:
        self._settings = settings or LocalSettings()
        self._state_dir = Path(state_dir)
        self._enclosure: Enclosure = enclosure or Host(
            self._state_dir, command_environment(source, self._settings.env_passthrough)
        )
        self._outside = outside
        self._home = self._enclosure.environment.get("HOME", "")
        self._session = Session(self._enclosure, scope.workspace, scope.depth + self._settings.levels_above, redact)
        self._task_id = scope.task_id
        self._commands = commands
        self._redact = redact
        self._on_started = on_started
        self._hold = hold
        self._closed = False
        self._escapes = False
        self._told_home = False
        self._runs = 0
        self._touched = False  # its file tools were used: what a command may leave, they may leave too
        self._left: list[ProcessGroup] = []
        self._background = BackgroundProcesses(self._settings.background_limit, self._settings.grace, hold, on_ended)

    @cached_property
    def _threads(self) -> anyio.CapacityLimiter:
        """Threads of our own, so that ending a command never waits for somebody else's blocking work."""
        return anyio.CapacityLimiter(64)

    @property
    def kind(self) -> EnvironmentKind:
        """What holds its commands."""
        return self._enclosure.kind

    @property
    def files(self) -> Files:
        """The files its commands see."""
        self._touched = True
        return self._enclosure.files

    @property
    def exchange(self) -> str:
        """A directory that commands see under the same path."""
        return os.path.abspath(self._enclosure.state_dir)

    @property
    def cwd(self) -> str:
        """The directory the next command starts in."""
        return self._session.cwd

    @property
    def workspace(self) -> str:
        """The task's own directory."""
        return self._session.workspace

    def resolve(self, path: str) -> str:
        """Return `path` as an absolute, normalised path; symlinks are not followed."""
        if path == "~" or path.startswith("~/"):
            path = self._home + path[1:]
        return os.path.normpath(os.path.join(self._session.cwd, path))

    async def run(
        self,
        command: str,
        *,
        key: CallKey,
        timeout: float | None = None,
        cwd: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> CommandResult:
        """Run a command to its end; see `Environment.run`."""
        limit = self._settings.timeout if timeout is None else timeout
        # What a command's own call runs waits for no place: it would wait for the command that holds one.
        async with contextlib.nullcontext() if key.sub else self._commands:
            with held(self._hold):
                name = self._name(key)
                before = await self._look_outside()
                group, notes = await self._spawn(command, key, name, cwd, keep=True)
                output = Output(self._enclosure.output_dir / f"{name}.txt", self._redact, self._settings.output)
                pump = Pump(group, output, progress, watch=self._enclosure.watch)
                left = False
                try:
                    self._on_started(key, group.pid, group.started)
                    pump.begin()
                    with anyio.move_on_after(limit):
                        await pump.done.wait()
                    killed = not group.exited.is_set()
                finally:
                    with anyio.CancelScope(shield=True):
                        left = await self._settle(pump, key, name)
                stopped: Stopped = (
                    "" if not killed else "output" if output.over else "limit" if pump.passed else "timeout"
                )
                if left:
                    notes.append(_LEFT_RUNNING)
                elif self.kind == "sandbox" and _BEHIND.search(command):
                    notes.append(_ENDED_WITH_IT)
                return await self._result(pump, name, stopped, notes, before, move=cwd is None)

    async def _look_outside(self) -> Mapping[str, str]:
        if self._outside is None:
            return {}
        return await anyio.to_thread.run_sync(self._outside, limiter=self._threads)

    def _name(self, key: CallKey) -> str:
        self._runs += 1
        return f"{key.position}_{key.index}_{self._runs}"

    async def _spawn(
        self, command: str, key: CallKey, name: str, cwd: str | None, *, keep: bool
    ) -> tuple[ProcessGroup, list[str]]:
        if self._closed:
            raise ToolError("This task has ended; no further command can be started.")
        if "\0" in command:
            raise ToolError("The command holds a NUL character, which no program can be given; leave it out.")
        self._escapes = self._escapes or _MAY_ESCAPE.search(command) is not None
        wanted = None if cwd is None else self.resolve(cwd)

        def start() -> tuple[Spawned, tuple[str, ...]]:
            self._session.open()
            directory, notes = self._session.directory(wanted)
            if not self._told_home and (missing := self._session.home_missing()):
                self._told_home = True
                notes = (*notes, missing)
            argv = self._session.script(command, str(key), name, directory, keep=keep)
            env = self._session.environment(str(key), directory)
            return spawn(*self._enclosure.launch(argv, env, directory)), notes

        try:
            spawned, notes = await self._enclosure.starting(start)
        except (OSError, ValueError) as error:
            raise ToolError(f"The command could not be started: {error}") from None
        return ProcessGroup(spawned, lambda: self._enclosure.end_inside(str(key))), list(notes)

    async def _settle(self, pump: Pump, key: CallKey, name: str) -> bool:
        """Leave nothing of a command undecided: ended, or kept in the list of what it left, which the answer says."""
        group = pump.group
        killed = not group.exited.is_set()
        if killed:
            pump.begin()
            await anyio.to_thread.run_sync(self._end, group, str(key), name, limiter=self._threads)
            await group.exited.wait()
        await pump.finish()
        if (
            not killed
            and self.kind == "local"  # behind a boundary nothing of it is left in the group
            and group.group_exists()
            and await anyio.to_thread.run_sync(group.survivors, _PATIENCE, limiter=self._threads)
        ):
            group.discard_output()
            self._left.append(group)
            return True
        group.forget()
        return False

    def _end(self, group: ProcessGroup, key: str, name: str) -> None:
        group.end(self._settings.grace)
        with contextlib.suppress(OSError):  # it ends all the same; the directory may have been removed meanwhile
            self._session.drop(name)
        if self._escapes and processes_of_call(key + "\0"):
            end_leftovers(key, grace=self._settings.grace)

    async def _result(
        self, pump: Pump, name: str, stopped: Stopped, notes: list[str], before: Mapping[str, str], *, move: bool
    ) -> CommandResult:
        def finish() -> tuple[str, bool, str]:
            if not stopped:
                self._session.take(name, move=move)
            notes.extend(self._enclosure.remarks())
            return pump.output.finish()

        output = pump.output
        short = self._enclosure.closes_at_once and not output.spilled and output.total <= output.limits.visible
        try:
            if short:  # a few calls of the system: whoever starts commands makes them in passing
                text, truncated, path = await self._enclosure.starting(finish)
            else:
                text, truncated, path = await anyio.to_thread.run_sync(finish, limiter=self._threads)
        except OSError as error:
            raise ToolError(f"The command ran, but its state or output could not be kept: {error}") from None
        after = await self._look_outside()
        escaped = tuple(sorted(path for path in {*before, *after} if before.get(path) != after.get(path)))[:_ESCAPED]
        if escaped:
            notes.append(
                f"While this command ran, files outside of your workspace {self.workspace} changed: "
                f"{', '.join(escaped)}. If that was your doing, undo it and work in your workspace only."
            )
        return CommandResult(
            output=text,
            exit_code=None if stopped else pump.group.exit_code,
            duration=pump.group.elapsed,
            cwd=self._session.cwd,
            stopped=stopped,
            truncated=truncated,
            output_path=path,
            total_bytes=output.total,
            passed=pump.passed if stopped == "limit" else "",
            notes=tuple(notes),
            escaped=escaped,
        )

    async def start(self, command: str, *, key: CallKey, cwd: str | None = None, notify: bool = False) -> ProcessInfo:
        """Start a command in the background; see `Environment.start`."""
        running = sum(1 for info in self._background.list() if info.state == "running")
        if running >= self._settings.max_background:
            raise ToolError(f"{running} background processes run already; kill one with the process tool first.")
        name = self._name(key)
        group, _ = await self._spawn(command, key, name, cwd, keep=False)
        output = Output(self._enclosure.output_dir / f"{name}.txt", self._redact, self._settings.output, head=False)
        self._on_started(key, group.pid, group.started)
        return self._background.add(command, Pump(group, output, watch=self._enclosure.watch), notify=notify)

    def forget(self) -> None:
        """Let the next command know nothing of those before it."""
        self._session.forget()

    def processes(self) -> tuple[ProcessInfo, ...]:
        """Background processes, oldest first."""
        return self._background.list()

    async def poll(self, process_id: str) -> ProcessOutput:
        """State and new output."""
        return self._background.poll(process_id)

    async def log(self, process_id: str, *, offset: int | None = None, limit: int = 200) -> ProcessOutput:
        """Lines of the kept output."""
        return self._background.log(process_id, offset, limit)

    async def wait(self, process_id: str, timeout: float) -> ProcessOutput:
        """Wait for the end, at most `timeout` seconds."""
        return await self._background.wait(process_id, timeout)

    async def kill(self, process_id: str) -> ProcessInfo:
        """End a background process with its group."""
        return await self._background.kill(process_id, "request")

    async def _end_left(self, group: ProcessGroup) -> None:
        await anyio.to_thread.run_sync(group.end, self._settings.grace, limiter=self._threads)
        group.forget()

    async def close(self) -> tuple[ProcessInfo, ...]:
        """End everything that still runs; returns the background processes that were killed."""
        self._closed = True
        bounded = self.kind != "local" and (self._runs or self._touched or self.kind == "docker")
        if not (self._left or self._escapes or self._background.any or bounded):
            return ()  # nothing can be left
        with anyio.CancelScope(shield=True):
            killed = await self._background.close()
            left, self._left = self._left, []
            if left:
                async with anyio.create_task_group() as tasks:
                    for group in left:
                        tasks.start_soon(self._end_left, group)
            if self._escapes:
                await anyio.to_thread.run_sync(end_escaped, f"{self._task_id}:", limiter=self._threads)
            if self._enclosure.closes_at_once:
                self._enclosure.close()
            else:
                await anyio.to_thread.run_sync(self._enclosure.close, limiter=self._threads)
        return killed
