"""A terminal session as state: the script that restores it around one command, and what the command left of it.

No shell waits between commands. Each is one shell that takes directory, exported variables and functions from a file
and writes them to another at its end. This module builds and reads; it starts nothing.

Behind a boundary the command can write where its state is kept, so what stands there is never trusted: no link is
followed, only a regular file of bounded size is read, and what is read only ever goes back inside.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.environments.enclosure import Enclosure, Shell
from hermes.environments.process import CALL_KEY, DEPTH

__all__ = ["Session"]

#: A longer command does not fit into one argument of a program (128 KiB on Linux) and goes through a file.
_ARGUMENT_LIMIT = 100_000
#: Bytes of state that are taken over from a command; one with more variables and functions leaves none.
_STATE_LIMIT = 4 * 1024 * 1024

# The dump is written by the shell itself, with builtins alone: no process is started for it. Directory and end mark
# follow the variables, so that half a dump is never taken for a whole one.
_DUMP = {
    "bash": "declare -px; declare -fp",
    "sh": "export -p",
}
_END = b"\0done"


class Session:
    """State between the commands of one task, kept where `enclosure` says, so that another process can take it up.

    Methods are blocking but short: call them on a thread.
    """

    def __init__(self, enclosure: Enclosure, workspace: str, depth: int, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self.cwd = workspace
        self.workspace = workspace
        self._enclosure = enclosure
        self._dir = enclosure.state_dir
        self._env = dict(enclosure.environment)
        self._depth = depth
        self._shell = Shell("", "")
        self._state: bytes | None = None
        self._written: bytes | None = None  # the state in the file that a command begins with
        self._forgets = False  # what an earlier process left is of no interest
        self._commands: set[str] = set()  # those that went through a file
        self._lock = threading.Lock()

    def open(self) -> None:
        """Find the shell and load what an earlier process left, once. Raises OSError, FileNotFoundError."""
        with self._lock:
            if not self._shell.path:
                self._load()

    def _load(self) -> None:
        self._shell = self._enclosure.open()
        content = b"" if self._forgets else _read(self._dir / "shell.state")
        if not content:
            return
        for stale in self._dir.glob("*_*.state"):  # of commands that a lost process was running
            _remove(stale)
        parsed = _parse(content)
        if parsed is not None:
            self._state, self.cwd = parsed

    def environment(self, key: str, cwd: str) -> dict[str, str]:
        """Return the variables that the shell of one command in `cwd` starts with."""
        if self._state is None:
            base = self._env
        else:  # the rest comes from the session's own state, so that an `unset` lasts
            base = {name: self._env[name] for name in ("PATH", "HOME") if name in self._env}
        return {**base, "PWD": cwd, CALL_KEY: key, DEPTH: str(self._depth)}

    def directory(self, cwd: str | None) -> tuple[str, tuple[str, ...]]:
        """Return (where to start, what the reader has to know about it). Raises FileNotFoundError."""
        wanted = cwd if cwd is not None else self.cwd
        if self._is_folder(wanted):
            return wanted, ()
        if cwd is not None:
            raise FileNotFoundError(f"there is no directory {cwd}: give one that exists or leave workdir out")
        if not self._is_folder(self.workspace):
            raise FileNotFoundError(
                f"the workspace {self.workspace} no longer exists: it has to be made again before a command can run"
            )
        self.cwd = self.workspace
        return self.workspace, (f"The directory {wanted} no longer exists; the command ran in {self.workspace}.",)

    def _is_folder(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(self._enclosure.files.stat(path).st_mode)
        except (OSError, ToolError):  # what cannot be reached is not there for the task
            return False

    def script(self, command: str, key: str, name: str, cwd: str, *, keep: bool = True) -> list[str]:
        """Return the argument list that runs `command` in `cwd`, where the shell will have been started.

        `keep` has the state that the command leaves written to a file called `name`.
        """
        parts = [*self._enclosure.prologue(self._shell)]
        if keep:
            dump = (
                f"{{ HERMES_CWD=$PWD; unset {CALL_KEY} {DEPTH} SHLVL PWD; {_DUMP[self._shell.kind]}; "
                f"printf '\\0%s\\0done' \"$HERMES_CWD\"; }} >{shlex.quote(str(self._dump_path(name)))} 2>/dev/null"
            )
            parts.append(f"trap {shlex.quote('set +eux; umask 077; ' + dump)} EXIT")
        if self._state is not None:
            self._restorable(self._state)
            parts.append(f". {shlex.quote(str(self._dir / 'shell.restore'))} 2>/dev/null")
            parts.append(f"export PWD={shlex.quote(cwd)} {CALL_KEY}={shlex.quote(key)} {DEPTH}={self._depth}")
        if len(command) > _ARGUMENT_LIMIT // 4:
            path = self._dir / f"{name}.command"
            self._commands.add(name)
            self._write(path.name, command.encode("utf-8", "replace"))
            parts.append(f". {shlex.quote(str(path))}")
        else:
            parts.append(f"eval {shlex.quote(command)}")
        kind, shell = self._shell
        options = ["--noprofile", "--norc"] if kind == "bash" else []
        return [shell, *options, "-c", "\n".join(parts), kind]

    def _dump_path(self, name: str) -> Path:
        return self._dir / f"{name}.state"

    def drop(self, name: str) -> None:
        """Forget what the command called `name` left (it was killed, or its end is of no interest). Raises OSError."""
        self._drop_command(name)
        _remove(self._dump_path(name))

    def _drop_command(self, name: str) -> None:
        if name in self._commands:
            self._commands.discard(name)
            _remove(self._dir / f"{name}.command")

    def take(self, name: str, *, move: bool = True) -> None:
        """Adopt the state that the command called `name` left. Raises OSError.

        Without `move` the session stays in its directory (the command was given one of its own).
        """
        dump = self._dump_path(name)
        content = _read(dump)  # none: the command replaced the shell (exec) or its EXIT trap
        parsed = _parse(content)
        moved = False
        if parsed is not None:
            with self._lock:  # calls of one turn run side by side; the last one to end decides
                moved = self._adopt(*parsed, dump, move=move)
        if not moved:
            _remove(dump)
        self._drop_command(name)

    def _adopt(self, found: bytes, cwd: str, dump: Path, *, move: bool) -> bool:
        """Take a state over; returns whether its file is that of the session now."""
        # A command may have exported a key that it read from a file; no file of ours keeps it.
        state = self._redact(found.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        kept, cwd = cwd, cwd if move else self.cwd
        if state == self._state and cwd == self.cwd:
            return False
        as_it_is = state == found and cwd == kept
        if as_it_is:
            os.replace(dump, self._dir / "shell.state")
        else:
            self._write("shell.state", state + b"\0" + os.fsencode(cwd) + _END)
        self._state, self.cwd = state, cwd
        return as_it_is

    def _restorable(self, state: bytes) -> None:
        """Write what a command begins with, where it is not what stands there."""
        with self._lock:
            if state != self._written:
                self._write("shell.restore", state)
                self._written = state

    def _write(self, name: str, content: bytes) -> None:
        temporary = self._dir / f"{name}.new"
        _remove(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, self._dir / name)

    def forget(self) -> None:
        """Let the next command start as the first one did."""
        with self._lock:
            self._state, self.cwd, self._forgets = None, self.workspace, True

    def home_missing(self) -> str:
        """Return a sentence when the home of the commands does not exist, else "". A sandbox always makes one."""
        if self._enclosure.kind == "sandbox":
            return ""
        home = self._env.get("HOME", "")
        return f"HOME ({home}) does not exist." if home and not self._is_folder(home) else ""


def _remove(path: Path) -> None:
    """Remove what stands there; a directory is none of ours and goes too. Raises OSError."""
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        shutil.rmtree(path)


def _read(path: Path) -> bytes:
    """The content of a regular file, empty for anything else and for one that is too long; nobody else may read it
    from now on. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):  # a link is none of ours
            return b""
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _STATE_LIMIT:
            return b""
        if status.st_mode & 0o077:  # a command may have changed it
            os.fchmod(descriptor, 0o600)
        return os.read(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def _parse(content: bytes) -> tuple[bytes, str] | None:
    if not content.endswith(_END):
        return None
    state, _, cwd = content[: -len(_END)].rpartition(b"\0")
    path = os.fsdecode(cwd)
    return (state, path) if os.path.isabs(path) else None
