"""A whole runtime for a test: memory stores, a model of yours, and the clock you give it.

    async with open_lab(ScriptedModel("test", [...]), clock=virtual_clock) as lab:
        session = await lab.converse()
        outcome = await session.exchange("list the files")

Everything but the disk, the network and time is the real thing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hermes.compose import Assembly, Parts, conversation_spec, open_runtime
from hermes.compose.taping import replay_endpoint
from hermes.config import find_home, load
from hermes.core.clock import NO_HOLD, Hold, SystemClock
from hermes.core.events import Envelope
from hermes.core.model import Model
from hermes.core.result import TaskResult
from hermes.credentials import Endpoint
from hermes.runtime.cassette import Cassette
from hermes.runtime.session import Session
from hermes.runtime.task import Task
from hermes.store.ops import Store
from hermes.testing.clock import VirtualClock

__all__ = ["Lab", "open_lab"]


class Lab:
    """An open runtime, with every event that passed and short ways to start things."""

    def __init__(self, assembly: Assembly, workspace: Path) -> None:
        self.assembly = assembly
        self.runtime = assembly.runtime
        self.workspace = workspace
        self.events: list[Envelope] = []
        self.runtime.bus.subscribe(self.events.append)

    def of(self, kind: type[Any], task_id: str | None = None) -> list[Any]:
        """The events of a type, in order; of one task if its id is given."""
        return [
            item.event
            for item in self.events
            if isinstance(item.event, kind) and (task_id is None or item.task_id == task_id)
        ]

    async def converse(self, **options: Any) -> Session:
        """Open a conversation that rests between inputs; `options` as `conversation_spec`."""
        options.setdefault("unattended", False)
        spec, _ = conversation_spec(self.assembly, interactive=True, workspace=str(self.workspace), **options)
        return await self.runtime.open_session(spec, source="test")

    async def start(self, goal: str, **options: Any) -> Task:
        """Start a single request and return its task."""
        spec, _ = conversation_spec(
            self.assembly, goal=goal, interactive=False, workspace=str(self.workspace), **options
        )
        return await self.runtime.start(spec, source="test")

    async def ask(self, goal: str, **options: Any) -> TaskResult:
        """Run a single request to its end."""
        return await self.runtime.result(await self.start(goal, **options))


def _endpoint(model: Model) -> Endpoint:
    return Endpoint(provider="test", base_url="", api_key="", key_source="none", model=model.name)


@asynccontextmanager
async def open_lab(
    model: Model,
    *,
    workspace: Path,
    clock: VirtualClock | None = None,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    memory: bool = True,
    observed: bool = False,
    yolo: bool = False,
    record: Path | None = None,
    replay: Cassette | None = None,
    wrap_store: Callable[[Store], Store] | None = None,
) -> AsyncIterator[Lab]:
    """Open a runtime around `model`. `settings` are dotted keys over the defaults (commands run on this
    machine, whether it has a sandbox or not); `memory=False` journals to the home;
    `observed` adds transcripts, notifications and keeping house there.

    `record` and `replay` as in `Parts`; what is replayed answers in place of `model`.
    `wrap_store` as in `Parts`: a journal that fails, or one that several runtimes share.
    `environ` is what the runtime sees as its environment (default: the process's).
    """
    home = find_home(environ or {"HERMES_HOME": str(workspace / ".hermes-home")})
    loaded = load(home, environ or {}, {"terminal.backend": "local", **(settings or {})})
    loaded.require()
    hold: Hold = clock if clock is not None else NO_HOLD
    parts = Parts(
        loaded=loaded,
        endpoint=replay_endpoint(replay) if replay is not None else _endpoint(model),
        model=model,
        memory=memory,
        observed=observed,
        yolo=yolo,
        watchdog=False,
        clock=clock if clock is not None else SystemClock(),
        hold=hold,
        environ=environ or {},
        state_root=home.path / "tasks",
        record=record,
        replay=replay,
        wrap_store=wrap_store or (lambda store: store),
    )
    async with open_runtime(parts) as assembly:
        yield Lab(assembly, workspace)
