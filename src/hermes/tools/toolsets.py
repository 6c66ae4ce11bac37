"""The built-in toolsets as factories: `terminal`, `file`, `todo`. Each builds its tools for one task.

They find a task's environment through a callable that is passed in, so that they work with every kind of environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hermes.core.clock import NO_HOLD, Hold
from hermes.core.environment import Environment
from hermes.core.scope import TaskScope
from hermes.core.tools import Tool, ToolEnv
from hermes.tools.file import FileAccess, read_file_tool, write_file_tool
from hermes.tools.files_seen import FilesSeen, WriteLog
from hermes.tools.patching import patch_tool
from hermes.tools.processes import process_tool
from hermes.tools.search import search_files_tool
from hermes.tools.terminal import terminal_tool
from hermes.tools.todo import todo_tool

__all__ = ["EnvironmentOf", "FileToolset", "TerminalToolset", "TodoToolset"]

#: Returns the environment of a task, the same one each time; called when a tool first needs it.
EnvironmentOf = Callable[[TaskScope], Environment]


class TerminalToolset:
    """`terminal` and `process`. `timeout` is the usual limit of a command in seconds, `max_timeout` the largest."""

    name = "terminal"
    label = "Run shell commands and background processes"
    opt_in = False
    tool_names = ("terminal", "process")
    alike = True

    def __init__(self, environment_of: EnvironmentOf, *, timeout: float = 180.0, max_timeout: float = 3600.0) -> None:
        self._environment_of = environment_of
        self._timeout = timeout
        self._max_timeout = max(timeout, max_timeout)

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """Build the tools for one task."""

        def environment() -> Environment:
            return self._environment_of(env.scope)

        return (
            terminal_tool(environment, timeout=self._timeout, max_timeout=self._max_timeout),
            process_tool(environment, timeout=self._timeout),
        )


class FileToolset:
    """`read_file`, `write_file`, `patch`, `search_files`. `denied` are files and directories that hold secrets."""

    name = "file"
    label = "Read, write, patch and search files"
    opt_in = False
    tool_names = ("read_file", "write_file", "patch", "search_files")
    alike = True

    def __init__(self, environment_of: EnvironmentOf, *, denied: Iterable[str] = (), hold: Hold = NO_HOLD) -> None:
        self._hold = hold
        self._environment_of = environment_of
        self._denied = tuple(denied)
        self._log = WriteLog()

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """Build the tools for one task."""
        seen = FilesSeen(env.scope.task_id, self._log)
        access = FileAccess(lambda: self._environment_of(env.scope), self._denied, seen, self._hold)
        return (read_file_tool(access), write_file_tool(access), patch_tool(access), search_files_tool(access))


class TodoToolset:
    """`todo`."""

    name = "todo"
    label = "Keep a list of steps"
    opt_in = False
    tool_names = ("todo",)
    alike = True

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """Build the tool for one task."""
        return (todo_tool(),)
