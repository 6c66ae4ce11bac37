"""`python -m hermes.cli.batch_worker`: one of the processes of `hermes batch run --processes N`, on this machine or on
a node of a cluster.

Reads what to do from its standard input and answers on its standard output, in lines of `batch.wire`; ends when its
input does, so that it never outlives its run. Not for people.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from hermes.batch import wire
from hermes.batch.attempt import failure
from hermes.batch.away import AwayEngine, Outpost
from hermes.batch.folder import RunFolder
from hermes.batch.rollout import Engine
from hermes.batch.settings import BatchSettings
from hermes.cli.batch_engine import BatchEngine
from hermes.cli.carried import Carried, unpack
from hermes.cli.options import GlobalOptions
from hermes.core.errors import HermesError, OperatorError, TryLater

__all__ = ["main"]

#: Seconds between two words about what was used.
BEAT = 0.5
#: Seconds that the process which had this place before gets to end.
BEFORE = 30.0


class _Outbox:
    """Lines on their way to the run, in order; nobody waits for them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting = bytearray()
        self._news = anyio.Event()

    def put(self, message: wire.ToRun, redact: Callable[[bytes], bytes] = bytes) -> None:
        """Send a message."""
        self._waiting += redact(wire.encode(message))
        self._news.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Write all there is. A run that is gone needs nothing any more."""
        while self._waiting:
            await anyio.wait_writable(self._descriptor)
            try:
                written = os.write(self._descriptor, self._waiting[:65_536])
            except BlockingIOError:
                continue
            except BrokenPipeError:
                self._waiting.clear()
                return
            del self._waiting[:written]


async def _lines(descriptor: int) -> AsyncIterator[bytes]:
    """The lines of a pipe until its end."""
    lines = wire.Lines()
    while True:
        await anyio.wait_readable(descriptor)
        try:
            chunk = os.read(descriptor, 65_536)
        except BlockingIOError:
            continue
        if not chunk:
            return
        for line in lines.feed(chunk):
            yield line


class _Server:
    """Carries out what one run asks for."""

    def __init__(self, engine: Engine, out: _Outbox, group: anyio.abc.TaskGroup) -> None:
        self._engine = engine
        self._out = out
        self._group = group
        self._scopes: dict[int, anyio.CancelScope] = {}

    def hear(self, message: wire.ToWorker) -> None:
        """Do what a message says."""
        match message:
            case wire.Run():
                self._group.start_soon(self._run, message)
            case wire.Cancel(id=number):
                if number in self._scopes:
                    self._scopes[number].cancel()
            case wire.Settled(key=key, attempt=attempt):
                self._engine.settled(key, attempt)
            case wire.Keep(names=names):
                self._engine.keep_only(names)

    async def _run(self, message: wire.Run) -> None:
        def report(phase: str) -> None:
            self._out.put(wire.Phase(id=message.id, phase=phase))

        request = msgspec.structs.replace(wire.request_of(message), report=report)
        with anyio.CancelScope() as scope:
            self._scopes[message.id] = scope
            try:
                result = await self._engine.run(request)
                self._out.put(wire.Done(id=message.id, result=result), self._engine.redact)
            except OperatorError as error:
                self._out.put(wire.Broken(id=message.id, text=str(error)))
            except Exception as error:  # noqa: BLE001  a fault of one rollout; the run writes it down
                text = f"{type(error).__name__}: {error}"
                self._out.put(wire.Done(id=message.id, result=failure("crashed", text)), self._engine.redact)
        del self._scopes[message.id]
        if scope.cancelled_caught:
            self._out.put(wire.Gone(id=message.id))

    async def beat(self) -> None:
        """Say what was used, until cancelled."""
        while True:
            tokens, cost = self._engine.spent()
            waiting_for = self._engine.waiting_for()
            self._out.put(wire.Beat(tokens=tokens, cost_usd=cost, waiting_for=waiting_for))
            await anyio.sleep(BEAT)


async def _serve(out: _Outbox) -> None:
    lines = _lines(0)
    begin = wire.decode_to_worker(await anext(lines))
    assert isinstance(begin, wire.Begin)
    settings = msgspec.convert(begin.settings, BatchSettings)
    options = msgspec.convert(begin.options, GlobalOptions)
    try:
        if begin.away:
            await _serve_away(begin, settings, options, lines, out)
            return
        opener = BatchEngine(
            options, Path(begin.data_dir), number=begin.number, record=begin.record, replay=begin.replay
        )
        held = await anyio.to_thread.run_sync(_take_place, opener.journal(settings))
        opener.announce(lambda text: out.put(wire.Said(text=text)))
        async with opener.open(settings) as engine:
            await _answer(engine, lines, out)
        os.close(held)
    except HermesError as error:
        out.put(wire.Refused(text=str(error), code=error.exit_code))
        await out.flush()


async def _serve_away(
    begin: wire.Begin, settings: BatchSettings, options: GlobalOptions, lines: AsyncIterator[bytes], out: _Outbox
) -> None:
    """Serve a run whose folder and home are on another machine."""
    outpost = await anyio.to_thread.run_sync(Outpost.take, begin.away, begin.journal)
    half_done = True
    try:
        carried = msgspec.convert(begin.carried, Carried)
        sources = unpack(carried, outpost.home)
        asked = sources(msgspec.structs.replace(options, model=settings.model or options.model))
        base_url = asked.endpoint(base_url=settings.base_url or "").base_url
        if base_url != carried.base_url:
            raise OperatorError(f"a process away from its run would ask {base_url} instead of {carried.base_url}.")
        opener = BatchEngine(options, outpost.data_dir, number=0, sources=sources)

        def say(text: str) -> None:
            out.put(wire.Said(text=text))

        opener.announce(say)
        async with opener.open(settings) as inner:
            # all see the same folders: one of them remarks on it
            note = say if begin.number == 0 else None
            engine = AwayEngine(inner, RunFolder(outpost.data_dir, settings.run_name), settings, note)
            await _answer(engine, lines, out, (engine.clear,), outpost.journal)
            half_done = bool(engine.begun())
    finally:
        outpost.leave(settings.run_name, half_done, settings.keep_workspaces)


async def _answer(
    engine: Engine,
    lines: AsyncIterator[bytes],
    out: _Outbox,
    beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    journal: str = "",
) -> None:
    """Do what a run says until it says no more; `beside` runs meanwhile."""
    async with anyio.create_task_group() as group:
        group.start_soon(out.run)
        out.put(
            wire.Opened(
                model=engine.model,
                profile=engine.profile,
                toolsets={name: tuple(tools) for name, tools in engine.toolsets.items()},
                begun=tuple(engine.begun()),
                journal=journal,
                host=os.uname().nodename if journal else "",
            )
        )
        server = _Server(engine, out, group)
        group.start_soon(server.beat)
        for each in beside:
            group.start_soon(each)
        async for line in lines:
            server.hear(wire.decode_to_worker(line))
        group.cancel_scope.cancel()


def _take_place(journal: Path) -> int:
    """Wait for the process that had this place before, which may still be ending: its rollouts are then free.

    Raises:
        TryLater: it does not end.
    """
    descriptor = os.open(journal.with_name(f"{journal.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + BEFORE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise TryLater(
                    f"a process of an earlier start still works on {journal}; end it, or try later"
                ) from None
            time.sleep(0.05)


def main() -> int:
    """Serve one run; returns the exit code of the process."""
    # What libraries print must not come between the lines: standard output becomes the error output.
    out = os.dup(1)
    os.dup2(2, 1)
    for descriptor in (0, out):
        os.set_blocking(descriptor, False)
    anyio.run(_main, out)
    return 0


async def _main(descriptor: int) -> None:
    await _serve(_Outbox(descriptor))


if __name__ == "__main__":
    sys.exit(main())
