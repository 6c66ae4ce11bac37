"""An environment that only knows directories, for tests of tools, and how to call a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hermes.core.environment import CommandResult, Environment, EnvironmentKind, Files, ProcessInfo, ProcessOutput
from hermes.core.errors import ToolError
from hermes.core.scope import CallKey, TaskScope
from hermes.core.tools import CallContext, Tool, ToolEnv, ToolOutput, Toolset
from hermes.environments.files import LocalFiles


class Place:
    """An environment without processes; commands are answered from `answers`."""

    kind: EnvironmentKind = "local"
    files: Files = LocalFiles()

    def __init__(self, folder: Path) -> None:
        self.cwd = self.workspace = self.exchange = str(folder)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[CommandResult] = []
        self.info = ProcessInfo(process_id="proc_00000001", command="serve", state="running", pid=7, elapsed=1.0)

    def resolve(self, path: str) -> str:
        return str((Path(self.cwd) / path).resolve()) if ".." in path else str(Path(self.cwd) / path)

    async def run(self, command: str, **more: Any) -> CommandResult:
        self.calls.append((command, more))
        return self.answers.pop(0)

    async def start(self, command: str, **more: Any) -> ProcessInfo:
        self.calls.append((command, more))
        return self.info

    def processes(self) -> tuple[ProcessInfo, ...]:
        return (self.info,)

    def _output(self, process_id: str, text: str) -> ProcessOutput:
        if process_id != self.info.process_id:
            raise ToolError(f"There is no background process {process_id!r}.")
        return ProcessOutput(info=self.info, text=text, first=3, total_lines=4)

    async def poll(self, process_id: str) -> ProcessOutput:
        return self._output(process_id, "polled")

    async def log(self, process_id: str, *, offset: int | None = None, limit: int = 200) -> ProcessOutput:
        return self._output(process_id, f"log {offset} {limit}")

    async def wait(self, process_id: str, timeout: float) -> ProcessOutput:
        return self._output(process_id, f"waited {timeout:g}")

    async def kill(self, process_id: str) -> ProcessInfo:
        self.info = msgspec.structs.replace(self.info, state="killed", reason="request", exit_code=143)
        return self.info

    async def close(self) -> tuple[ProcessInfo, ...]:
        return ()


def tools_of(toolset: Toolset, task_id: str, place: Environment) -> dict[str, Tool]:
    scope = TaskScope(task_id=task_id, session_id="s", root_id="r", workspace=place.workspace)
    return {tool.name: tool for tool in toolset.build(ToolEnv(scope=scope, state_dir="/nonexistent"))}


async def call(tool: Tool, room: int = 100_000, **arguments: Any) -> ToolOutput:
    scope = TaskScope(task_id="t", session_id="s", root_id="r")
    context = CallContext(key=CallKey("t", 1, 0), scope=scope, progress=lambda text: None, room=lambda: room)
    output = await tool.run(tool.parse(arguments), context)
    assert isinstance(output, ToolOutput)
    return output
