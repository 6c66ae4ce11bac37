"""Where tasks work: the workspaces of a home, and what stands around the commands of each task.

What is asked for and cannot be had is an error that says what is missing; nothing falls back to less.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import cast
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from hermes.compose.children import levels_above
from hermes.compose.parts import Parts
from hermes.core.clock import held
from hermes.core.environment import Environment, EnvironmentKind
from hermes.core.errors import OperatorError
from hermes.core.scope import CallKey
from hermes.credentials.redact import Redactor
from hermes.environments.docker import Docker, DockerSettings
from hermes.environments.enclosure import Enclosure, Host
from hermes.environments.files import LocalFiles
from hermes.environments.git_shadow import GitShadow
from hermes.environments.local import LocalEnvironment, LocalSettings
from hermes.environments.sandbox import Bubblewrap, SandboxSettings
from hermes.environments.scrub import command_environment
from hermes.runtime.modes import place
from hermes.runtime.processes import tell_process
from hermes.runtime.task import Task
from hermes.runtime.workspaces import Workspaces
from hermes.runtime.worktree import outside_state
from hermes.store.ops import SetCallProcess, Store, Unit
from hermes.store.owner import is_gone

__all__ = ["Places"]

#: Toolsets whose tools reach into a task's environment.
_WORKING = frozenset({"terminal", "file", "code_execution"})
_MIB = 1024 * 1024


class Places:
    """The environments and workspaces of one runtime.

    `state_dir` is a directory of a task's own, `cache` one for what all sandboxes share.
    """

    def __init__(
        self, parts: Parts, redactor: Redactor, store: Store, owner: str, state_dir: Callable[[Task], str], cache: Path
    ) -> None:
        settings, home = parts.loaded.settings, parts.loaded.home
        self._parts = parts
        self._redactor = redactor
        self._store = store
        self._state_dir = state_dir
        self._shadows: WeakValueDictionary[str, GitShadow] = WeakValueDictionary()
        self._source: Mapping[str, str] = parts.environ or os.environ
        self.workspaces = Workspaces(home.path / "workspaces", parts.hold)
        terminal = settings.terminal
        self._backend = terminal.backend
        approvals = settings.approvals
        self._freed = parts.yolo or approvals.host_commands or approvals.mode == "allow"
        self._sandboxed = False  # whether a sandbox can be had here, as far as it was tried
        self._commands = anyio.CapacityLimiter(terminal.max_parallel or 4 * (os.cpu_count() or 2))
        self._local = LocalSettings(
            timeout=terminal.timeout,
            env_passthrough=terminal.env_passthrough,
            levels_above=levels_above(settings, self._source),
        )
        self._bubblewrap = Bubblewrap(
            SandboxSettings(
                network=terminal.sandbox_network,
                memory=terminal.container_memory * _MIB,
                processes=terminal.sandbox_processes,
                file_size=terminal.sandbox_file_mb * _MIB,
                disk=terminal.container_disk * _MIB,
                readable=tuple(os.path.abspath(os.path.expanduser(path)) for path in terminal.sandbox_read),
                hidden=(str(home.path),),
            ),
            cache,
            path=self._source.get("PATH", os.defpath),
        )
        forwarded = {name: self._source[name] for name in terminal.docker_forward_env if name in self._source}
        self._docker = Docker(
            DockerSettings(
                home=hashlib.sha256(str(home.path).encode("utf-8", "surrogateescape")).hexdigest()[:16],
                owner=owner,
                image=terminal.docker_image,
                network=terminal.docker_network,
                cpus=terminal.container_cpu,
                memory=terminal.container_memory,
                processes=terminal.sandbox_processes,
                shm_size=terminal.docker_shm_size,
                volumes=terminal.docker_volumes,
                variables={**terminal.docker_env, **forwarded},
                extra=terminal.docker_extra_args,
            ),
            self._source,
            lambda other: is_gone(home.path, other),
        )

    async def check(self, environment: str, image: str = "") -> None:
        """See that an environment can be had: "" is the configured one.

        Raises:
            OperatorError: it cannot; the text begins with `environment_unavailable` and says what is missing.
        """
        kind = environment or self._backend
        if kind in ("local", "auto"):
            return
        if kind == "sandbox" and self._bubblewrap.is_ready:
            return
        with held(self._parts.hold):
            if kind == "sandbox":
                await anyio.to_thread.run_sync(self._bubblewrap.ready)
            else:
                await anyio.to_thread.run_sync(self._docker.ready, image or self._docker.settings.image)

    async def prepare(self, task: Task) -> None:
        """See that a task that starts has its workspace and can have its environment.

        Raises:
            OperatorError: one of them cannot be had.
        """
        await self.workspaces.make(task)
        if task.spec.check or task.spec.examined or not _WORKING.isdisjoint(task.spec.toolsets):
            if not task.spec.environment and self._backend == "auto" and self._alone(task) and not self._sandboxed:
                with held(self._parts.hold):
                    self._sandboxed = not await anyio.to_thread.run_sync(self._bubblewrap.why_not)
            await self.check(self.kind(task), task.spec.image)

    def _alone(self, task: Task) -> bool:
        return task.spec.unattended and not self._freed

    def kind(self, task: Task) -> EnvironmentKind:
        """What holds the commands of a task that is prepared."""
        if task.spec.environment:
            return cast("EnvironmentKind", task.spec.environment)
        attended = not task.spec.unattended
        return place(self._backend, attended=attended, freed=self._freed, sandbox=self._sandboxed)

    def make(self, task: Task) -> Environment:
        """The environment of a task."""
        state_dir = Path(self._state_dir(task))
        kind = self.kind(task)
        isolation = task.spec.isolation
        watch: Callable[[], Mapping[str, str]] | None = None
        if kind == "local" and isolation is not None and isolation.checkout:
            watch = partial(outside_state, isolation.checkout, str(self.workspaces.root))
        return LocalEnvironment(
            task.scope,
            state_dir,
            source=self._source,
            commands=self._commands,
            settings=self._local,
            redact=self._redactor.text,
            on_started=self._note_process,
            on_ended=lambda info: tell_process(task, info),
            enclosure=self._enclosure(kind, task, state_dir),
            outside=watch,
            hold=self._parts.hold,
        )

    def _enclosure(self, kind: str, task: Task, state_dir: Path) -> Enclosure | None:
        isolation = task.spec.isolation
        folder = isolation.top if isolation is not None else task.scope.workspace
        root = _root(task)

        def reports() -> list[str]:
            results = [child.result for child in task.children if child.result is not None]
            return [path for each in results for path in (each.report_path, each.diagnostic_path) if path]

        if kind == "sandbox":
            environment = command_environment(self._source, self._local.env_passthrough)
            shadow = self._shadow(task)
            # The folder of a batch lies in a project that its rows, and their answers, are no part of.
            around = isolation is None and root.scope.kind != "row"
            return self._bubblewrap.sandbox(folder, state_dir, environment, shadow, around, reports, root.spec.borrows)
        if kind == "docker":
            image, borrows = task.spec.image, root.spec.borrows
            return self._docker.container(task.id, folder, state_dir, image, self._shadow(task), reports, borrows)
        if kind == "local" and isolation is not None:
            environment = command_environment(self._source, self._local.env_passthrough)
            files = LocalFiles(isolation.checkout or isolation.origin, isolation.top)
            return Host(state_dir, environment, files)
        if kind != "local":
            raise OperatorError(f"environment_unavailable: there is no environment {kind!r}")
        return None

    def _shadow(self, task: Task) -> GitShadow | None:
        """What commands behind a boundary see of the repository of the worktree that a task works in; it may be that of
        a task above. One for all who work there, so that nobody's commits are behind another's."""
        place = os.path.join(task.scope.workspace, "")
        owner: Task | None = task
        while owner is not None and owner.spec.isolation is None:
            owner = owner.parent
        isolation = owner.spec.isolation if owner is not None else None
        if owner is None or isolation is None or isolation.mode != "worktree":
            return None
        if not place.startswith(os.path.join(isolation.top, "")):
            return None
        shadow = self._shadows.get(isolation.top)
        if shadow is None:
            folder = Path(self._state_dir(owner))
            shadow = GitShadow(folder, isolation.repository, isolation.record, isolation.branch)
            self._shadows[isolation.top] = shadow
        return shadow

    def _note_process(self, key: CallKey, pgid: int, started: str) -> None:
        """Store a command's process group, so that whoever takes the task up after a crash can end it first."""
        if key.sub:
            return  # its outer call is the one that is known; whatever carries its key is ended with it
        op = SetCallProcess(
            task_id=key.task_id, position=key.position, index=key.index, pgid=pgid, process_started=started
        )
        self._store.submit(Unit(ops=(op,)))

    async def close(self) -> None:
        """End what the sandboxes still run. To be awaited shielded."""
        with held(self._parts.hold):
            await anyio.to_thread.run_sync(self._bubblewrap.close)


def _root(task: Task) -> Task:
    while task.parent is not None:
        task = task.parent
    return task
