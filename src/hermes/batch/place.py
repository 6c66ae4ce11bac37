"""One place for a process of a run, whichever process fills it: it is started, heard, and followed by another where it
dies. Which rollout is given to which place is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from hermes.batch import wire
from hermes.batch.attempt import failure
from hermes.batch.link import Connect, Link
from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.core.errors import HermesError

__all__ = ["DEATHS", "STILLBORN", "Job", "Place"]

#: Processes that may die over one rollout before it counts as its fault.
DEATHS = 3
#: Processes in a row that may die at their start before their place is given up.
STILLBORN = 8
#: Seconds before the second of them, doubled before each other.
REST = 0.1


class Job:
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


class Place:
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
        self.jobs: dict[int, Job] = {}
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
