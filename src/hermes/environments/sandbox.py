"""The sandbox: commands behind namespaces of the kernel, set up by bubblewrap for each command.

Inside there is the system read-only, the workspace writable, a /tmp and a home of the task's own, and nothing else of
this machine: no home of the user, no other task, no process, no network unless it is allowed. It is no virtual machine:
the kernel is shared. What it promises is written down in docs/environments.md and tried by the attack suite.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from hermes.core.environment import EnvironmentKind, Files
from hermes.core.errors import OperatorError
from hermes.environments.bounded import BoundedFiles, Mount
from hermes.environments.bwrap import NAMESPACES, Found, every_sandbox, find_bwrap, handed_over, mounting
from hermes.environments.cgroup import ControlGroup, ControlGroups, GroupPool
from hermes.environments.enclosure import Launch, Shell, Watching, find_shell
from hermes.environments.git_shadow import GitShadow, identity, introduce
from hermes.environments.project import Toolchains, may_redirect, project_mounts, protected_mounts, remove_redirect
from hermes.environments.spawner import Spawner
from hermes.environments.system_files import system_etc, system_links, system_mounts
from hermes.environments.watch import DiskRoom, Watch, crowded

__all__ = ["Bubblewrap", "Sandbox", "SandboxSettings", "why_no_sandbox"]

T = TypeVar("T")

#: Below a home that is itself the workspace, covered: programs keep keys there.
_KEYS = """
    .ssh .gnupg .aws .azure .kube .docker .config/gcloud .config/gh .config/hub .netrc .git-credentials .npmrc .pypirc
    .cargo/credentials.toml .local/share/keyrings .mozilla .config/google-chrome .config/chromium .password-store
""".split()
#: Where a task's home really stands: one directory less to mount.
_HOME = "/tmp/home"  # noqa: S108  the task's own
#: Further files that are seen by a command.
_MOST = 50
_SHELLS = "/usr/bin:/bin:/usr/local/bin"
_MIB = 1024 * 1024
#: Bytes of files in memory where no control group counts them.
_SHARED = 1024 * _MIB
#: Seconds after which it is asked again which directories of PATH are there.
_LOOK_AGAIN = 1.0


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one task's commands. `memory`, `file_size` and `disk` (all that is written in its directories; 0 for no
    limit) are bytes, `processes` counts threads too.

    `readable` are further paths that are seen read-only, `hidden` such as are never seen, wherever they are.
    """

    network: bool = False
    memory: int = 5120 * _MIB
    processes: int = 512
    file_size: int = 10_240 * _MIB
    disk: int = 51_200 * _MIB
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class Bubblewrap:
    """Makes sandboxes for one runtime. `close` ends what still runs in them.

    `cache` is a directory of the home for what all sandboxes share, `path` where the program is looked for.
    """

    def __init__(
        self, settings: SandboxSettings, cache: Path, *, path: str = "", groups: ControlGroups | None = None
    ) -> None:
        self.settings = settings
        self.system: tuple[Mount, ...] = ()
        self.links: tuple[tuple[str, str], ...] = ()
        self.fixed: tuple[str, ...] = ()
        self.shell = Shell("", "")
        self.identity = b""
        self.toolchains = Toolchains(rest=_LOOK_AGAIN)
        self.user = os.path.expanduser("~")
        self.hidden = (*settings.hidden, *(os.path.join(self.user, name) for name in _KEYS))
        self._cache = cache
        self.spawner = Spawner()
        self.watch = Watch()
        self._search = path or os.environ.get("PATH", os.defpath)
        self._groups = groups
        self._pool: GroupPool | None = None
        self._making = threading.Lock()
        self._found = Found()

    def why_not(self) -> str:
        """Why there is no sandbox here, empty if there is one (blocking, tried once)."""
        with self._making:  # a later try that fails takes nothing from one that found it
            if not self._found.program:
                self._found = find_bwrap(self._search)
            return self._found.reason

    @property
    def calls(self) -> bytes:
        """The filter of system calls, as `ready` found that the kernel takes it; empty for none."""
        return self._found.calls

    @property
    def is_ready(self) -> bool:
        """Whether `ready` has nothing left to find out."""
        return self._pool is not None

    def ready(self) -> tuple[str, GroupPool]:
        """The program, and the groups in which limits of a whole task are set; what all sandboxes have in common is
        found then, once (blocking).

        Raises:
            OperatorError: there is no sandbox here.
        """
        if self._pool is None:
            reason = self.why_not()
            if reason:
                raise OperatorError(f"environment_unavailable: the sandbox cannot be had here: {reason}")
            with self._making:
                self._pool = self._pool or self._prepared()
        return self._found.program, self._pool

    def _prepared(self) -> GroupPool:
        if self._groups is None:
            self._groups = ControlGroups.find()
            self._groups.sweep()
        etc = Mount(inside="/etc", outside=str(system_etc(self._cache)))
        self.identity = identity()
        self.links = tuple(system_links())
        self.fixed = tuple(every_sandbox(self.links))
        self.shell = find_shell(_SHELLS)
        self.system = (*system_mounts(), etc)
        return GroupPool(self._groups, memory=self.settings.memory, processes=self.settings.processes)

    def sandbox(
        self,
        workspace: str,
        state_dir: Path,
        environment: Mapping[str, str],
        shadow: GitShadow | None = None,
        around: bool = True,
        readable: Callable[[], Sequence[str]] = tuple,
        borrows: Sequence[str] = (),
    ) -> Sandbox:
        """The sandbox of one task; `shadow` is what it sees of the repository that its worktree belongs to, `around`
        says whether the checkout around its workspace may be read, `readable` returns further files that it may read
        now (reports of its children), `borrows` are directories that its workspace needs, seen read-only."""
        return Sandbox(self, workspace, state_dir, environment, shadow, around, readable, borrows)

    def close(self) -> None:
        """End the thread that starts commands, and with it what still runs. Safe to call twice."""
        self.spawner.close()
        self.watch.close()
        if self._pool is not None:
            self._pool.close()


def why_no_sandbox(path: str) -> tuple[str, str]:
    """Why no sandbox can be made here, and why system calls are not filtered in it, both empty where nothing is missing
    (blocking). `path` is where the program is looked for."""
    found = find_bwrap(path)
    return found.reason, found.unfiltered


class Sandbox:
    """The enclosure of one task. Everything in it ends with the command that started it, and with this process."""

    kind: EnvironmentKind = "sandbox"

    def __init__(
        self,
        maker: Bubblewrap,
        workspace: str,
        state_dir: Path,
        environment: Mapping[str, str],
        shadow: GitShadow | None,
        around: bool,
        readable: Callable[[], Sequence[str]],
        borrows: Sequence[str],
    ) -> None:
        self._maker = maker
        self._settings = maker.settings
        self._workspace = workspace
        self._tmp = state_dir / "tmp"
        self._shadow = shadow
        self._around = around
        self._readable = readable
        self._borrows = borrows
        self.state_dir = self.output_dir = state_dir / "shell"
        self._home = environment.get("HOME") or "/home/agent"
        dropped = ("TMPDIR", "SHELL")
        self.environment = {name: value for name, value in environment.items() if name not in dropped}
        self.environment["HOME"] = self._home
        self._prefix: list[str] = []
        self._group: ControlGroup | None = None
        self._fresh = False  # its home was made by this object, and no command has run in it yet
        self._files: Files | None = None
        self._seen: list[Mount] = []
        self._linked = False
        self._room: DiskRoom | None = None
        self._held = True  # the kernel limits its processes
        self.watch: Watching | None = None

    @property
    def files(self) -> Files:
        """The files seen inside."""
        if self._files is None:
            self._maker.ready()
            self._tmp.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.state_dir, 0o700)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._tmp / "home", 0o700)
                self._fresh = True
            if self._home.startswith("/tmp/"):  # noqa: S108  the task's own
                (self._tmp / self._home[5:]).mkdir(parents=True, exist_ok=True, mode=0o700)
            if self._shadow is not None:
                self._shadow.prepare()
            links = dict(self._maker.links)
            self._seen = self._mounts()
            if self._linked:
                links[self._home] = _HOME
            if self._settings.disk:
                self._room = DiskRoom([m.outside for m in self._seen if m.writable and m.outside], self._settings.disk)
            self._files = BoundedFiles(self._seen, links, "the sandbox", self._readable)
        return self._files

    async def starting(self, work: Callable[[], T]) -> T:
        """On the one thread that lives as long as the runtime."""
        return await self._maker.spawner.run(work)

    def _mounts(self) -> list[Mount]:
        """What the task sees; inner ones come after those they lie in."""
        workspace, home, settings = self._workspace, self._home, self._settings
        user = self._maker.user
        found = [
            *self._maker.system,
            Mount(inside="/tmp", outside=str(self._tmp), writable=True),  # noqa: S108  the task's own
            *(Mount(inside=path, outside=path) for path in settings.readable if os.path.exists(path)),
            *self._maker.toolchains.mounts(self.environment.get("PATH", ""), user, workspace),
            *(self._shadow.mounts() if self._shadow is not None else self._project(user)),
            *(Mount(inside=path, outside=path) for path in self._borrows if os.path.isdir(path)),
            Mount(inside=workspace, outside=workspace, writable=True),
            *protected_mounts(workspace),
            Mount(inside=str(self.state_dir), outside=str(self.state_dir), writable=True),
        ]
        found += self._hidden(found)
        below = home.rstrip("/") + "/"
        if not any(mount.inside == home or below.startswith(mount.inside.rstrip("/") + "/") for mount in found):
            self._linked = not any(mount.inside.startswith(below) for mount in found)
            if not self._linked:
                found.insert(0, Mount(inside=home, outside=str(self._tmp / "home"), writable=True))
        last = {mount.inside: number for number, mount in enumerate(found)}
        once = [mount for number, mount in enumerate(found) if last[mount.inside] == number]
        return sorted(once, key=lambda mount: mount.inside.count("/"))

    def _project(self, home: str) -> list[Mount]:
        return project_mounts(self._workspace, home) if self._around else []

    def _hidden(self, seen: Sequence[Mount]) -> list[Mount]:
        """What lies in what is seen and is not the task's to read."""
        shown = tuple(mount.inside.rstrip("/") + "/" for mount in seen if mount.inside == mount.outside)
        return [
            Mount(inside=path, outside=None)
            for path in self._maker.hidden
            if path.startswith(shown) and os.path.lexists(path)
        ]

    def open(self) -> Shell:
        """Make its directories and its control group. Raises OSError, OperatorError."""
        program, groups = self._maker.ready()
        _ = self.files
        settings = self._settings
        if self._group is None:
            self._group = groups.take()
        self._held = self._group is not None or os.getuid() != 0  # it lets root have any number
        if self._room is not None or not self._held:
            self.watch = self._look_after
        enter = self._group.doors if self._group is not None else []
        self._prefix = []  # it may have failed half-way before
        if enter:
            # 0 is whoever writes it; what it starts stays in the group
            lines = "; ".join(f'echo 0 > "${number}"' for number in range(1, len(enter) + 1))
            self._prefix = ["/bin/sh", "-c", f'{lines}; shift {len(enter)}; exec "$@"', "enter", *enter]
        self._prefix += [program, *NAMESPACES, *([] if settings.network else ["--unshare-net"])]
        for mount in self._seen:
            self._prefix += mounting(mount)
        self._prefix += self._maker.fixed
        if self._group is None:  # which counts files in memory too
            shared = str(min(settings.memory, _SHARED))
            self._prefix += ["--size", shared, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
        if self._linked:
            self._prefix += ["--symlink", _HOME, self._home]
        if not self._fresh:
            introduce(self.files, _HOME, self._maker.identity)
        elif self._maker.identity:  # nothing has run there that could have laid a link
            with contextlib.suppress(FileExistsError):
                _write_new(self._tmp / "home" / ".gitconfig", self._maker.identity)
        return self._maker.shell

    def prologue(self, shell: Shell) -> Sequence[str]:
        """Limits of each single process; they hold where there are no control groups too, and cannot be raised."""
        settings = self._settings
        processes = f"ulimit -{'u' if shell.kind == 'bash' else 'p'} {settings.processes} 2>/dev/null"
        return [
            f"ulimit -c 0; ulimit -d {settings.memory // 1024}; {processes}; "
            f"ulimit -f {settings.file_size // (1024 if shell.kind == 'bash' else 512)}"
        ]

    def launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Launch:
        """Behind bubblewrap; the environment is the command's alone."""
        if self._group is not None:
            self._group.restore()
        files = [part for path in self._readable()[-_MOST:] for part in ("--ro-bind-try", path, path)]
        rest = ["--remount-ro", "/", "--chdir", cwd, "--", *argv]
        if not self._maker.calls:
            return Launch([*self._prefix, *files, *rest], env, "/")
        calls = handed_over(self._maker.calls)
        return Launch([*self._prefix, *files, "--seccomp", str(calls), *rest], env, "/", calls)

    def _look_after(self, pid: int, tell: Callable[[str], None]) -> Callable[[], None]:
        watch, most = self._maker.watch, self._settings.processes

        def look() -> str:
            if not self._held and (said := crowded(watch.inside(pid), most)):
                return said
            return self._room.look(partial(watch.inside, pid)) if self._room is not None else ""

        return watch.begin(look, tell)

    def end_inside(self, call_key: str) -> None:
        """Signals reach it: its processes are seen from here, and end with the first of them."""

    def remarks(self) -> tuple[str, ...]:
        """That the memory was used up, commits could not be brought home, or git was led elsewhere."""
        failed = self._shadow.bring_home() if self._shadow is not None else ""
        said = [text for text in (failed, remove_redirect(self._workspace, self._seen)) if text]
        if self._room is not None and (full := self._room.look()):
            said.append(full)
        if self._group is not None and self._group.newly_killed():
            said.append(
                f"A process was ended because the sandbox may use {self._settings.memory // _MIB} MB "
                "(terminal.container_memory)."
            )
        return tuple(said)

    @property
    def closes_at_once(self) -> bool:
        """Where there is no repository to look after, and no files to count."""
        counts = self._room is not None and self._room.near
        return self._shadow is None and not counts and not may_redirect(self._workspace, self._seen)

    def close(self) -> None:
        """Let go of the control group; what stands in its /tmp and home stays for a task that goes on later."""
        if self._shadow is not None and self._files is not None:
            self._shadow.bring_home()
        remove_redirect(self._workspace, self._seen)
        group, self._group = self._group, None
        if group is not None:
            self._maker.ready()[1].give(group)


def _write_new(path: Path, content: bytes) -> None:
    """Make a small file. Raises FileExistsError, OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
