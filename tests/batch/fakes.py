"""A scripted engine and short ways to make datasets, results and runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from hermes.batch.job import JobOptions, run_job
from hermes.batch.progress import LineDisplay
from hermes.batch.rollout import RolloutError, RolloutRequest, RolloutResult
from hermes.batch.run import StopSwitch
from hermes.batch.settings import BatchSettings
from hermes.core.clock import NO_HOLD, Hold
from hermes.core.messages import Assistant, Text, ToolCall, ToolResult, Usage, User
from hermes.core.model import ModelProfile, ToolSpec

TOOLSETS = {"terminal": ("terminal",), "file": ("read_file", "write_file"), "todo": ("todo",)}

Script = Callable[[RolloutRequest], Awaitable[RolloutResult]]


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=f"{name} does things", parameters={"type": "object", "properties": {}})


def answered(
    prompt: str,
    text: str = "done",
    *,
    thinking: str = "let me see",
    call: str | None = "terminal",
    tools: tuple[str, ...] = ("terminal", "read_file", "write_file"),
    output: str = "ok",
    **more: Any,
) -> RolloutResult:
    """A rollout of one call (unless `call` is None) and an answer."""
    entries: list[Any] = [User(content=(Text(prompt),))]
    if call is not None:
        entries.append(
            Assistant(
                text="I will look.",
                thinking=thinking,
                calls=(ToolCall(id="c0", name=call, arguments={"command": "ls"}),),
                stop="tool_calls",
            )
        )
        entries.append(ToolResult(position=1, index=0, call_id="c0", name=call, content=(Text(output),)))
    entries.append(Assistant(text=text, thinking=thinking))
    return RolloutResult(
        **{
            "state": "completed",
            "exit_reason": "completed",
            "entries": tuple(entries),
            "usage": Usage(input=100, output=20),
            "api_calls": 2,
            "model": "fake-model",
            "tools": tuple(spec(name) for name in tools),
            "started_at": 1000.0,
            "duration": 1.0,
            **more,
        }
    )


def failed(kind: str, message: str = "broken", **more: Any) -> RolloutResult:
    return RolloutResult(state="failed", error=RolloutError(kind=kind, message=message, **more))


class FakeEngine:
    """Answers by `script`; remembers requests and how many ran at once."""

    model = "fake-model"
    taped = False

    def __init__(self, script: Script | None = None, *, thinking: bool = True) -> None:
        self.script = script
        self.profile = ModelProfile(thinking=thinking, price_input=0.5, price_output=2.0)
        self.toolsets = TOOLSETS
        self.requests: list[RolloutRequest] = []
        self.settings: list[BatchSettings] = []
        self.ended: list[str] = []
        self.running = 0
        self.most = 0

    async def run(self, request: RolloutRequest) -> RolloutResult:
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await anyio.sleep(0)
            return answered(request.prompt) if self.script is None else await self.script(request)
        finally:
            self.running -= 1

    def redact(self, data: bytes) -> bytes:
        return data.replace(b"sk-planted-key", b"[redacted:key]")

    def begun(self) -> tuple[str, ...]:
        return ()

    def keep_only(self, names: Collection[str]) -> None:
        assert not names

    def settled(self, key: str, attempt: int) -> None:
        self.ended.append(key)

    def spent(self) -> tuple[int, float]:
        return 0, 0.0

    def waiting_for(self) -> str:
        return ""

    @asynccontextmanager
    async def open(self, settings: BatchSettings) -> AsyncIterator[FakeEngine]:
        self.settings.append(settings)
        yield self


class Desk:
    """Starts runs in a folder and keeps what they say."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / "data"
        self.said: list[str] = []
        self.notes: list[str] = []
        self.switch: StopSwitch | None = None

    def dataset(self, rows: list[Any], name: str = "prompts.jsonl") -> Path:
        path = self.path / name
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path

    async def start(self, engine: FakeEngine, *, ask: Any = None, hold: Hold = NO_HOLD, **wishes: Any) -> int:
        options = {
            name: wishes.pop(name)
            for name in ("resume", "overwrite", "accept_changes", "yes", "retry", "redo", "allowed", "tables")
            if name in wishes
        }
        given = {"run_name": "r", **wishes}
        if "dataset_file" not in given and not options.get("resume"):
            given["dataset_file"] = str(self.path / "prompts.jsonl")
        self.switch = StopSwitch()
        return await run_job(
            JobOptions(given=given, **options),
            open_engine=engine.open,
            display=LineDisplay(self.notes.append),
            say=self.said.append,
            switch=self.switch,
            data_dir=self.data,
            ask=ask,
            hold=hold,
        )

    def lines(self, name: str, run: str = "r") -> list[dict[str, Any]]:
        path = self.data / run / name
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def json(self, name: str, run: str = "r") -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.data / run / name).read_text("utf-8"))
        return value

    def batch_rows(self, run: str = "r") -> list[dict[str, Any]]:
        names = sorted(path.name for path in (self.data / run).glob("batch_*.jsonl"))
        return [row for name in names for row in self.lines(name, run)]


def prompts(count: int) -> list[dict[str, Any]]:
    return [{"prompt": f"prompt {number}"} for number in range(count)]
