"""Opening a runtime: the parts made, bound and closed in their order.

The circle among objects (a child may delegate, so its tools need the supervisor, which needs the builder, which needs
the tools) is closed here, at run time.
"""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from hermes.compose.answering import answering
from hermes.compose.boards import BoardToolset, board_password
from hermes.compose.children import delegation_policy, levels_above
from hermes.compose.consents import asking, gate_of
from hermes.compose.keys import KeyPools
from hermes.compose.models import Models, address_of
from hermes.compose.observing import observing
from hermes.compose.parts import Assembly, Parts
from hermes.compose.places import Places
from hermes.compose.project import project_notes
from hermes.compose.taping import taping, with_cassette
from hermes.compose.web import Web
from hermes.config import Settings
from hermes.core.clock import held
from hermes.core.compaction import Compaction
from hermes.core.environment import Environment
from hermes.core.errors import OperatorError, StoreError, UsageError
from hermes.core.events import TaskEnded
from hermes.core.ids import random_hex
from hermes.core.scope import TaskScope
from hermes.core.toolsets import ToolsetRegistry
from hermes.credentials import known_secrets, settings_secrets
from hermes.credentials.redact import Redactor
from hermes.delegation.acceptance import Acceptance
from hermes.delegation.background import AsyncDelegationToolset
from hermes.delegation.library import AgentLibrary
from hermes.delegation.report import Reports, keep_report
from hermes.delegation.toolset import Delegation, DelegationToolset
from hermes.providers.catalog import Catalog
from hermes.providers.fallback import FEWER_ATTEMPTS
from hermes.runtime.admission import Admission
from hermes.runtime.approval import Gate
from hermes.runtime.builder import Builder
from hermes.runtime.bus import Bus
from hermes.runtime.control import Control
from hermes.runtime.recovery import Recovery
from hermes.runtime.runtime import Runtime, running
from hermes.runtime.spec import ModelChoice
from hermes.runtime.standstill import Standstill
from hermes.runtime.supervisor import Policy, Supervisor
from hermes.runtime.taping import HEARD, Tape
from hermes.runtime.task import Task
from hermes.store.memory import MemoryStore
from hermes.store.ops import AddOwner, Store, Unit
from hermes.store.owner import is_gone, take_ownership
from hermes.store.sqlite import open_store
from hermes.tools.clarify import ClarifyToolset
from hermes.tools.code_execution import CodeToolset
from hermes.tools.toolsets import FileToolset, TerminalToolset, TodoToolset

__all__ = ["max_running", "open_runtime", "redactor_of"]

#: Descriptors kept for the program itself; a running task needs up to four (a connection, a command's pipes).
_OWN_DESCRIPTORS, _PER_TASK = 64, 4


def max_running(settings: Settings) -> int:
    """Running tasks of the process: as configured, else by memory and descriptors; raises the soft limit first."""
    if settings.runtime.max_running is not None:
        return settings.runtime.max_running
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or soft < hard):
        wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError):
            pass  # not allowed here: admit by what there is
    if soft == resource.RLIM_INFINITY:
        soft = 65_536
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min((soft - _OWN_DESCRIPTORS) // _PER_TASK, memory // (256 * 1024)))


@asynccontextmanager
async def open_runtime(parts: Parts) -> AsyncIterator[Assembly]:
    """Open a runtime and run it for the length of the block.

    Raises:
        UsageError: no model is named.
        OperatorError: nothing can be written in the home or beside the journal, the journal is another program's or
            newer, a model cannot be had.
    """
    settings, home = parts.loaded.settings, parts.loaded.home
    redactor = redactor_of(parts)
    if parts.memory:
        store = parts.wrap_store(MemoryStore(keep=not parts.traceless))
        async with _assembled(parts, redactor, store, random_hex(12), home.path) as assembly:
            yield assembly
        return
    with held(parts.hold):
        place = await anyio.to_thread.run_sync(_writable, parts)
        owner = await anyio.to_thread.run_sync(take_ownership, place)
    try:
        breaks: list[Callable[[StoreError], None]] = []

        def broken(error: StoreError) -> None:
            for stop in breaks:
                stop(error)

        journal = await open_store(
            parts.journal or home.database,
            durability=settings.store.durability,
            hold=parts.hold,
            on_broken=broken,
        )
        journal.submit(Unit(ops=(AddOwner(row=owner.row(parts.clock.now())),)))
        try:
            async with _assembled(parts, redactor, parts.wrap_store(journal), owner.owner_id, place) as assembly:
                breaks.append(assembly.runtime.supervisor.break_off)
                yield assembly
        finally:
            with anyio.CancelScope(shield=True):
                await journal.close()
    finally:
        with anyio.CancelScope(shield=True), held(parts.hold):
            await anyio.to_thread.run_sync(owner.release)


def _writable(parts: Parts) -> Path:
    """The folder for locks and caches (blocking): the home, or where the journal is, if that is elsewhere and the home
    cannot be written."""
    home = parts.loaded.home
    try:
        home.prepare(home.run_dir)
    except OperatorError:
        if parts.journal is None:
            raise
        return parts.journal.parent
    return home.path


async def _with_model(parts: Parts, catalog: Catalog) -> Parts:
    """Where no model is named and the server has exactly one, that one is meant."""
    endpoint = parts.endpoint
    if parts.model is not None or endpoint.model:
        return parts
    names = await catalog.offered(address_of(endpoint))
    if len(names) == 1:
        return msgspec.structs.replace(parts, endpoint=msgspec.structs.replace(endpoint, model=names[0]))
    offered = f" (it has {', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if names else ""
    raise UsageError(
        f"no model is named for {endpoint.base_url}{offered}: give -m MODEL, or hermes config set model.default MODEL"
    )


def redactor_of(parts: Parts) -> Redactor:
    """What replaces every secret that these parts know."""
    named = settings_secrets(parts.loaded.settings, parts.variables)
    board = board_password(parts.loaded.settings.kanban.database_url)
    hook = parts.loaded.settings.notify.webhook  # whoever knows such an address may post to it
    stand_in = [parts.variables.get(entry.key_env, "") for entry in parts.loaded.settings.fallbacks]
    pool = [key.secret for key in parts.keys]
    more = [
        secret for secret in (parts.endpoint.api_key, *parts.secrets, *named, *stand_in, *pool, hook, board) if secret
    ]
    return Redactor(known_secrets(parts.environ or os.environ, parts.loaded.dotenv, more=more))


@asynccontextmanager
async def _assembled(
    parts: Parts, redactor: Redactor, store: Store, owner: str, place: Path
) -> AsyncIterator[Assembly]:
    settings, home = parts.loaded.settings, parts.loaded.home
    keys = KeyPools(parts)
    keys.on_secret = redactor.add
    standstill = Standstill(parts.awake)
    catalog = Catalog(
        settings.models,
        attempts=settings.agent.api_max_retries,
        fewer=FEWER_ATTEMPTS if settings.fallbacks else {},
        cache=place / "cache" / "embedded-check",
        woke=standstill.lately,
    )
    web = Web(parts, redactor, catalog.session, standstill.lately)
    standstill.noticed += [catalog.session.drop, web.drop]
    places = Places(parts, redactor, store, owner, _state_dir(parts), place / "cache" / "sandbox")
    try:
        parts = with_cassette(await _with_model(parts, catalog))
        models = Models(parts, catalog, keys)
        model = parts.model or await models(ModelChoice())
        tasks: dict[str, Task] = {}
        async with taping(parts, redactor, tasks, model) as tape, aclosing(BoardToolset(parts)) as boards:
            runtime, delegation = _wire(parts, redactor, store, owner, models, tasks, tape, web, places, boards)
            runtime.bus.subscribe(keys.note, types=(TaskEnded,))
            if tape is not None:
                runtime.bus.subscribe(tape.hear, types=HEARD)
            sharing = () if parts.memory else keys.sharing(owner)
            async with (
                observing(parts, runtime, delegation, redactor, catalog),
                answering(parts, runtime, owner) as beside,
                running(runtime, standstill=standstill if parts.watchdog else None, beside=(*beside, *sharing)),
            ):
                yield Assembly(
                    runtime=runtime,
                    settings=settings,
                    endpoint=parts.endpoint,
                    home=home,
                    persona=parts.loaded.persona,
                    redactor=redactor,
                    model=model,
                    delegation=delegation,
                    recovery=Recovery(
                        runtime.supervisor,
                        runtime.control,
                        is_gone=lambda owner: parts.memory or is_gone(place, owner),
                        hold=parts.hold,
                    ),
                    check=models.check,
                    workspaces=places.workspaces,
                    tape=tape,
                )
    finally:
        with anyio.CancelScope(shield=True):
            await keys.close()
            await web.close()
            await places.close()
            await catalog.close()


def _state_dir(parts: Parts) -> Callable[[Task], str]:
    root = str(parts.state_root or parts.loaded.home.tasks_dir)
    return lambda task: f"{root}/{task.scope.session_id}/{task.id}"


def _wire(
    parts: Parts,
    redactor: Redactor,
    store: Store,
    owner: str,
    models: Models,
    tasks: dict[str, Task],
    tape: Tape | None,
    web: Web,
    places: Places,
    boards: BoardToolset,
) -> tuple[Runtime, Delegation]:
    settings, home = parts.loaded.settings, parts.loaded.home
    state_root = parts.state_root or home.tasks_dir
    bus, reports = Bus(), Reports()
    policy = delegation_policy(settings, levels_above(settings, parts.environ or os.environ))
    agents = AgentLibrary(home.path, parts.hold)
    delegation = Delegation(
        policy, reports, agents=agents, resolve=models.check, workspaces=places.workspaces, hold=parts.hold
    )
    gate = gate_of(parts, redactor, store, tape)
    registry = _registry(parts, delegation, tasks, web, boards, gate)
    builder = _builder(parts, redactor, store, models, registry, gate, places, delegation, tape)
    supervisor = Supervisor(
        store=store,
        bus=bus,
        admission=Admission(max_running=max_running(settings), max_children=settings.delegation.children_at_once),
        build=builder.build,
        policy=Policy(
            max_spawn_depth=policy.max_spawn_depth,
            max_live=settings.delegation.live_children,
            orchestrators=settings.delegation.orchestrator_enabled,
            unpriced=models.unpriced,
            logs=home.path / "logs",
            keep_report=lambda task, session, text: keep_report(state_root / session / task, text, parts.hold),
            independent_completions=settings.delegation.independent_completions,
            settle_workspace=places.workspaces.settle,
            handover_wait=settings.runtime.handover_wait_seconds,
        ),
        clock=parts.clock,
        hold=parts.hold,
        owner=owner,
        redact=redactor.json_bytes,
        notice=lambda task: reports.notice(task, _room(task)),
    )
    supervisor.tasks = tasks
    control = Control(supervisor)
    builder.supervisor, builder.control = supervisor, control
    delegation.bind(supervisor, control, registry)
    runtime = Runtime(
        supervisor=supervisor,
        control=control,
        bus=bus,
        store=store,
        gate=gate,
        registry=registry,
        clock=parts.clock,
        redact=redactor.json_bytes,
    )
    return runtime, delegation


def _builder(
    parts: Parts,
    redactor: Redactor,
    store: Store,
    models: Models,
    registry: ToolsetRegistry,
    gate: Gate,
    places: Places,
    delegation: Delegation,
    tape: Tape | None,
) -> Builder:
    settings = parts.loaded.settings
    return Builder(
        registry=registry,
        models=models,
        environments=places.make,
        state_dir=_state_dir(parts),
        workspace=places.prepare,
        gate=gate,
        clock=parts.clock,
        redact=redactor.json_bytes,
        compaction=Compaction(
            enabled=settings.compression.enabled,
            threshold=settings.compression.threshold,
            protect_last=settings.compression.protect_last_n,
        ),
        prepare=delegation.prepare,
        accept=Acceptance(gate, timeout=settings.terminal.timeout, hold=parts.hold),
        around=tape.model if tape is not None else None,
        project=project_notes(settings.agent.context_file_chars, parts.hold),
    )


def _room(task: Task) -> int:
    """Tokens that the reader of a child's end can spare, by the window of the parent's model."""
    parent = task.parent
    while parent is not None and parent.model is None:
        parent = parent.parent
    return parent.model.profile.window // 4 if parent is not None and parent.model is not None else 16_000


def _registry(
    parts: Parts, delegation: Delegation, tasks: Mapping[str, Task], web: Web, boards: BoardToolset, gate: Gate
) -> ToolsetRegistry:
    settings = parts.loaded.settings

    def environment_of(scope: TaskScope) -> Environment:
        task = tasks[scope.task_id]
        if task.environment is None:
            raise RuntimeError(f"task {task.id} has no environment")
        return task.environment

    return ToolsetRegistry(
        (
            TerminalToolset(environment_of, timeout=settings.terminal.timeout),
            FileToolset(
                environment_of,
                denied=parts.loaded.private,
                hold=parts.hold,
            ),
            TodoToolset(),
            ClarifyToolset(asking(gate, tasks, settings.agent.clarify_timeout)),
            *web.toolsets,
            CodeToolset(
                environment_of,
                timeout=settings.code_execution.timeout,
                max_calls=settings.code_execution.max_tool_calls,
                hold=parts.hold,
            ),
            DelegationToolset(delegation),
            AsyncDelegationToolset(delegation),
            boards,
        )
    )
