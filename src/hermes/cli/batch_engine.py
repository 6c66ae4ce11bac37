"""Opens the runtime for a batch: endpoint, model and toolsets as for any other command; and shows what runs in it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from hermes.batch.announcing import announced
from hermes.batch.away import id_away
from hermes.batch.execute import RuntimeEngine
from hermes.batch.folder import RunFolder
from hermes.batch.link import pipes
from hermes.batch.processes import open_processes
from hermes.batch.ray_cluster import OpenCluster, open_cluster
from hermes.batch.rollout import Engine
from hermes.batch.row_tape import RowTape
from hermes.batch.settings import LOCAL, BatchSettings, check_routing
from hermes.batch.wire import Begin
from hermes.chat.notes import describe_source
from hermes.chat.tree_text import live_lines
from hermes.cli.carried import Carried, carry
from hermes.cli.options import GlobalOptions, Sources, open_sources
from hermes.cli.taped import tell_tape
from hermes.compose import Assembly, Parts, open_runtime, select_toolsets
from hermes.compose.models import address_of
from hermes.compose.taping import cassettes, replay_endpoint
from hermes.config import find_home
from hermes.core.errors import OperatorError, UsageError
from hermes.core.model import ModelProfile
from hermes.credentials import is_local
from hermes.credentials.redact import Redactor
from hermes.providers.catalog import Catalog
from hermes.runtime.budgets import unknown_price
from hermes.runtime.cassette_pieces import JoinedCassette, new_piece
from hermes.runtime.recording import recorded_words
from hermes.runtime.replay_account import ReplayAccount
from hermes.runtime.runtime import tune_interpreter
from hermes.runtime.spec import ModelChoice
from hermes.runtime.taping import TapeShare

__all__ = ["BatchEngine"]


class BatchEngine:
    """What opens the engine of a run, and what a person sees of it."""

    def __init__(
        self,
        options: GlobalOptions,
        data_dir: Path,
        *,
        record: str = "",
        replay: str = "",
        number: int | None = None,
        sources: Callable[[GlobalOptions], Sources] = open_sources,
        cluster: OpenCluster = open_cluster,
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._number = number  # which of several processes this is; None: the run itself
        self._file, self._cassette = cassettes(record, replay)
        self.strayed = False  # the replay went otherwise than its recording
        self._options = options
        self._data_dir = data_dir
        self._assembly: Assembly | None = None
        self._say: Callable[[str], None] = lambda line: None

    @asynccontextmanager
    async def open(self, settings: BatchSettings) -> AsyncIterator[Engine]:
        """Open the engine for the settings of a run; of one with several processes, theirs."""
        if self._number is not None:
            async with self._own(settings) as engine:
                yield engine
            return
        folder, home = RunFolder(self._data_dir, settings.run_name), find_home(os.environ, self._options.profile)
        before, after = _said(self._options)
        with suppress(OperatorError):  # then the run works beside its journal, and the home knows nothing of it
            home.prepare(home.run_dir)
        with announced(home.run_dir, folder, before, after):
            shared = settings.processes > 1 or settings.executor != LOCAL or _more(folder, 1)
            async with self._processes(settings) if shared else self._own(settings) as engine:
                yield engine

    @asynccontextmanager
    async def _own(self, settings: BatchSettings) -> AsyncIterator[Engine]:
        """The engine of this process alone."""
        given = msgspec.structs.replace(self._options, model=settings.model or self._options.model)
        sources = self._sources(given)
        configuration = sources.loaded.require()
        if self._cassette is not None:
            endpoint = replay_endpoint(self._cassette, given.model, configuration.model.aliases)
        else:
            endpoint = sources.endpoint(base_url=settings.base_url or "", api_key=settings.api_key or "")
            check_routing(settings, address_of(endpoint).host)
        parts = Parts(
            loaded=sources.loaded,
            endpoint=endpoint,
            keys=sources.keys,
            variables=sources.variables,
            secrets=sources.secrets(),
            record=self._piece(),
            replay=self._cassette,
            yolo=self._options.yolo,
            journal=self.journal(settings),
            state_root=RunFolder(self._data_dir, settings.run_name).state,
        )
        async with open_runtime(parts) as assembly:
            tune_interpreter()
            self._assembly = assembly
            self._say(describe_source(assembly))
            try:
                engine = RuntimeEngine(
                    assembly.runtime,
                    model=assembly.model,
                    choice=ModelChoice(name=endpoint.model, provider=endpoint.provider, base_url=endpoint.base_url),
                    ceiling=select_toolsets(configuration, assembly.runtime.registry).names,
                    recovery=assembly.recovery,
                    tape=RowTape(assembly.tape, shared=self._number is not None) if assembly.tape is not None else None,
                )
                if settings.max_cost is not None:
                    _see_price(assembly, settings.max_cost)
                await engine.look()
                if assembly.tape is not None:
                    engine.keep_only(())  # a tape holds rollouts whole: what a dead process began, begins anew
                yield engine
                if self._number is None:
                    self.strayed = tell_tape(assembly.tape, self._say)
            finally:
                self._assembly = None

    def _piece(self) -> Path | None:
        """Where this process records: to the file itself, or to a piece of it."""
        return self._file if self._file is None or self._number is None else new_piece(self._file, self._number)

    def journal(self, settings: BatchSettings) -> Path:
        """What the half-done rollouts of this process go on from."""
        path = RunFolder(self._data_dir, settings.run_name).journal_path
        return path.with_stem(f"{path.stem}-{self._number}") if self._number else path

    @asynccontextmanager
    async def _processes(self, settings: BatchSettings) -> AsyncIterator[Engine]:
        redact = Redactor(self._sources(self._options).secrets()).json_bytes
        if settings.executor != LOCAL:
            async with self._nodes(settings, redact) as engine:
                yield engine
            return
        more = _more(RunFolder(self._data_dir, settings.run_name), settings.processes)
        if more:
            self._say(f"{len(more)} processes more than asked for, until they end what earlier ones left half-done")
        begins = [self._begin(number, settings) for number in (*range(settings.processes), *more)]
        connects = [pipes([sys.executable, "-m", "hermes.cli.batch_worker"])] * len(begins)
        lasting = settings.processes
        async with (
            self._taped() as tape,
            open_processes(begins, connects, say=self._say, redact=redact, lasting=lasting, tape=tape) as engine,
        ):
            yield engine

    @asynccontextmanager
    async def _taped(self) -> AsyncIterator[Callable[[TapeShare], None] | None]:
        """What takes the shares of a replay that several processes carry out; None where there is no tape. Recorded
        pieces are joined at the end.

        Raises:
            UsageError: there can be no such file.
            OperatorError: at the end: the recording could not be written.
        """
        if self._file is not None:
            joined = await anyio.to_thread.run_sync(JoinedCassette, self._file)
            try:
                yield lambda share: None
            finally:
                with anyio.CancelScope(shield=True):
                    replies, calls = await anyio.to_thread.run_sync(joined.close)
            self._say(recorded_words(replies, calls, self._file))
        elif self._cassette is not None:
            account = ReplayAccount(self._cassette)
            yield account.add
            self.strayed = tell_tape(account, self._say)
        else:
            yield None

    def _begin(self, number: int, settings: BatchSettings, away: str = "", carried: Carried | None = None) -> Begin:
        return Begin(
            number=number,
            data_dir="" if away else str(self._data_dir.absolute()),
            settings=msgspec.structs.asdict(settings),
            options=msgspec.structs.asdict(self._options),
            away=away,
            carried=msgspec.to_builtins(carried) if carried is not None else {},
            record=str(self._file or ""),
            replay=str(self._cassette.path.absolute()) if self._cassette is not None else "",
        )

    @asynccontextmanager
    async def _nodes(self, settings: BatchSettings, redact: Callable[[bytes], bytes]) -> AsyncIterator[Engine]:
        """The engine of a run whose rollouts are carried out on the nodes of a Ray cluster."""
        if self._file is not None or self._cassette is not None:
            raise UsageError(
                f"--{'record' if self._file is not None else 'replay'} and --executor={settings.executor} exclude each "
                "other: the processes of a recording share a file, and the nodes of a cluster share none. "
                "--processes=N carries it out in N processes of this machine."
            )
        sources = self._sources(msgspec.structs.replace(self._options, model=settings.model or self._options.model))
        sources.loaded.require()
        if settings.api_key:
            raise UsageError(
                "--api_key would stand in the records of the Ray cluster, like the whole command line. Put the key "
                "into the environment or into auth.json."
            )
        endpoint = sources.endpoint(base_url=settings.base_url or "")
        check_routing(settings, address_of(endpoint).host)
        carried = carry(sources, endpoint)
        if is_local(endpoint.base_url):
            self._say(f"{endpoint.base_url} is asked by each node on its own machine")
        away = id_away(RunFolder(self._data_dir, settings.run_name))
        async with self._cluster(settings.ray_address, settings.processes, self._say) as connects:
            begins = [self._begin(number, settings, away, carried) for number in range(len(connects))]
            async with open_processes(begins, connects, say=self._say, redact=redact) as engine:
                yield engine

    def price_of(self, settings: BatchSettings) -> tuple[str, ModelProfile]:
        """The model of a run and what is known of it; asks nobody."""
        sources = open_sources(msgspec.structs.replace(self._options, model=settings.model or self._options.model))
        endpoint = sources.endpoint(base_url=settings.base_url or "", api_key=settings.api_key or "")
        return endpoint.model, Catalog(sources.loaded.settings.models).profile(endpoint.model)

    def announce(self, say: Callable[[str], None]) -> None:
        """Let `say` take the line that names the model, once the engine is open."""
        self._say = say

    def tree(self, most: int, width: int) -> list[str]:
        """The rows that run and their children, in at most `most` lines."""
        if self._assembly is None:
            return []
        runtime = self._assembly.runtime
        return live_lines(runtime.bus.tree, runtime.clock.now(), most=most, width=width)


def _said(options: GlobalOptions) -> tuple[list[str], list[str]]:
    """What the record of a run does not have of these options, as arguments before and after `batch run`."""
    before = ["--provider", options.provider] if options.provider else []
    before += ["--yolo"] if options.yolo else []
    return before, ["--allow_host_commands"] if options.host_commands else []


def _more(folder: RunFolder, processes: int) -> list[int]:
    """The numbers of journals that earlier processes left, those left out that `processes` open anyhow."""
    names = (path.stem.removeprefix("run-") for path in folder.path.glob("run-*.db"))
    return sorted(int(name) for name in names if name.isdigit() and int(name) >= processes)


def _see_price(assembly: Assembly, limit: float) -> None:
    """Refuse a limit of money that could not be held."""
    unpriced = assembly.runtime.supervisor.policy.unpriced
    name = unpriced(ModelChoice(name=assembly.endpoint.model)) if unpriced is not None else None
    if name is not None:
        raise UsageError(unknown_price(name, limit))
