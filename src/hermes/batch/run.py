"""The work of a run: rows taken one by one in the order of the dataset, so many at a time, until none is left or there
is a reason to stop.

One row runs alone first, so that a wrong key costs one request. A permanent fault of the endpoint, a full disk or a
person's wish stops admission; what has not ended stays pending. Reading the dataset, opening the engine and merging
are not done here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import anyio
import msgspec

from hermes.batch.attempt import Attempts, failure, write_up
from hermes.batch.checkpoint import checkpoint, write_checkpoint
from hermes.batch.crew import Crew
from hermes.batch.distribution import Draw
from hermes.batch.early import EarlyLook
from hermes.batch.feed import Feed
from hermes.batch.folder import RunFolder
from hermes.batch.helm import Helm
from hermes.batch.index import RecordIndex
from hermes.batch.output import RecordWriter
from hermes.batch.plan import Item
from hermes.batch.progress import Display, Progress, Running, StallWatch
from hermes.batch.purse import Purse
from hermes.batch.record import Head
from hermes.batch.rollout import RolloutError, RolloutResult
from hermes.batch.rowclock import RowClock
from hermes.batch.settings import BatchSettings
from hermes.batch.summary import StopCause, resume_command
from hermes.batch.threads import Threads
from hermes.core.clock import NO_HOLD, Hold
from hermes.core.errors import OperatorError
from hermes.core.messages import opening

__all__ = ["Ask", "BatchRun", "StopSwitch"]

#: Asks the person at the terminal whether to go on; the text says why.
Ask = Callable[[str], Awaitable[bool]]

#: Seconds that rows in flight get to end by themselves after an interrupt.
DRAIN = 1.0
#: Seconds between two looks at the clock.
TICK = 1.0
#: Seconds between two checkpoints, and how many times as long as the last one took: it lists every row that is done.
CHECKPOINT_EVERY = 5.0
CHECKPOINT_REST = 20
#: Seconds between two removals of what ended rows worked in: each costs a process, a change of threads and a commit.
CLEAR_EVERY = 0.5
#: Why nothing starts while a person is asked whether to go on.
ASKED = "asked"
#: Ended rows before the share of failures is looked at.
SHARE_AFTER = 20
#: What a person need not act on: waiting is enough.
WAITING_HELPS = frozenset({"rate_limit", "overloaded", "quota"})


class StopSwitch:
    """Stops a run from outside or inside; the first cause stands. Rows in flight get `drain` seconds to end by
    themselves after an interrupt."""

    def __init__(self, drain: float = DRAIN) -> None:
        self.drain = drain
        self.cause: StopCause | None = None
        self.attached = False
        self._event = anyio.Event()

    def stop(self, cause: StopCause) -> None:
        """Stop admission for `cause`."""
        if self.cause is None:
            self.cause = cause
            self._event.set()

    async def wait(self) -> StopCause:
        """Wait for the stop."""
        await self._event.wait()
        assert self.cause is not None
        return self.cause


class BatchRun:
    """One session of a run. `first` are the rollouts that ended first in earlier ones; `wall` gives seconds since the
    epoch."""

    def __init__(
        self,
        *,
        items: Sequence[Item],
        draw: Callable[[Item], Draw],
        settings: BatchSettings,
        folder: RunFolder,
        index: RecordIndex,
        offered: Sequence[str],
        attempts: Attempts,
        first: Sequence[Head],
        progress: Progress,
        display: Display,
        switch: StopSwitch,
        wall: Callable[[], float],
        yes: bool = False,
        ask: Ask | None = None,
        waiting_for: Callable[[], str] = lambda: "",
        redact: Callable[[bytes], bytes] = bytes,
        hold: Hold = NO_HOLD,
    ) -> None:
        self._queue = Feed(items, Threads(1, hold), attempts.make_ready)
        self._draw = draw
        self._settings = settings
        self._folder = folder
        self._index = index
        self._attempts = attempts
        self._progress = progress
        self._display = display
        self._switch = switch
        self._wall = wall
        self._yes = yes
        self._ask = ask
        self._waiting_for = waiting_for
        self._writer = RecordWriter(
            folder,
            index,
            offered=offered,
            batch_size=settings.batch_size,
            settled=self._settled,
            redact=redact,
            hold=hold,
        )
        self._earlier = index.size
        self._early = EarlyLook(first)
        self._one_worker = settings.cwd_mode == "inplace"
        self._crew = Crew(1 if self._one_worker else settings.num_workers)
        self._hold = hold
        self._purse = Purse(settings.max_total_tokens, settings.max_cost, index.used, attempts.spent)
        self._clock = RowClock(settings.row_timeout)
        self._ended_here = self._failed_here = 0
        self._last: Head | None = None
        self._stall = StallWatch()
        self._previews: dict[str, str] = {}
        self._threads = Threads(1, hold)
        self._ended: deque[Head] = deque()
        self._to_clear = anyio.Event()

    async def run(self) -> StopCause | None:
        """Work until nothing is left or something stops the run; return why it stopped, None if it came to its end."""
        self._switch.attached = True
        async with anyio.create_task_group() as group:
            group.start_soon(self._writer.run)
            try:
                with anyio.CancelScope() as working:
                    async with anyio.create_task_group() as sides:
                        sides.start_soon(self._ticks)
                        sides.start_soon(self._clear)
                        sides.start_soon(self._helm().run)
                        sides.start_soon(self._drain, working)
                        try:
                            await self._admit(sides.start_soon)
                        finally:
                            sides.cancel_scope.cancel()
            finally:
                self._writer.close()  # however it ends, what was handed over is written first
        if self._writer.broken is not None:
            self._switch.stop(StopCause(kind="storage", message=str(self._writer.broken)))
        await self._clear_rest()
        self._display.update(self._progress, anyio.current_time())
        return self._switch.cause

    async def _admit(self, start: Callable[..., object]) -> None:
        if self._queue and self._early.verdict() is not None:
            self._pause(start)
        first = await self._next()
        if first is None:
            return
        await self._one(first, start)
        if self._last is not None and self._last.reason == "unreachable":
            message = (
                f"stopped: the first row could not reach the endpoint ({self._last.detail}); the rest stays pending."
            )
            self._switch.stop(StopCause(kind="endpoint", message=message))

        async def work() -> bool:
            item = await self._next()
            if item is not None:
                await self._one(item, start)
            return item is not None

        await self._crew.run(work, lambda: len(self._queue))

    async def _next(self) -> Item | None:
        await self._crew.open()
        if self._switch.cause is not None or not self._queue or self._crew.crowded:
            return None
        refusal = self._purse.refusal(len(self._progress.running))
        if refusal is not None:
            again = resume_command(self._settings.run_name, refusal.remedy)
            self._switch.stop(msgspec.structs.replace(refusal, remedy=again))
            return None
        try:
            return await self._queue.next()
        except OperatorError as fault:
            self._switch.stop(StopCause(kind="dataset", message=str(fault)))
            return None

    async def _one(self, item: Item, start: Callable[..., object]) -> None:
        draw = self._draw(item)
        running = self._progress.running[item.key] = Running(item.index, anyio.current_time())

        def report(phase: str) -> None:
            running.phase, running.at = phase, anyio.current_time()
            if phase.startswith("retry") and self._last is None:
                # The first row runs alone: without a word the whole run would seem to stand still.
                self._display.note(f"row {item.index}: {phase}")
            self._progress.retries += phase.startswith("retry")
            self._progress.advanced = anyio.current_time()

        try:
            with anyio.CancelScope() as scope:
                self._clock.enter(item.key, scope)
                try:
                    result = await self._attempts.run(item, draw, report)
                except OperatorError as fault:
                    self._switch.stop(StopCause(kind="storage", message=str(fault)))
                    return
            if scope.cancelled_caught:
                limit = self._settings.row_timeout or 0.0
                result = failure("timeout", f"ran longer than {limit:g} s (row_timeout), last in phase {running.phase}")
        finally:
            self._clock.leave(item.key)
            del self._progress.running[item.key]
        await self._take(item, draw, result, start)

    async def _take(self, item: Item, draw: Draw, result: RolloutResult, start: Callable[..., object]) -> None:
        error = result.error
        if error is not None and error.permanent:
            self._switch.stop(self._endpoint_fault(error))
            return
        if result.state == "cancelled":
            return
        record = write_up(item, draw, result, self._wall())
        self._purse.settle(record.head)
        if self._settings.verbose and self._settings.log_prefix_chars:
            self._previews[item.key] = f" · {_preview(item.row.prompt, self._settings.log_prefix_chars)}"
        try:
            await self._writer.add(record)
        except OperatorError as fault:
            self._switch.stop(StopCause(kind="storage", message=str(fault)))
            return
        if self._early.look(record.head) and self._queue:
            self._pause(start)
        self._ended_here += 1
        self._last = record.head
        if record.head.outcome == "failed":
            self._failed_here += 1
            self._check_share()

    def _helm(self) -> Helm:
        return Helm(
            self._folder,
            self._crew,
            self._progress,
            stop=self._switch.stop,
            note=self._display.note,
            wall=self._wall,
            threads=Threads(1, self._hold),
            one_worker=self._one_worker,
        )

    async def _clear(self) -> None:
        """Remove what ended rollouts would have gone on with, in the order in which their records were synced."""
        while True:
            await self._to_clear.wait()
            self._to_clear = anyio.Event()
            while self._ended:
                heads = tuple(self._ended)
                await self._attempts.clear(heads)
                for _ in heads:
                    self._ended.popleft()
                await anyio.sleep(CLEAR_EVERY)

    async def _clear_rest(self) -> None:
        await self._attempts.clear(tuple(self._ended))

    def _settled(self, head: Head, before: Head | None) -> None:
        self._progress.settle(head, before, anyio.current_time())
        self._ended.append(head)
        self._to_clear.set()
        if self._settings.verbose:
            word = "failed" if head.outcome == "failed" else "rejected" if head.reason else "kept"
            why = f": {head.reason} ({head.detail})" if head.reason else ""
            score = "" if head.score is None else f", score {head.score:.3g}"
            shown = self._previews.pop(head.key, "")
            self._display.note(f"row {_named(head)} {word}{why}, {head.tokens} tokens{score}{shown}")

    def _check_share(self) -> None:
        ended = self._ended_here
        if ended >= SHARE_AFTER and self._failed_here / ended > self._settings.max_failure_share:
            limit = self._settings.max_failure_share
            message = f"{self._failed_here} of {ended} rows failed, more than --max_failure_share={limit:g} allows."
            self._switch.stop(StopCause(kind="failures", message=message))

    def _endpoint_fault(self, error: RolloutError) -> StopCause:
        waiting = error.retry_after is not None or error.kind in WAITING_HELPS
        when = f" It may be asked again in {error.retry_after:g} s." if error.retry_after is not None else ""
        message = f"stopped ({error.kind}): {error.message} No other row could succeed: the rest stays pending.{when}"
        # A run keeps its model; one that has brought nothing may as well begin anew with another.
        anew = error.kind == "model_not_found" and not self._progress.done
        remedy = "the same command with another --model and --overwrite" if anew else ""
        return StopCause(kind="endpoint", message=message, exit_code=75 if waiting else 1, remedy=remedy)

    def _pause(self, start: Callable[..., object]) -> None:
        why = self._early.verdict() or ""
        if self._yes:
            self._display.note(f"{why} Going on, as --yes says.")
        elif self._ask is None:
            again = resume_command(self._settings.run_name, "--yes")
            self._switch.stop(StopCause(kind="rejections", message=f"{why} To go on all the same: {again}"))
        elif not self._crew.held(ASKED):
            self._crew.hold(ASKED)
            start(self._ask_person, self._ask, why)

    async def _ask_person(self, ask: Ask, why: str) -> None:
        good = await ask(why)
        if not good:
            self._switch.stop(StopCause(kind="rejections", message=f"{why} Stopped here; the rest stays pending."))
        self._crew.release(ASKED)

    async def _drain(self, working: anyio.CancelScope) -> None:
        cause = await self._switch.wait()
        self._crew.release()
        if cause.kind == "interrupted":
            await anyio.sleep(self._switch.drain)
            working.cancel()
        elif cause.kind == "storage":
            working.cancel()

    async def _ticks(self) -> None:
        last = anyio.current_time()
        saved, saved_count, rest = last, self._progress.done, CHECKPOINT_EVERY
        while True:
            now = anyio.current_time()
            gap, last = now - last, now
            self._clock.tick(gap)
            self._display.update(self._progress, now)
            line = self._stall.check(self._progress, now, self._waiting_for())
            if line is not None:
                self._display.note(line)
            if now - saved >= rest and self._progress.done != saved_count:
                saved, saved_count = now, self._progress.done
                await self._save()
                rest = max(CHECKPOINT_EVERY, CHECKPOINT_REST * (anyio.current_time() - now))
            if self._writer.broken is not None:
                self._switch.stop(StopCause(kind="storage", message=str(self._writer.broken)))
            await anyio.sleep(TICK)

    async def _save(self) -> None:
        settings = self._settings
        content = checkpoint(settings.run_name, self._index, settings.batch_size, self._earlier, self._wall())
        try:
            await self._threads.run(write_checkpoint, self._folder.path, content)
        except OperatorError as fault:
            self._switch.stop(StopCause(kind="storage", message=str(fault)))


def _named(head: Head) -> str:
    """A rollout for people: its row, and which one it is where a row has several."""
    return f"{head.index}.{head.rollout}" if head.rollout else str(head.index)


def _preview(prompt: str, most: int) -> str:
    line = opening(prompt, most + 1)
    return line if len(line) <= most else f"{line[:most]}…"
