"""One start of a batch from beginning to end: settle the settings, check the dataset, hold the folder, open the engine,
work, merge, and say how it ended.

Nothing is run before everything that can be wrong with the input has been looked at, and nothing in an existing folder
is touched unless `--resume` or `--overwrite` asks for it. Signals, terminals and the making of an engine are the
caller's.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path

import anyio
import msgspec

from hermes.batch import steering
from hermes.batch.accounts import Allowed, balance
from hermes.batch.attempt import Attempts
from hermes.batch.distribution import Draw, distribution, table_of
from hermes.batch.draws import Drawn, Draws
from hermes.batch.early import EARLY_ROWS
from hermes.batch.filter_settings import FilterSettings
from hermes.batch.folder import SCHEMA, Prices, RunFolder, RunMeta, Session
from hermes.batch.identity import fingerprint, session_name
from hermes.batch.merge import merge, offered_tools
from hermes.batch.output import restore_batches
from hermes.batch.plan import Item, Mark
from hermes.batch.prepare import JobOptions, Prepared, prepare
from hermes.batch.progress import Display, Progress
from hermes.batch.reasoning import SCRATCHPAD_REQUEST
from hermes.batch.record import Head, RecordFile
from hermes.batch.rollout import Engine
from hermes.batch.run import Ask, BatchRun, StopSwitch
from hermes.batch.settings import BatchSettings, stored
from hermes.batch.settled import is_settled, take_counts
from hermes.batch.summary import StopCause, exit_code, last_lines
from hermes.batch.threads import Threads
from hermes.core.clock import NO_HOLD, Hold
from hermes.core.errors import OperatorError
from hermes.core.model import ModelProfile

__all__ = ["JobOptions", "OpenEngine", "run_job"]

#: Opens the engine for the settings of a run; what cannot be opened raises, before anything is written.
OpenEngine = Callable[[BatchSettings], AbstractAsyncContextManager[Engine]]


async def run_job(
    options: JobOptions,
    *,
    open_engine: OpenEngine,
    display: Display,
    say: Callable[[str], None],
    switch: StopSwitch,
    data_dir: Path = Path("data"),
    ask: Ask | None = None,
    wall: Callable[[], float] = time.time,
    hold: Hold = NO_HOLD,
) -> int:
    """Run a batch and return its exit code. `say` takes the closing lines, `display` all else.

    Raises:
        UsageError: input that cannot be used; nothing was run.
        OperatorError: the folder is held by another process, or cannot be written.
    """
    threads = Threads(1, hold)
    with ExitStack() as held:
        prepared = await threads.run(prepare, options, data_dir, held)
        for note in prepared.notes:
            display.note(note)
        if not prepared.plan.items:
            return await _finish_only(prepared, options.allowed, say, wall, threads)
        # before the engine, which would go on with what the old run left half-done
        aside = await threads.run(_move_aside, prepared, held, wall) if options.overwrite else None
        begun = False
        try:
            async with open_engine(prepared.settings) as engine:
                session = await threads.run(_Session.begin, prepared, engine, options, wall)
                begun = True
                engine.keep_only(session.half_done)
                for note in (*_moved(aside), *session.notes):
                    display.note(note)
                cause = await session.work(engine, display, switch, ask, options.yes, hold)
                session.half_done = session.of_plan(engine.begun())
        finally:
            if not begun:
                with anyio.CancelScope(shield=True):
                    await threads.run(_put_back, prepared.folder, aside)
        return await session.end(cause, display, say, threads)


def _move_aside(prepared: Prepared, held: ExitStack, wall: Callable[[], float]) -> Path | None:
    """Move the old run of this name out of the way and hold the empty place; None if there is none."""
    folder = prepared.folder
    if not folder.has_run():
        return None
    aside = folder.move_aside(time.strftime("%Y%m%d-%H%M%S", time.localtime(wall())))
    held.enter_context(folder.locked())
    return aside


def _put_back(folder: RunFolder, aside: Path | None) -> None:
    """The new run did not begin: what it put into the folder goes, and the old one, if any, is where it was."""
    if aside is None:
        folder.drop_refused()
        return
    shutil.rmtree(folder.path)
    aside.rename(folder.path)


def _moved(aside: Path | None) -> tuple[str, ...]:
    return (f"the old run was moved to {aside}",) if aside is not None else ()


async def _finish_only(
    prepared: Prepared, allowed: Allowed, say: Callable[[str], None], wall: Callable[[], float], threads: Threads
) -> int:
    """Nothing is left to run: make every file anew that is not as the last session left it, so that a finished run
    looks the same however it got there."""
    meta = prepared.meta
    assert meta is not None  # a new run has rows
    session = _Session(prepared, meta, None, wall, allowed)
    session.settled = not prepared.plan.changes and await threads.run(is_settled, prepared.folder, meta)
    await threads.run(session.restore)
    say("nothing is left to run")
    return await session.end(None, None, say, threads)


class _Session:
    """A start that has taken hold of its folder."""

    def __init__(
        self,
        prepared: Prepared,
        meta: RunMeta,
        draws: Draws | None,
        wall: Callable[[], float],
        allowed: Allowed,
    ) -> None:
        self.allowed = allowed
        self.prepared = prepared
        self.meta = meta
        self.draws = draws
        self.wall = wall
        self.notes: list[str] = []
        self.offered: list[str] = []
        #: Nothing has been touched since the last session ended.
        self.settled = False
        #: The rollouts that ended first, of earlier sessions.
        self.first: list[Head] = []
        #: Rollouts of the plan that an earlier process left half-done, or this one does.
        self.half_done: Mapping[str, Mark] = {}
        self.started = wall()
        index = prepared.index
        self.earlier = index.size
        total = prepared.plan.total(prepared.settings.rollouts_per_prompt, index)
        self.progress = Progress(total=total, started=0.0)
        self.progress.take(index.counts)

    @classmethod
    def begin(cls, prepared: Prepared, engine: Engine, options: JobOptions, wall: Callable[[], float]) -> _Session:
        """Write down what is going to be done, and bring the folder into order."""
        available = engine.toolsets
        wanted = prepared.settings
        shares = None if prepared.meta is None else prepared.meta.table  # a run keeps the table it began with
        shares = shares or table_of(wanted.distribution, options.tables)
        table = distribution(wanted.distribution, available, shares, wanted.seed)
        draws = Draws(table, available)
        drawn = draws.all(prepared.plan.items.marks())
        tools = {tool for name in drawn.used for tool in available[name]}
        settings = prepared.settings
        if settings.model is None:
            settings = msgspec.structs.replace(settings, model=engine.model)
            prepared.settings = settings
        old = prepared.meta
        record = msgspec.convert(stored(settings), BatchSettings)
        meta = RunMeta(
            schema=SCHEMA,
            run_name=settings.run_name,
            created_at=wall() if old is None else old.created_at,
            settings=record,
            table=shares,
            tools=tuple(sorted({*tools, *(old.tools if old is not None else ())})),
            sessions=old.sessions if old is not None else (),
            filters=old.filters if old is not None else FilterSettings(),
        )
        session = cls(prepared, meta, draws, wall, options.allowed)
        session.half_done = session.of_plan(engine.begun())
        session.settled = old is not None and is_settled(prepared.folder, old)
        session.notes = _notes(prepared, drawn, table.missing)
        if session.half_done:
            session.notes.append(f"{len(session.half_done)} half-done rollouts go on from their last step")
        session.open_session(record, engine.profile)
        session.restore()
        with RecordFile(prepared.folder.records_path) as records:
            session.first = [records.head(place) for place in prepared.index.first_finished(EARLY_ROWS)]
        return session

    def open_session(self, record: BatchSettings, profile: ModelProfile) -> None:
        """Add this start to the history of the run."""
        plan = self.prepared.plan
        entry = Session(
            started_at=self.started,
            dataset=fingerprint(plan.rows.ids()),
            rows=len(plan.rows),
            base_url=record.base_url,
            num_workers=record.num_workers,
            changes=str(plan.changes) if plan.changes else "",
            prices=Prices.of(profile),
        )
        self.meta = msgspec.structs.replace(self.meta, sessions=(*self.meta.sessions, entry))
        steering.forget(self.prepared.folder)
        if plan.changes or not self.prepared.folder.rows_path.exists():
            self.prepared.folder.write_rows(plan.rows)
        self.prepared.folder.write_meta(self.meta)

    def restore(self) -> None:
        """Put right what the last process left."""
        prepared = self.prepared
        self.offered = offered_tools(self.meta, prepared.index)
        if not prepared.settings.keep_workspaces:
            prepared.folder.remove_workspaces(self._kept(), goes_on=True)
        anew = prepared.plan.anew
        if self.settled and anew is None:
            return
        done = restore_batches(prepared.folder, prepared.index, self.offered, prepared.settings.batch_size, anew)
        if str(done):
            self.notes.append(f"put right after the last stop: {done}")

    def of_plan(self, begun: Collection[str]) -> dict[str, Mark]:
        """Those of the half-done rollouts that are to be run, by name."""
        if not begun:
            return {}
        names = ((session_name(mark.key, mark.attempt), mark) for mark in self.prepared.plan.items.marks())
        return {name: mark for name, mark in names if name in begun}

    def _kept(self) -> set[Path]:
        """What half-done rollouts go on with."""
        folder = self.prepared.folder
        places = {folder.workspace(item.index, item.rollout) for item in self.half_done.values()}
        return places | {folder.state / name for name in self.half_done}

    async def work(
        self, engine: Engine, display: Display, switch: StopSwitch, ask: Ask | None, yes: bool, hold: Hold
    ) -> StopCause | None:
        """Run what is to be run."""
        prepared = self.prepared
        settings = prepared.settings
        self.progress.started = anyio.current_time()
        attempts = Attempts(
            engine,
            prepared.folder,
            settings,
            system=_system(settings, engine.profile.thinking),
            prefill=prepared.prefill,
            hold=hold,
            note=display.note,
        )
        run = BatchRun(
            items=prepared.plan.items,
            draw=self._draw,
            settings=settings,
            folder=prepared.folder,
            index=prepared.index,
            offered=self.offered,
            attempts=attempts,
            first=self.first,
            progress=self.progress,
            display=display,
            switch=switch,
            wall=self.wall,
            yes=yes,
            ask=ask,
            waiting_for=engine.waiting_for,
            redact=engine.redact,
            hold=hold,
        )
        return await run.run()

    def _draw(self, item: Item) -> Draw:
        assert self.draws is not None  # made before anything runs
        return self.draws(item.row_id, item.row.toolsets)

    async def end(
        self, cause: StopCause | None, display: Display | None, say: Callable[[str], None], threads: Threads
    ) -> int:
        """Merge, write the history, say the last words; return the exit code."""
        try:
            await threads.run(self._merge, cause)
        except OperatorError as error:
            # The records stand; the files made from them come with the next --resume.
            cause = cause or StopCause(kind="storage", message=str(error))
            if not (self.progress.pending or self.progress.failed.total()):
                raise
        if display is not None:
            display.close()
        elapsed = self.wall() - self.started
        for line in last_lines(self.meta.run_name, self.progress, cause, elapsed):
            say(line)
        return exit_code(self.progress, cause, self.allowed)

    def _merge(self, cause: StopCause | None) -> None:
        prepared = self.prepared
        if self.draws is None and self.settled and take_counts(prepared.folder, self.progress):
            balance(self.progress, prepared.plan.rows, prepared.settings.rollouts_per_prompt, prepared.index)
            return
        if not prepared.settings.keep_workspaces:
            prepared.folder.remove_workspaces(self._kept(), goes_on=self.progress.pending > 0)
        if not self.half_done:
            prepared.folder.remove_journal()
        if self.meta.sessions and self.meta.sessions[-1].started_at == self.started:
            last = msgspec.structs.replace(
                self.meta.sessions[-1],
                ended_at=self.wall(),
                exit_code=exit_code(self.progress, cause, self.allowed),
                cause=cause.kind if cause is not None else "",
            )
            self.meta = msgspec.structs.replace(self.meta, sessions=(*self.meta.sessions[:-1], last))
            prepared.folder.write_meta(self.meta)
        if prepared.plan.anew is not None:  # those that failed this time stand as they stood
            restore_batches(prepared.folder, prepared.index, self.offered, prepared.settings.batch_size)
        tally = merge(prepared.folder, self.meta, prepared.index, self.progress.total, self.earlier, self.wall)
        self.progress.kept = tally.kept
        self.progress.rejected = tally.rejected
        self.progress.failed = tally.failed
        balance(self.progress, prepared.plan.rows, prepared.settings.rollouts_per_prompt, prepared.index)
        steering.forget(prepared.folder)


def _system(settings: BatchSettings, thinking: bool) -> str:
    parts = [settings.ephemeral_system_prompt or "", "" if thinking else SCRATCHPAD_REQUEST]
    return "\n\n".join(part for part in parts if part)


def _notes(prepared: Prepared, drawn: Drawn, missing: tuple[str, ...]) -> list[str]:
    notes = []
    plan, settings = prepared.plan, prepared.settings
    if prepared.meta is not None:
        total = plan.total(settings.rollouts_per_prompt, prepared.index)
        notes.append(f"resuming {settings.run_name}: {total - len(plan.items)} done, {len(plan.items)} to run")
    if plan.changes:
        notes.append(f"the dataset has changed: {plan.changes}")
    left_out = [*(missing if drawn.by_chance else ()), *drawn.missing]
    if left_out:
        notes.append(f"left out, since they do not exist here: {', '.join(dict.fromkeys(left_out))}")
    if settings.cwd_mode == "inplace" and settings.num_workers > 1:
        notes.append("--cwd_mode=inplace: rows run one at a time")
    return notes
