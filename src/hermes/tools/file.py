"""The tools `read_file` and `write_file`, and the rules that every file tool keeps.

Paths are relative to the directory of the task's session. Files that hold the home's secrets are never touched. It
judges no path outside the workspace: that is decided where every tool is dispatched.
"""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import anyio.to_thread
import msgspec
from msgspec import Meta

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.environment import Environment
from hermes.core.errors import ToolError
from hermes.core.tools import CallContext, Tool, ToolOutput, json_output
from hermes.tools.files_seen import FilesSeen

__all__ = ["FileAccess", "ReadArguments", "WriteArguments", "decode_text", "read_file_tool", "write_file_tool"]

T = TypeVar("T")

#: Largest file that is taken into memory, bytes.
MAX_BYTES = 50 * 1024 * 1024
_MAX_CHARACTERS = 100_000
_MAX_LINE = 2_000


class FileAccess:
    """Resolves, checks, reads and writes files for one task. Its methods that touch files are blocking."""

    def __init__(
        self,
        environment: Callable[[], Environment],
        denied: Iterable[str],
        seen: FilesSeen,
        hold: Hold = NO_HOLD,
    ) -> None:
        self._hold = hold
        self.environment = environment
        self.seen = seen
        self._denied = tuple(os.path.abspath(path) for path in denied)

    async def on_thread(self, work: Callable[[], T]) -> T:
        """Run blocking file work on a thread, while simulated time stands."""
        with held(self._hold):
            return await anyio.to_thread.run_sync(work)

    def resolve(self, path: str) -> str:
        """Return the absolute path. Raises ToolError for an empty one."""
        if not path.strip() or "\0" in path:
            raise ToolError(f"{path!r} is no path; give one.")
        return self.environment().resolve(path)

    def denied(self, path: str) -> bool:
        """Whether `path` is, by whatever name, a file that holds secrets (blocking)."""
        real = os.path.realpath(path)
        for secret in self._denied:
            closed = os.path.realpath(secret)
            if real == closed or real.startswith(closed + os.sep):
                return True
            try:
                if os.path.samefile(real, secret):
                    return True
            except OSError:  # one of the two does not exist, so they are not the same
                continue
        return False

    def check(self, path: str) -> str:
        """Return the file that `path` stands for, symlinks followed (blocking). Raises ToolError."""
        if self.denied(path):
            raise ToolError(f"{path} holds credentials and is not available to tools.")
        real = os.path.realpath(path)
        if os.path.isdir(real):
            raise ToolError(f"{path} is a directory; use search_files or terminal to look into it.")
        if os.path.exists(real) and not stat.S_ISREG(os.stat(real).st_mode):
            raise ToolError(f"{path} is no regular file (a device, pipe or socket).")
        return real

    def read(self, path: str) -> bytes:
        """Return the bytes of a file (blocking). Raises ToolError."""
        real = self.check(path)
        try:
            with open(real, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > MAX_BYTES:
                    raise ToolError(f"{path} has {size} bytes, more than {MAX_BYTES}; use head, tail or grep on it.")
                data = file.read(MAX_BYTES)
        except FileNotFoundError:
            raise ToolError(f"There is no file {path}.{_nearby(path)}") from None
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}.") from None
        return data

    def write(self, path: str, data: bytes) -> str:
        """Replace or make a file as a whole, keeping its mode (blocking); returns the file really written.

        Raises:
            ToolError: it cannot be written; then nothing of it has changed.
        """
        real = self.check(path)
        folder = os.path.dirname(real)
        temporary = ""
        try:
            os.makedirs(folder, exist_ok=True)
            mode = _mode_for(real)
            descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".hermes-write-")
            with open(descriptor, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), mode)
            os.replace(temporary, real)
        except OSError as error:
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)
            raise ToolError(f"{path} cannot be written: {error.strerror}. Nothing was changed.") from None
        return real


def _mode_for(path: str) -> int:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0o666 & ~_umask()
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "it is read-only", path)
    return stat.S_IMODE(status.st_mode)


def _umask() -> int:
    try:  # setting it in order to read it would be seen by other threads
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        return 0o022
    return 0o022


def _nearby(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder)[:5000]
    except OSError:
        return f" The directory {folder} does not exist either."
    close = difflib.get_close_matches(name, names, n=3)
    return f" Near it: {', '.join(close)}." if close else ""


def decode_text(data: bytes, path: str) -> str:
    """Return `data` as text. Raises ToolError if it is none, with what it is instead."""
    if b"\0" in data[:8192]:
        raise ToolError(
            f"{path} is a binary file of {len(data)} bytes; use terminal to look at it (file, xxd, strings)."
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{path} is no UTF-8 text (byte {data[error.start]:#04x} at {error.start}); convert it with iconv first."
        ) from None


class ReadArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `read_file`."""

    path: Annotated[str, Meta(description="The file, absolute or relative to the current directory.")]
    offset: Annotated[int, Meta(description="First line, from 1.", ge=1)] = 1
    limit: Annotated[int, Meta(description="Lines to return.", ge=1)] = 1000


class WriteArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `write_file`."""

    path: Annotated[str, Meta(description="The file, absolute or relative to the current directory.")]
    content: Annotated[str, Meta(description="The whole new content.")]


def read_file_tool(access: FileAccess) -> Tool:
    """Return `read_file` for one task."""

    async def run(arguments: ReadArguments, context: CallContext) -> ToolOutput:
        path = access.resolve(arguments.path)
        budget = max(4_000, min(_MAX_CHARACTERS, context.room() * 3))

        def work() -> ToolOutput:
            data = access.read(path)
            text = decode_text(data, path)
            access.seen.read(os.path.realpath(path))
            return _page(path, text, len(data), arguments, budget)

        return await access.on_thread(work)

    return Tool(
        name="read_file",
        description="Read a text file. Lines come as `number|text`; page through a long file with offset and limit.",
        arguments=ReadArguments,
        run=run,
        safe_to_repeat=True,
        describe=lambda arguments: str(arguments.get("path", "")),
    )


def _page(path: str, text: str, size: int, arguments: ReadArguments, budget: int) -> ToolOutput:
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    total = len(lines)
    first = arguments.offset
    if total and first > total:
        raise ToolError(f"{path} has {total} lines; there is no line {first}.")
    shown: list[str] = []
    used = 0
    for number, line in enumerate(lines[first - 1 : first - 1 + arguments.limit], start=first):
        line = line.removesuffix("\r")
        if len(line) > _MAX_LINE:
            line = f"{line[:_MAX_LINE]} [… {len(line) - _MAX_LINE} characters of this line cut]"
        used += len(line) + 8
        if used > budget and shown:
            break
        shown.append(f"{number}|{line}")
    last = first + len(shown) - 1
    answer: dict[str, Any] = {"content": "\n".join(shown), "total_lines": total, "file_size": size}
    if last < total:
        answer["truncated"] = True
        answer["hint"] = f"Lines {first} to {last} of {total}; go on with offset={last + 1}."
    return json_output(answer, preview=f"{len(shown)} of {total} lines", files_read=(path,))


def write_file_tool(access: FileAccess) -> Tool:
    """Return `write_file` for one task."""

    async def run(arguments: WriteArguments, _context: CallContext) -> ToolOutput:
        path = access.resolve(arguments.path)
        data = arguments.content.encode("utf-8", "replace")

        def work() -> ToolOutput:
            warning = access.seen.conflict(os.path.realpath(path))
            created = not os.path.exists(path)
            access.seen.wrote(access.write(path, data))
            answer: dict[str, Any] = {"path": path, "bytes_written": len(data), "created": created}
            if warning:
                answer["warning"] = f"{warning} This write replaced it; read it again if that was not meant."
            return json_output(answer, preview=f"{len(data)} bytes", files_written=(path,))

        return await access.on_thread(work)

    return Tool(
        name="write_file",
        description=(
            "Write a whole file; missing directories are made and an existing file is replaced. To change a part of a "
            "file use patch."
        ),
        arguments=WriteArguments,
        run=run,
        safe_to_repeat=True,
        describe=lambda arguments: str(arguments.get("path", "")),
    )
