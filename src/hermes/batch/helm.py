"""The running side of `steering`: does what is wished of the run, and says how it is. Looks twice a second."""

from __future__ import annotations

import os
from collections.abc import Callable

import anyio

from hermes.batch.crew import Crew
from hermes.batch.folder import RunFolder
from hermes.batch.progress import Progress
from hermes.batch.steering import Status, Wish, read_wish, write_status
from hermes.batch.summary import StopCause
from hermes.batch.threads import Threads
from hermes.core.errors import OperatorError

__all__ = ["PAUSED", "Helm"]

#: Seconds between two looks at what is wished.
LOOK_EVERY = 0.5
#: Seconds after which the status is written again though nothing has changed.
SAY_EVERY = 5.0
#: Why nothing starts while somebody has paused the run.
PAUSED = "paused"


class Helm:
    """Steers one run. `stop` takes the cause of a stop that was wished, `note` a line for whoever watches."""

    def __init__(
        self,
        folder: RunFolder,
        crew: Crew,
        progress: Progress,
        *,
        stop: Callable[[StopCause], None],
        note: Callable[[str], None],
        wall: Callable[[], float],
        threads: Threads,
        one_worker: bool = False,
    ) -> None:
        self._folder = folder
        self._crew = crew
        self._progress = progress
        self._stop = stop
        self._note = note
        self._wall = wall
        self._threads = threads
        self._one_worker = one_worker
        self._started = wall()
        self._obeyed = 0
        self._said: tuple[object, ...] = ()
        self._said_at = float("-inf")
        self._troubled = False

    async def run(self) -> None:
        """Look and say until cancelled."""
        while True:
            try:
                await self._look()
                self._troubled = False
            except OperatorError as fault:  # the run itself is as it was
                if not self._troubled:
                    self._note(str(fault))
                self._troubled = True
            await anyio.sleep(LOOK_EVERY)

    async def _look(self) -> None:
        wish = await self._threads.run(read_wish, self._folder)
        if wish.number > self._obeyed:
            self._obeyed = wish.number
            self._obey(wish)
        now = anyio.current_time()
        status = self._status(now)
        said = (status.kept, status.rejected, status.failed, status.running, status.workers, status.state, self._obeyed)
        if said != self._said or now - self._said_at >= SAY_EVERY:
            self._said, self._said_at = said, now
            await self._threads.run(write_status, self._folder, status)

    def _obey(self, wish: Wish) -> None:
        if wish.stop:
            message = "stopped by `hermes batch stop`; what has ended is saved"
            self._stop(StopCause(kind="interrupted", message=message, exit_code=130))
        if wish.paused and not self._crew.held(PAUSED):
            self._crew.hold(PAUSED)
            self._note("paused: rows under way come to their end, no other starts before `hermes batch unpause`")
        elif not wish.paused and self._crew.held(PAUSED):
            self._crew.release(PAUSED)
            self._note("goes on")
        if wish.workers is not None and wish.workers != self._crew.wanted and not self._one_worker:
            self._note(f"{wish.workers} workers from now on, in place of {self._crew.wanted}")
            self._crew.resize(wish.workers)

    def _status(self, now: float) -> Status:
        progress = self._progress
        return Status(
            pid=os.getpid(),
            state="paused" if self._crew.held(PAUSED) else "running",
            at=self._wall(),
            started_at=self._started,
            total=progress.total,
            kept=progress.kept,
            rejected=progress.rejected.total(),
            failed=progress.failed.total(),
            pending=progress.pending,
            running=len(progress.running),
            workers=self._crew.wanted,
            tokens=progress.tokens,
            cost_usd=progress.cost_usd,
            expected_usd=progress.expected_usd,
            retries=progress.retries,
            line=progress.line(now),
            obeyed=self._obeyed,
        )
