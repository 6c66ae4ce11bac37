"""An engine that shares rollouts out among processes, each with a loop, a runtime and a journal of its own.

The run stays where it is: it plans, writes and counts. A process that dies costs nothing but the step it was in:
another takes its place and its journal, and goes on with the rollouts it had; where the journal is lost with its
machine, they are done again. A rollout over which one after the other dies is given up. What a process does inside is
the ordinary engine's, and where it runs is its `link`'s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import msgspec

from hermes.batch import wire
from hermes.batch.identity import session_name
from hermes.batch.link import Connect
from hermes.batch.place import Job, Place
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.core.errors import OperatorError, TryLater, UsageError
from hermes.core.model import ModelProfile
from hermes.runtime.taping import TapeShare

__all__ = ["ProcessEngine", "open_processes"]

#: Seconds in which a process has to open its engine, one before it that is still ending included.
OPENING = 60.0
#: Seconds that a stopped rollout gets to end its commands.
STOP_GRACE = 5.0
#: Seconds that the processes get to end by themselves at the end of the run; killed, they lose nothing that is kept.
END_GRACE = 1.5


class ProcessEngine:
    """Carries rollouts out in `workers`. `redact` takes secrets out of encoded JSON. The first `lasting` take whatever
    comes; the others go on with what they have begun, and end then. Where they are recorded or replayed, `tape` takes
    what each got of a replay."""

    def __init__(
        self,
        workers: Sequence[Place],
        redact: Callable[[bytes], bytes],
        lasting: int,
        tape: Callable[[TapeShare], None] | None = None,
    ) -> None:
        self._workers = workers
        self._lasting = workers[:lasting]
        self._redact = redact
        self._tape = tape
        self._number = 0
        self._to_tell: list[tuple[Place, wire.ToWorker | None]] = []
        self._news = anyio.Event()
        opened = workers[0].opened
        assert opened is not None
        self._opened = opened

    @property
    def model(self) -> str:
        """The model's name."""
        return self._opened.model

    @property
    def profile(self) -> ModelProfile:
        """What is known of the model."""
        return self._opened.profile

    @property
    def toolsets(self) -> Mapping[str, tuple[str, ...]]:
        """The toolsets there are, with the names of their tools."""
        return self._opened.toolsets

    @property
    def taped(self) -> bool:
        """Whether rollouts are recorded or replayed."""
        return self._tape is not None

    def redact(self, data: bytes) -> bytes:
        """Replace known secrets; results come without those that their process knows."""
        return self._redact(data)

    def waiting_for(self) -> str:
        """What the processes wait for."""
        return ", ".join(worker.beat.waiting_for for worker in self._workers if worker.beat.waiting_for)

    def begun(self) -> Collection[str]:
        """The half-done rollouts of all processes."""
        return set().union(*(worker.names for worker in self._workers))

    def keep_only(self, names: Collection[str]) -> None:
        """Let go of all half-done rollouts but these."""
        for worker in self._workers:
            worker.names.intersection_update(names)
            self._later(worker, wire.Keep(names=tuple(worker.names)))
            self._dismiss(worker)

    def settled(self, key: str, attempt: int) -> None:
        """The record of an attempt is synced."""
        name = session_name(key, attempt)
        for worker in self._workers:
            if name in worker.names:
                worker.names.discard(name)
                self._later(worker, wire.Settled(key=key, attempt=attempt))
                self._dismiss(worker)

    def _dismiss(self, worker: Place) -> None:
        """Let a place end that has gone on with all it had begun."""
        if worker not in self._lasting and not worker.names:
            self._later(worker, None)

    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars used by all processes."""
        spent = [worker.spent for worker in self._workers]
        return sum(tokens for tokens, _ in spent), sum(cost for _, cost in spent)

    def _later(self, worker: Place, message: wire.ToWorker | None) -> None:
        """Have a message sent, None being the end of all."""
        self._to_tell.append((worker, message))
        self._news.set()

    async def deliver(self) -> None:
        """Send what was said in passing, until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Send what was said in passing so far."""
        while self._to_tell:
            worker, message = self._to_tell.pop(0)
            await (worker.close() if message is None else worker.tell(message))

    async def run(self, request: RolloutRequest) -> RolloutResult:
        """Have one rollout carried out. Cancelled, its process stops it where it stands."""
        name = session_name(request.key, request.attempt)
        while True:
            worker = self._choose(name)
            job = await self._ask(worker, name, request)
            if job.result is not None:
                share = job.result.tape
                if share is None or self._tape is None:
                    return job.result
                self._tape(share)
                return msgspec.structs.replace(job.result, tape=None)
            # The place is given up: the others do what it had to.
            if worker.refused is None or all(one.gone.is_set() for one in self._workers):
                raise OperatorError(job.broken or "the process that carried a rollout out has ended")
            worker.names.discard(name)

    def _choose(self, name: str) -> Place:
        """Who has begun a rollout, else who has the least to do."""
        there = [one for one in self._workers if not one.gone.is_set()] or self._workers
        lasting = [one for one in there if one in self._lasting] or there
        return next((one for one in there if name in one.names), None) or min(lasting, key=lambda one: len(one.jobs))

    async def _ask(self, worker: Place, name: str, request: RolloutRequest) -> Job:
        """Have a worker carry a rollout out; returns when it has ended, or the worker has."""
        self._number += 1
        job = Job(self._number, request)
        worker.jobs[job.number] = job
        worker.names.add(name)
        if worker.gone.is_set():
            worker.jobs.pop(job.number)
            job.end(broken=worker.refused.text if worker.refused is not None else "")
        try:
            await worker.tell(wire.run_message(job.number, request))
            await job.ended.wait()
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_GRACE):
                await worker.tell(wire.Cancel(id=job.number))
                await job.ended.wait()
            worker.jobs.pop(job.number, None)
            raise
        return job


@asynccontextmanager
async def open_processes(
    begins: Sequence[wire.Begin],
    connects: Sequence[Connect],
    *,
    say: Callable[[str], None],
    redact: Callable[[bytes], bytes],
    lasting: int | None = None,
    tape: Callable[[TapeShare], None] | None = None,
) -> AsyncIterator[ProcessEngine]:
    """Start a process for each of `begins` by the one of `connects` in the same place, and yield their engine.
    `lasting` of them take whatever comes (None: all), the others only go on with what they have begun. `tape` takes
    what rollouts got of a replay; it also says that they are recorded or replayed.

    Raises:
        UsageError, OperatorError, TryLater: as the engine of one of them; nothing was run.
    """
    workers = [
        Place(begin, connect, say if begin.number == 0 else _nobody)
        for begin, connect in zip(begins, connects, strict=True)
    ]
    failure: Exception | None = None
    engine: ProcessEngine | None = None
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(worker.run)
        try:
            with anyio.fail_after(OPENING):
                for worker in workers:
                    await worker.ready()
            _see(workers)
            for worker in workers:
                worker.aloud(say)
            engine = ProcessEngine(workers, redact, len(workers) if lasting is None else lasting, tape)
            group.start_soon(engine.deliver)
            yield engine
        except TimeoutError:
            failure = OperatorError(f"the processes of the run have not started within {OPENING:g} s.")
        except Exception as error:  # noqa: BLE001  raised below, where no group wraps it
            failure = error
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(END_GRACE):
                if engine is not None:
                    await engine.flush()
                async with anyio.create_task_group() as closing:
                    for worker in workers:
                        closing.start_soon(_end, worker)
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _end(worker: Place) -> None:
    await worker.close()
    await worker.gone.wait()


def _nobody(text: str) -> None:
    """All processes say the same at their start: it is heard once."""


def _see(workers: Sequence[Place]) -> None:
    for worker in workers:
        if worker.refused is not None:
            kind = {2: UsageError, 75: TryLater}.get(worker.refused.code, OperatorError)
            raise kind(worker.refused.text)
    all_of = [worker.opened for worker in workers if worker.opened is not None]
    for other in all_of[1:]:
        if other.toolsets != all_of[0].toolsets:
            differing = sorted(
                {*other.toolsets, *all_of[0].toolsets}
                - {name for name, tools in other.toolsets.items() if all_of[0].toolsets.get(name) == tools}
            )
            raise OperatorError(
                f"{all_of[0].host or 'a process'} and {other.host or 'another'} have other tools in: "
                f"{', '.join(differing)}. Install and configure both alike."
            )
