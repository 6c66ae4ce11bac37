"""Recording and replaying a runtime: the file, the endpoint, and what stands between tasks and their models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from hermes.compose.parts import Parts
from hermes.core.clock import held
from hermes.core.errors import UsageError
from hermes.core.model import Model
from hermes.credentials import Endpoint
from hermes.credentials.redact import Redactor
from hermes.delegation.background import AsyncDelegationToolset
from hermes.delegation.toolset import DelegationToolset
from hermes.runtime.approval import Gate
from hermes.runtime.cassette import Cassette, CassetteFile, Header, read_cassette
from hermes.runtime.recording import Recorder
from hermes.runtime.replaying import Player, cassette_model
from hermes.runtime.taping import Caller, Names, Tape
from hermes.runtime.task import Task

__all__ = ["TapedGate", "cassettes", "replay_endpoint", "taping", "with_cassette"]

#: Tools that work on the tree of tasks: they run although everything else comes from a cassette.
LIVE = frozenset((*DelegationToolset.tool_names, *AsyncDelegationToolset.tool_names))


def cassettes(record: str, replay: str) -> tuple[Path | None, Cassette | None]:
    """The file to record to and the cassette to replay, as they were asked for; empty means not.

    Raises:
        UsageError: both were asked for, or there is no such cassette.
    """
    if record and replay:
        raise UsageError("--record and --replay exclude each other: record from the models, or answer from a file.")
    return (Path(record).absolute() if record else None), (read_cassette(Path(replay)) if replay else None)


def replay_endpoint(cassette: Cassette, model: str = "", aliases: Mapping[str, str] | None = None) -> Endpoint:
    """Stands where a server would: none is asked and no key looked for. `model` is the one that was named, if any."""
    named = (aliases or {}).get(model, model)
    return Endpoint(
        provider=cassette.header.provider,
        base_url="",
        api_key="",
        key_source=f"none needed (replayed from {cassette.path.name})",
        model=named or cassette.header.model,
    )


class TapedGate(Gate):
    """A gate whose calls are seen by `tape`, where there is one: what is recorded was let through and cleaned, what is
    replayed is not judged again."""

    tape: Tape | None = None

    def guard(self, task: Task, *, read_only: bool = False) -> Caller:
        """Return what makes the calls of one task."""
        made = super().guard(task, read_only=read_only)
        return made if self.tape is None else self.tape.guard(task, made)


def with_cassette(parts: Parts) -> Parts:
    """The parts with the recorded model in place of every other one, where a cassette is replayed."""
    if parts.replay is None:
        return parts
    return msgspec.structs.replace(parts, model=cassette_model(parts.replay))


@asynccontextmanager
async def taping(
    parts: Parts, redactor: Redactor, tasks: Mapping[str, Task], model: Model
) -> AsyncIterator[Tape | None]:
    """The tape of a runtime for the length of a block, None where nothing is recorded and nothing replayed.
    `model` is that of the conversation.

    Raises:
        UsageError: there can be no such file.
        OperatorError: at the end: what was recorded could not be written.
    """
    names = Names(tasks)
    if parts.replay is not None:
        yield Player(parts.replay, names, live=LIVE)
        return
    if parts.record is None:
        yield None
        return
    with held(parts.hold):
        file = await anyio.to_thread.run_sync(CassetteFile, parts.record, redactor.json_bytes)
    header = Header(
        recorded_at=round(parts.clock.now(), 3),
        model=parts.endpoint.model,
        provider=parts.endpoint.provider,
        profile=model.profile,
    )
    try:
        yield Recorder(file, names, header=header, live=LIVE)
    finally:
        with anyio.CancelScope(shield=True), held(parts.hold):
            await anyio.to_thread.run_sync(file.close)
