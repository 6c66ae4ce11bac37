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
from hermes.batch.attempt import failure
from hermes.batch.identity import session_name
from hermes.batch.link import Connect, Link
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.core.errors import HermesError, OperatorError, TryLater, UsageError
from hermes.core.model import ModelProfile

__all__ = ["ProcessEngine", "open_processes"]

#: Processes that may die over one rollout before it counts as its fault.
DEATHS = 3
#: Processes in a row that may die at their start before their place is given up.
STILLBORN = 8
#: Seconds before the second of them, doubled before each other.
REST = 0.1
#: Seconds in which a process has to open its engine, one before it that is still ending included.
OPENING = 60.0
#: Seconds that a stopped rollout gets to end its commands.
STOP_GRACE = 5.0
#: Seconds that the processes get to end by themselves at the end of the run; killed, they lose nothing that is kept.
END_GRACE = 1.5


class _Job:
    """A rollout in the hands of a process."""

    def __init__(self, number: int, request: RolloutRequest) -> None:
        self.number = number
        self.request = request
        self.deaths = 0
        self.ended = anyio.Event()
        self.result: RolloutResult | None = None
        self.broken = ""

    def end(self, result: RolloutResult | None = None, broken: str = "") -> None:
        """Wake whoever waits."""
        self.result, self.broken = result, broken
        self.ended.set()


class _Worker:
    """One place for a process, whichever fills it. `begin` is its first line, `connect` what starts it."""

    def __init__(self, begin: wire.Begin, connect: Connect, say: Callable[[str], None]) -> None:
        self._begin = begin
        self._connect = connect
        self._say = say
        self._link: Link | None = None
        self._ready = anyio.Event()
        self._sending = anyio.Lock()
        self.gone = anyio.Event()
        self.opened: wire.Opened | None = None
        self.refused: wire.Refused | None = None
        self.closing = False
        self._open = False  # the process that has this place now has begun
        self.jobs: dict[int, _Job] = {}
        self.names: set[str] = set()
        self.beat = wire.Beat(tokens=0, cost_usd=0.0)
        self._before = (0, 0.0)

    @property
    def spent(self) -> tuple[int, float]:
        """Tokens and dollars of all processes that had this place."""
        return self._before[0] + self.beat.tokens, self._before[1] + self.beat.cost_usd

    async def run(self) -> None:
        """Keep a process in this place until the end of the run."""
        first, stillborn = True, 0
        while not self.closing and self.refused is None:
            self._open = False
            await self._live(first)
            first = False
            if self.closing or self.refused is not None:
                break
            if self._open:
                stillborn = 0
                self._bury()
                continue
            stillborn += 1
            if stillborn >= STILLBORN:
                self.refused = wire.Refused(text=f"{stillborn} processes in a row died before they could begin")
            else:
                await anyio.sleep(REST * 2 ** (stillborn - 1))
        self._ready.set()
        self.gone.set()
        for job in list(self.jobs.values()):
            self._end(job.number, broken=self.refused.text if self.refused is not None else "it has ended")

    def aloud(self, say: Callable[[str], None]) -> None:
        """From now on `say` takes what this place has to say."""
        self._say = say

    async def _live(self, first: bool) -> None:
        """One process from its start to its end."""
        begin = self._begin
        if self.opened is not None:
            begin = msgspec.structs.replace(begin, journal=self.opened.journal)
        try:
            async with self._connect(not first) as link:
                self._link = link
                await self._tell(begin)
                await self._listen(link, first)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            pass  # it died; what that means is decided by whoever waits for it
        except HermesError as error:  # none can be had for this place
            self.refused = wire.Refused(text=str(error), code=error.exit_code)
        finally:
            self._link = None

    async def _listen(self, link: Link, first: bool) -> None:
        lines = wire.Lines()
        while True:
            for line in lines.feed(await link.receive()):
                await self._hear(wire.decode_to_run(line), first)

    async def _hear(self, message: wire.ToRun, first: bool) -> None:
        match message:
            case wire.Opened():
                self.opened = message
                self._open = True
                if first:
                    self.names.update(message.begun)
                else:
                    await self._tell(wire.Keep(names=tuple(self.names)))
                    for job in list(self.jobs.values()):
                        await self._tell(wire.run_message(job.number, job.request))
                self._ready.set()
            case wire.Refused():
                self.refused = message
                self._ready.set()
            case wire.Said(text=text):
                if first or self._open:  # what is said at each start has been said
                    self._say(text)
            case wire.Phase(id=number, phase=phase):
                if number in self.jobs:
                    self.jobs[number].request.report(phase)
            case wire.Beat():
                self.beat = message
            case wire.Done(id=number, result=result):
                self._end(number, result)
            case wire.Gone(id=number):
                self._end(number)
            case wire.Broken(id=number, text=text):
                self._end(number, broken=text)

    def _end(self, number: int, result: RolloutResult | None = None, broken: str = "") -> None:
        job = self.jobs.pop(number, None)
        if job is not None:
            job.end(result, broken)

    def _bury(self) -> None:
        """The process died: its rollouts go on in the next one."""
        self._before, self.beat = self.spent, wire.Beat(tokens=0, cost_usd=0.0)
        count = len(self.jobs)
        host = self.opened.host if self.opened is not None else ""
        where = f" on {host}" if host else ""
        self._say(
            f"process {self._begin.number}{where} died; another takes its place and goes on with its {count} rollouts"
        )
        for job in list(self.jobs.values()):
            job.deaths += 1
            if job.deaths >= DEATHS:
                self._end(job.number, failure("crashed", f"{DEATHS} processes died while they carried it out"))

    async def _tell(self, message: wire.ToWorker) -> None:
        link = self._link
        if link is not None:
            async with self._sending:
                await link.send(wire.encode(message))

    async def tell(self, message: wire.ToWorker) -> None:
        """Send a message, if the process lives; one that takes its place is told what counts by then."""
        try:
            await self._tell(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it died: `run` starts another, which hears of every job anew

    async def ready(self) -> None:
        """Wait until the engine is open, or refused."""
        await self._ready.wait()

    async def close(self) -> None:
        """Let the process end: it reads the end of its input."""
        self.closing = True
        link = self._link
        if link is None:
            return
        try:
            async with self._sending:
                await link.close()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it has ended before


class ProcessEngine:
    """Carries rollouts out in `workers`. `redact` takes secrets out of encoded JSON."""

    def __init__(self, workers: Sequence[_Worker], redact: Callable[[bytes], bytes]) -> None:
        self._workers = workers
        self._redact = redact
        self._number = 0
        self._to_tell: list[tuple[_Worker, wire.ToWorker]] = []
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

    def settled(self, key: str, attempt: int) -> None:
        """The record of an attempt is synced."""
        name = session_name(key, attempt)
        for worker in self._workers:
            if name in worker.names:
                worker.names.discard(name)
                self._later(worker, wire.Settled(key=key, attempt=attempt))

    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars used by all processes."""
        spent = [worker.spent for worker in self._workers]
        return sum(tokens for tokens, _ in spent), sum(cost for _, cost in spent)

    def _later(self, worker: _Worker, message: wire.ToWorker) -> None:
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
            await worker.tell(message)

    async def run(self, request: RolloutRequest) -> RolloutResult:
        """Have one rollout carried out. Cancelled, its process stops it where it stands."""
        name = session_name(request.key, request.attempt)
        while True:
            worker = self._choose(name)
            job = await self._ask(worker, name, request)
            if job.result is not None:
                return job.result
            # The place is given up: the others do what it had to.
            if worker.refused is None or all(one.gone.is_set() for one in self._workers):
                raise OperatorError(job.broken or "the process that carried a rollout out has ended")
            worker.names.discard(name)

    def _choose(self, name: str) -> _Worker:
        """Who has begun a rollout, else who has the least to do."""
        there = [one for one in self._workers if not one.gone.is_set()] or self._workers
        return next((one for one in there if name in one.names), None) or min(there, key=lambda one: len(one.jobs))

    async def _ask(self, worker: _Worker, name: str, request: RolloutRequest) -> _Job:
        """Have a worker carry a rollout out; returns when it has ended, or the worker has."""
        self._number += 1
        job = _Job(self._number, request)
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
) -> AsyncIterator[ProcessEngine]:
    """Start a process for each of `begins` by the one of `connects` in the same place, and yield their engine.

    Raises:
        UsageError, OperatorError, TryLater: as the engine of one of them; nothing was run.
    """
    workers = [
        _Worker(begin, connect, say if begin.number == 0 else _nobody)
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
            engine = ProcessEngine(workers, redact)
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
                for worker in workers:
                    await worker.close()
                for worker in workers:
                    await worker.gone.wait()
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure


def _nobody(text: str) -> None:
    """All processes say the same at their start: it is heard once."""


def _see(workers: Sequence[_Worker]) -> None:
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
