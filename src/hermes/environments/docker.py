"""Containers: one for each task, driven by the `docker` command, removed at the end of its task.

The workspace stands inside under its own path, so that a path means the same for commands, file tools and people. What
a killed process leaves behind carries the label of its owner and is removed by the next one that finds the owner gone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from hermes.core.environment import EnvironmentKind, Files
from hermes.core.errors import OperatorError
from hermes.environments.bounded import BoundedFiles, Mount
from hermes.environments.enclosure import Launch, Shell, Watching
from hermes.environments.git_shadow import GitShadow, identity, introduce
from hermes.environments.process import CALL_KEY
from hermes.environments.project import protected_mounts, remove_redirect

__all__ = ["Container", "Docker", "DockerSettings"]

T = TypeVar("T")

#: Seconds for calls that only ask, for those that start or remove a container, and for the download of an image.
ASK, DO, PULL = 10.0, 60.0, 600.0
_HOME = "/tmp/home"  # noqa: S108  inside the container
_OWNER, _OF_HOME, _TASK = "hermes.owner", "hermes.home", "hermes.task"
#: Variables of the client itself: what a container gets of that name is said in its arguments.
_CLIENT = ("PATH", "HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
#: Ends what carries a call's key: first politely, then not.
_END = (
    'for n in TERM KILL; do for p in /proc/[0-9]*; do tr "\\0" "\\n" < "$p/environ" 2>/dev/null | '
    'grep -qxF "$1" && kill -$n "${p#/proc/}" 2>/dev/null && f=1; done; [ "$f" ] && sleep 0.2; f=; done; :'
)


class DockerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Containers as configured. `memory` is MB, `cpus` processors; `extra` are arguments of `docker run`.

    `home` names the home that containers belong to, `owner` the running process.
    """

    home: str
    owner: str
    image: str = "nikolaik/python-nodejs:python3.14-nodejs22"
    network: bool = True
    cpus: float = 1
    memory: int = 5120
    processes: int = 512
    shm_size: str = "1g"
    volumes: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    extra: tuple[str, ...] = ()


class Docker:
    """Makes containers for one runtime. `source` is the environment of the client, `is_gone` says whether a process
    that owned a container has ended. Methods block."""

    def __init__(self, settings: DockerSettings, source: Mapping[str, str], is_gone: Callable[[str], bool]) -> None:
        self.settings = settings
        self.client = {name: value for name, value in source.items() if _of_client(name)}
        self._is_gone = is_gone
        self._lock = threading.Lock()
        self._images: set[str] = set()
        self.identity = b""
        self._swept = False

    @property
    def program(self) -> str:
        """The client. Raises OperatorError where there is none."""
        found = shutil.which("docker", path=self.client.get("PATH", os.defpath))
        if found is None:
            raise OperatorError("environment_unavailable: the program docker is not on PATH; install it")
        return found

    def call(self, *arguments: str, timeout: float = ASK) -> subprocess.CompletedProcess[str]:
        """Run the client. Raises OperatorError when it cannot be run or does not end in time."""
        try:
            return subprocess.run(
                [self.program, *arguments],
                env=self.client,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OperatorError(f"environment_unavailable: docker {arguments[0]} failed: {error}") from None

    def why_not(self) -> str:
        """Why there are no containers here, empty if there are."""
        try:
            done = self.call("version", "--format", "{{.Server.Version}}")
        except OperatorError as error:
            return str(error).removeprefix("environment_unavailable: ")
        return "" if done.returncode == 0 else f"the engine does not answer: {_said(done)}"

    def ready(self, image: str) -> None:
        """See that the engine answers and the image is there, which is downloaded where it is missing.

        Raises:
            OperatorError: it cannot be had.
        """
        with self._lock:
            if not self._swept:
                reason = self.why_not()
                if reason:
                    raise OperatorError(f"environment_unavailable: containers cannot be had here: {reason}")
                self._sweep()
                self.identity = identity()
                self._swept = True
            if image in self._images:
                return
            if self.call("image", "inspect", image).returncode != 0:
                pulled = self.call("pull", image, timeout=PULL)
                if pulled.returncode != 0:
                    raise OperatorError(
                        f"environment_unavailable: Docker image not available: {image} ({_said(pulled)})"
                    )
            self._images.add(image)

    def _sweep(self) -> None:
        """Remove containers of this home whose owner is gone."""
        form = f'{{{{.ID}}}} {{{{.Label "{_OWNER}"}}}}'
        listed = self.call("ps", "-a", "--filter", f"label={_OF_HOME}={self.settings.home}", "--format", form)
        for line in listed.stdout.splitlines():
            container, _, owner = line.partition(" ")
            if owner and owner != self.settings.owner and self._is_gone(owner):
                self.call("rm", "-f", container, timeout=DO)

    def container(
        self,
        task_id: str,
        workspace: str,
        state_dir: Path,
        image: str = "",
        shadow: GitShadow | None = None,
        readable: Callable[[], Sequence[str]] = tuple,
        borrows: Sequence[str] = (),
    ) -> Container:
        """The container of one task, not started yet; `shadow` is what it sees of its worktree's repository, `readable`
        returns further files that its file tools may read now, `borrows` are directories that its workspace needs,
        mounted read-only."""
        return Container(self, task_id, workspace, state_dir, image or self.settings.image, shadow, readable, borrows)


def _of_client(name: str) -> bool:
    return name in _CLIENT or name.startswith("DOCKER_")


def _volume(mount: Mount) -> str:
    return f"{mount.outside}:{mount.inside}{'' if mount.writable else ':ro'}"


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit code {done.returncode}"


class Container:
    """The enclosure of one task."""

    kind: EnvironmentKind = "docker"

    def __init__(
        self,
        maker: Docker,
        task_id: str,
        workspace: str,
        state_dir: Path,
        image: str,
        shadow: GitShadow | None,
        readable: Callable[[], Sequence[str]],
        borrows: Sequence[str],
    ) -> None:
        self._maker = maker
        self._task_id = task_id
        self._image = image
        self._workspace = workspace
        self._tmp = state_dir / "tmp"
        self._threads: anyio.CapacityLimiter | None = None
        self._running = False
        self._shadow = shadow
        self._borrows = borrows
        self._seen: list[Mount] = []
        self.name = f"hermes-{maker.settings.home[:8]}-{task_id}"
        self.state_dir = self.output_dir = state_dir / "shell"
        self.environment = {"HOME": _HOME, "TERM": "dumb", **maker.settings.variables}
        self.files: Files = BoundedFiles(
            [
                Mount(inside="/tmp", outside=str(self._tmp), writable=True),  # noqa: S108  the task's own
                Mount(inside=workspace, outside=workspace, writable=True),
                Mount(inside=str(self.state_dir), outside=str(self.state_dir), writable=True),
            ],
            {},
            "the file tools (only the workspace and /tmp of the container are; use terminal for its other files)",
            readable,
        )

    async def starting(self, work: Callable[[], T]) -> T:
        """On any thread."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(64)
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    def open(self) -> Shell:
        """Start the container. Raises OSError, OperatorError."""
        for folder in (self.state_dir, self._tmp / "home"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._maker.ready(self._image)
        if self._shadow is not None:
            self._shadow.prepare()
        introduce(self.files, _HOME, self._maker.identity)
        self._seen = self._repository()
        started = self._maker.call(*self._arguments(), timeout=DO)
        if started.returncode != 0:  # one of this name was left by the process that had the task before
            self._maker.call("rm", "-f", self.name, timeout=DO)
            started = self._maker.call(*self._arguments(), timeout=DO)
        if started.returncode != 0:
            raise OperatorError(
                f"environment_unavailable: the container {self.name} of {self._image} could not be started: "
                f"{_said(started)}"
            )
        self._running = True
        asked = self._maker.call("exec", self.name, "sh", "-c", "command -v bash || command -v sh")
        path = asked.stdout.strip()
        if asked.returncode != 0 or not path.startswith("/"):
            raise OperatorError(f"environment_unavailable: the image {self._image} has no shell: {_said(asked)}")
        return Shell("bash" if path.endswith("/bash") else "sh", path)

    def _arguments(self) -> list[str]:
        settings = self._maker.settings
        labels = ((_OWNER, settings.owner), (_OF_HOME, settings.home), (_TASK, self._task_id))
        volumes = (
            f"{self._workspace}:{self._workspace}",
            f"{self._tmp}:/tmp",
            f"{self.state_dir}:{self.state_dir}",
            *(_volume(mount) for mount in self._seen),
            *settings.volumes,
        )
        return [
            "run", "--detach", "--rm", "--init", "--name", self.name,
            *(part for name, value in labels for part in ("--label", f"{name}={value}")),
            "--network", "bridge" if settings.network else "none",
            "--cpus", f"{settings.cpus:g}", "--memory", f"{settings.memory}m",
            "--memory-swap", f"{settings.memory}m", "--pids-limit", str(settings.processes),
            "--shm-size", settings.shm_size, "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--user", f"{os.getuid()}:{os.getgid()}",
            *(part for volume in volumes for part in ("--volume", volume)),
            "--workdir", self._workspace, *settings.extra, self._image, "sleep", "infinity",
        ]  # fmt: skip

    def _repository(self) -> list[Mount]:
        """What of its repository, and of what it may not change there, is mounted."""
        shadow = self._shadow.mounts() if self._shadow is not None else []
        borrowed = [Mount(inside=path, outside=path) for path in self._borrows]
        return [*borrowed, *shadow, *protected_mounts(self._workspace)]

    def prologue(self, shell: Shell) -> Sequence[str]:
        """The engine sets the limits."""
        return ()

    def launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Launch:
        """By the client; values go through its environment, so that they stand in no list of processes."""
        said = [f"{name}={value}" if _of_client(name) else name for name, value in env.items()]
        named = [part for each in said for part in ("--env", each)]
        inside = ["exec", "--workdir", cwd, *named, self.name, *argv]
        return Launch([self._maker.program, *inside], {**env, **self._maker.client}, "/")

    def end_inside(self, call_key: str) -> None:
        """Ending the client ends nothing inside."""
        if self._running:
            self._maker.call("exec", self.name, "sh", "-c", _END, "end", f"{CALL_KEY}={call_key}", timeout=DO)

    def remarks(self) -> tuple[str, ...]:
        """That commits could not be brought home, or git was led elsewhere."""
        failed = self._shadow.bring_home() if self._shadow is not None else ""
        return tuple(text for text in (failed, remove_redirect(self._workspace, self._seen)) if text)

    closes_at_once = False
    watch: Watching | None = None

    def close(self) -> None:
        """Remove the container and with it what still runs in it."""
        if self._running:
            if self._shadow is not None:
                self._shadow.bring_home()
            self._running = False
            self._maker.call("rm", "-f", self.name, timeout=DO)
            remove_redirect(self._workspace, self._seen)
