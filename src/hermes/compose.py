"""Assembly: opens a runtime with everything in it. The only file that knows all features.

The circle among objects (a child may delegate, so its tools need the supervisor, which needs the builder, which needs
the tools) is closed here, at run time.
"""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec

from hermes.config import Home, Loaded, Settings
from hermes.core.clock import NO_HOLD, Clock, Hold, SystemClock
from hermes.core.compaction import Compaction
from hermes.core.environment import Environment
from hermes.core.errors import StoreError, UsageError
from hermes.core.limits import Limits
from hermes.core.messages import Text
from hermes.core.model import Model
from hermes.core.toolsets import Selection, ToolsetRegistry, configured_toolsets
from hermes.credentials import Endpoint, EndpointFlags, Key, find_endpoint, is_embedded, known_secrets
from hermes.credentials.redact import Redactor
from hermes.delegation.background import AsyncDelegationToolset
from hermes.delegation.policy import DelegationPolicy
from hermes.delegation.report import Reports
from hermes.delegation.toolset import Delegation, DelegationToolset
from hermes.environments.local import LocalEnvironment, LocalSettings
from hermes.providers.catalog import Catalog
from hermes.providers.openai_chat import Endpoint as ModelEndpoint
from hermes.runtime.admission import Admission
from hermes.runtime.approval import Gate
from hermes.runtime.builder import Builder
from hermes.runtime.bus import Bus
from hermes.runtime.control import Control
from hermes.runtime.prompt import conversation_system
from hermes.runtime.runtime import Runtime, running
from hermes.runtime.spec import ModelChoice, TaskSpec
from hermes.runtime.supervisor import Policy, Supervisor
from hermes.runtime.task import Task
from hermes.store.memory import MemoryStore
from hermes.store.ops import Store
from hermes.store.owner import take_ownership
from hermes.store.sqlite import open_store
from hermes.tools.toolsets import FileToolset, TerminalToolset, TodoToolset

__all__ = ["Assembly", "Parts", "conversation_spec", "max_running", "open_runtime", "select_toolsets"]

#: Descriptors kept for the program itself; a running task needs up to four (a connection, a command's pipes).
_OWN_DESCRIPTORS, _PER_TASK = 64, 4


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime is opened with. `model` replaces every model (for tests and simulations); `journal` is where the
    database stands (None: `<home>/runtime.db`), `memory` keeps nothing on disk. `secrets` are replaced wherever
    something is written."""

    loaded: Loaded
    endpoint: Endpoint
    keys: tuple[Key, ...] = ()
    secrets: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    environ: Mapping[str, str] = {}
    yolo: bool = False
    model: Model | None = None
    journal: Path | None = None
    memory: bool = False
    state_root: Path | None = None
    watchdog: bool = True
    clock: Clock = SystemClock()
    hold: Hold = NO_HOLD


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """An open runtime with what faces need beside it."""

    runtime: Runtime
    settings: Settings
    endpoint: Endpoint
    home: Home
    redactor: Redactor
    model: Model
    delegation: Delegation


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
        OperatorError: the home cannot be written, the journal is another program's or newer, a model cannot be had.
    """
    settings, home = parts.loaded.settings, parts.loaded.home
    if parts.model is None and not parts.endpoint.model:
        raise UsageError(
            f"no model is named for {parts.endpoint.base_url}: give -m MODEL, or hermes config set model.default MODEL"
        )
    redactor = _redactor(parts)
    if parts.memory:
        async with _assembled(parts, redactor, MemoryStore(), "memory") as assembly:
            yield assembly
        return
    home.prepare(home.run_dir)
    with take_ownership(home.path) as owner:
        breaks: list[Callable[[StoreError], None]] = []

        def broken(error: StoreError) -> None:
            for stop in breaks:
                stop(error)

        store = await open_store(
            parts.journal or home.database,
            durability=settings.store.durability,
            hold=parts.hold,
            on_broken=broken,
        )
        try:
            async with _assembled(parts, redactor, store, owner.owner_id) as assembly:
                breaks.append(assembly.runtime.supervisor.break_off)
                yield assembly
        finally:
            with anyio.CancelScope(shield=True):
                await store.close()


def _redactor(parts: Parts) -> Redactor:
    more = [secret for secret in (parts.endpoint.api_key, *parts.secrets) if secret]
    return Redactor(known_secrets(parts.environ or os.environ, parts.loaded.dotenv, more=more))


@asynccontextmanager
async def _assembled(parts: Parts, redactor: Redactor, store: Store, owner: str) -> AsyncIterator[Assembly]:
    settings, home = parts.loaded.settings, parts.loaded.home
    catalog = Catalog(
        settings.models, attempts=settings.agent.api_max_retries, cache=home.path / "cache" / "embedded-check"
    )
    models = _Models(parts, catalog)
    try:
        model = parts.model or await models(ModelChoice())
        runtime, delegation = _wire(parts, redactor, store, owner, models)
        async with running(runtime, watchdog=parts.watchdog):
            yield Assembly(
                runtime=runtime,
                settings=settings,
                endpoint=parts.endpoint,
                home=home,
                redactor=redactor,
                model=model,
                delegation=delegation,
            )
    finally:
        with anyio.CancelScope(shield=True):
            await catalog.close()


def _wire(parts: Parts, redactor: Redactor, store: Store, owner: str, models: _Models) -> tuple[Runtime, Delegation]:
    settings, home = parts.loaded.settings, parts.loaded.home
    state_root = parts.state_root or home.tasks_dir
    tasks: dict[str, Task] = {}

    def state_dir(task: Task) -> str:
        return str(state_root / task.scope.session_id / task.id)

    reports = Reports(state_dir)
    delegation = Delegation(_delegation_policy(settings), reports)
    bus = Bus()
    gate = Gate(
        mode=settings.approvals.mode,
        yolo=parts.yolo,
        children_yes=settings.delegation.subagent_auto_approve,
        timeout=settings.approvals.timeout,
        redact=redactor.text,
    )
    registry = _registry(parts, delegation, tasks)
    builder = Builder(
        registry=registry,
        models=models,
        environments=_environments(parts, state_dir, redactor),
        state_dir=state_dir,
        gate=gate,
        clock=parts.clock,
        redact=redactor.json_bytes,
        compaction=Compaction(
            enabled=settings.compression.enabled,
            threshold=settings.compression.threshold,
            protect_last=settings.compression.protect_last_n,
        ),
    )
    supervisor = Supervisor(
        store=store,
        bus=bus,
        admission=Admission(max_running=max_running(settings), max_children=settings.delegation.children_at_once),
        build=builder.build,
        policy=Policy(
            max_spawn_depth=settings.delegation.max_spawn_depth,
            max_live=settings.delegation.live_children,
            orchestrators=settings.delegation.orchestrator_enabled,
        ),
        clock=parts.clock,
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


def _room(task: Task) -> int:
    """Tokens that the reader of a child's end can spare, by the window of the parent's model."""
    parent = task.parent
    while parent is not None and parent.model is None:
        parent = parent.parent
    return parent.model.profile.window // 4 if parent is not None and parent.model is not None else 16_000


def _delegation_policy(settings: Settings) -> DelegationPolicy:
    children = settings.delegation
    return DelegationPolicy(
        max_spawn_depth=children.max_spawn_depth,
        orchestrator_enabled=children.orchestrator_enabled,
        max_iterations=children.max_iterations,
        child_timeout=children.child_timeout_seconds or None,
        model=ModelChoice(name=children.model, provider=children.provider, base_url=children.base_url),
        reasoning_effort=children.reasoning_effort or None,
        default_toolsets=children.default_toolsets,
    )


def _registry(parts: Parts, delegation: Delegation, tasks: Mapping[str, Task]) -> ToolsetRegistry:
    settings, home = parts.loaded.settings, parts.loaded.home

    def environment_of(scope: object) -> Environment:
        task = tasks[scope.task_id]  # type: ignore[attr-defined]
        if task.environment is None:
            raise RuntimeError(f"task {task.id} has no environment")
        return task.environment

    return ToolsetRegistry(
        (
            TerminalToolset(environment_of, timeout=settings.terminal.timeout),
            FileToolset(
                environment_of,
                denied=(str(home.env_file), str(home.auth_file), str(home.database)),
                hold=parts.hold,
            ),
            TodoToolset(),
            DelegationToolset(delegation),
            AsyncDelegationToolset(delegation),
        )
    )


def _environments(parts: Parts, state_dir: Callable[[Task], str], redactor: Redactor) -> Callable[[Task], Environment]:
    settings = parts.loaded.settings
    commands = anyio.CapacityLimiter(settings.terminal.max_parallel or 4 * (os.cpu_count() or 2))
    local = LocalSettings(timeout=settings.terminal.timeout, env_passthrough=settings.terminal.env_passthrough)

    def make(task: Task) -> Environment:
        return LocalEnvironment(
            task.scope,
            state_dir(task),
            source=parts.environ or os.environ,
            commands=commands,
            settings=local,
            redact=redactor.text,
            hold=parts.hold,
        )

    return make


class _Models:
    """From a task's choice to a model: the endpoint (host and key as one triple) first, then the catalogue."""

    def __init__(self, parts: Parts, catalog: Catalog) -> None:
        self._parts = parts
        self._catalog = catalog

    async def __call__(self, choice: ModelChoice) -> Model:
        if self._parts.model is not None:
            return self._parts.model
        endpoint = self._endpoint(choice)
        return self._catalog.model(endpoint.model, ModelEndpoint(base_url=endpoint.base_url, api_key=endpoint.api_key))

    def _endpoint(self, choice: ModelChoice) -> Endpoint:
        parts, main = self._parts, self._parts.endpoint
        if is_embedded(choice.name) and main.provider != "embedded":
            return find_endpoint(parts.loaded.settings, EndpointFlags(model=choice.name), parts.keys, parts.variables)
        same = choice.base_url in ("", main.base_url) and choice.provider in ("", main.provider)
        if same and (choice.name in ("", main.model) or main.provider != "embedded"):
            return msgspec.structs.replace(main, model=choice.name or main.model)
        children = parts.loaded.settings.delegation
        flags = EndpointFlags(
            model=choice.name,
            provider="" if choice.base_url else choice.provider,
            base_url=choice.base_url,
            api_key=children.api_key if choice.base_url and choice.base_url == children.base_url else "",
        )
        return find_endpoint(parts.loaded.settings, flags, parts.keys, parts.variables)


def select_toolsets(settings: Settings, registry: ToolsetRegistry, named: Sequence[str] | None = None) -> Selection:
    """The toolsets that are on: `named` stand for themselves, None takes the configured ones. Disabled ones are off
    however they were named."""
    disabled = settings.agent.disabled_toolsets
    names = (
        tuple(named)
        if named is not None
        else configured_toolsets(settings.platform_toolsets.get("cli"), settings.toolsets, disabled)
    )
    selection = registry.expand(names)
    return Selection(tuple(name for name in selection.names if name not in disabled), selection.notes)


def conversation_spec(
    assembly: Assembly,
    *,
    goal: str = "",
    interactive: bool,
    workspace: str,
    toolsets: Sequence[str] | None = None,
    unattended: bool = True,
    extra_system: str = "",
) -> tuple[TaskSpec, tuple[str, ...]]:
    """The specification of a conversation as configured, and notes about toolsets that were left out.

    `toolsets` stand for themselves; None takes the configured ones.
    """
    settings = assembly.settings
    selection = select_toolsets(settings, assembly.runtime.registry, toolsets)
    chosen = selection.names
    tiny = assembly.model.profile.tiny
    spec = TaskSpec(
        kind="main",
        goal=(Text(goal),) if goal else (),
        system=extra_system
        if tiny
        else conversation_system(chosen, workspace=workspace, finite=not interactive, extra=extra_system),
        role="orchestrator",
        toolsets=chosen,
        ceiling=chosen,
        model=ModelChoice(
            name=assembly.endpoint.model, provider=assembly.endpoint.provider, base_url=assembly.endpoint.base_url
        ),
        limits=Limits(
            turns=settings.agent.max_turns,
            clock=None if interactive else settings.agent.run_budget_seconds,
        ),
        workspace=workspace,
        interactive=interactive,
        unattended=unattended,
        reasoning_effort=settings.agent.reasoning_effort or None,
    )
    return spec, selection.notes
