"""A terminal session as state: the script that restores it around one command, and what the command left of it.

No shell waits between commands. Each is one shell that takes directory, exported variables and functions from a file
and writes them to another at its end. This module builds and reads; it starts nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from hermes.environments.process import CALL_KEY, DEPTH

__all__ = ["Session", "find_shell"]

#: A longer command does not fit into one argument of a program (128 KiB on Linux) and goes through a file.
_ARGUMENT_LIMIT = 100_000

# The dump is written by the shell itself, with builtins alone: no process is started for it. Directory and end mark
# follow the variables, so that half a dump is never taken for a whole one.
_DUMP = {
    "bash": "declare -px; declare -fp",
    "sh": "export -p",
}
_END = b"\0done"


def find_shell(path: str) -> tuple[str, str]:
    """Return (kind, absolute path) of the shell to use: bash, else sh. Raises FileNotFoundError."""
    for kind in ("bash", "sh"):
        found = shutil.which(kind, path=path) or (f"/bin/{kind}" if os.access(f"/bin/{kind}", os.X_OK) else None)
        if found:
            return kind, found
    raise FileNotFoundError(f"no bash and no sh on PATH ({path}): install one")


class Session:
    """State between the commands of one task, kept in `state_dir` so that another process can take it up.

    Methods are blocking but short: call them on a thread.
    """

    def __init__(
        self, state_dir: Path, workspace: str, env: Mapping[str, str], depth: int, redact: Callable[[str], str]
    ) -> None:
        self._redact = redact
        self.cwd = workspace
        self.workspace = workspace
        self._dir = state_dir
        self._env = dict(env)
        self._depth = depth
        self._kind = ""
        self._shell = ""
        self._state: bytes | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Find the shell and load what an earlier process left, once. Raises OSError, FileNotFoundError."""
        with self._lock:
            if not self._shell:
                self._load()

    def _load(self) -> None:
        self._kind, self._shell = find_shell(self._env["PATH"])
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            content = (self._dir / "shell.state").read_bytes()
        except FileNotFoundError:
            return
        for stale in self._dir.glob("*_*.state"):  # of commands that a lost process was running
            stale.unlink(missing_ok=True)
        parsed = _parse(content)
        if parsed is not None:
            self._state, self.cwd = parsed
            self._write("shell.restore", self._state)

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
        if os.path.isdir(wanted):
            return wanted, ()
        if cwd is not None:
            raise FileNotFoundError(f"there is no directory {cwd}: give one that exists or leave workdir out")
        if not os.path.isdir(self.workspace):
            raise FileNotFoundError(
                f"the workspace {self.workspace} no longer exists: it has to be made again before a command can run"
            )
        self.cwd = self.workspace
        return self.workspace, (f"The directory {wanted} no longer exists; the command ran in {self.workspace}.",)

    def script(self, command: str, key: str, name: str, cwd: str, *, keep: bool = True) -> list[str]:
        """Return the argument list that runs `command` in `cwd`, where the shell will have been started.

        `keep` has the state that the command leaves written to a file called `name`.
        """
        parts = []
        if keep:
            dump = (
                f"{{ HERMES_CWD=$PWD; unset {CALL_KEY} {DEPTH} SHLVL PWD; {_DUMP[self._kind]}; "
                f"printf '\\0%s\\0done' \"$HERMES_CWD\"; }} >{shlex.quote(str(self._dump_path(name)))} 2>/dev/null"
            )
            parts.append(f"trap {shlex.quote('set +eux; ' + dump)} EXIT")
        if self._state is not None:
            parts.append(f". {shlex.quote(str(self._dir / 'shell.restore'))} 2>/dev/null")
            parts.append(f"export PWD={shlex.quote(cwd)} {CALL_KEY}={shlex.quote(key)} {DEPTH}={self._depth}")
        if len(command) > _ARGUMENT_LIMIT // 4:
            path = self._dir / f"{name}.command"
            path.write_text(command, encoding="utf-8", errors="replace")
            parts.append(f". {shlex.quote(str(path))}")
        else:
            parts.append(f"eval {shlex.quote(command)}")
        options = ["--noprofile", "--norc"] if self._kind == "bash" else []
        return [self._shell, *options, "-c", "\n".join(parts), self._kind]

    def _dump_path(self, name: str) -> Path:
        return self._dir / f"{name}.state"

    def drop(self, name: str) -> None:
        """Forget what the command called `name` left (it was killed, or its end is of no interest). Raises OSError."""
        (self._dir / f"{name}.command").unlink(missing_ok=True)
        self._dump_path(name).unlink(missing_ok=True)

    def take(self, name: str, *, move: bool = True) -> None:
        """Adopt the state that the command called `name` left. Raises OSError.

        Without `move` the session stays in its directory (the command was given one of its own).
        """
        try:
            content = self._dump_path(name).read_bytes()
        except FileNotFoundError:  # the command replaced the shell (exec) or its EXIT trap
            content = b""
        self.drop(name)
        parsed = _parse(content)
        if parsed is not None:
            with self._lock:  # calls of one turn run side by side; the last one to end decides
                self._adopt(*parsed, move=move)

    def _adopt(self, state: bytes, cwd: str, *, move: bool) -> None:
        # A command may have exported a key that it read from a file; no file of ours keeps it.
        state = self._redact(state.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        cwd = cwd if move else self.cwd
        if state == self._state and cwd == self.cwd:
            return
        if state != self._state:
            self._write("shell.restore", state)
        self._write("shell.state", state + b"\0" + os.fsencode(cwd) + _END)
        self._state, self.cwd = state, cwd

    def _write(self, name: str, content: bytes) -> None:
        temporary = self._dir / f"{name}.new"
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        os.replace(temporary, self._dir / name)

    def home_missing(self) -> str:
        """Return a sentence when the home of the commands does not exist, else ""."""
        home = self._env.get("HOME", "")
        return f"HOME ({home}) does not exist." if home and not os.path.isdir(home) else ""


def _parse(content: bytes) -> tuple[bytes, str] | None:
    if not content.endswith(_END):
        return None
    state, _, cwd = content[: -len(_END)].rpartition(b"\0")
    path = os.fsdecode(cwd)
    return (state, path) if os.path.isabs(path) else None
