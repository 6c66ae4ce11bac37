"""The tools `read_file` and `write_file`, and the rules that every file tool keeps.

Paths are relative to the directory of the task's session. Files that hold the home's secrets are never touched. What a
task can reach at all is its environment's to say; whether it needs consent is decided where every tool is dispatched.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import anyio.to_thread
import msgspec
from msgspec import Meta

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.environment import Environment, Files, PathKind
from hermes.core.errors import ToolError
from hermes.core.tools import CallContext, Tool, ToolOutput, json_output
from hermes.tools.files_seen import Change, FilesSeen

__all__ = [
    "FileAccess",
    "ReadArguments",
    "WriteArguments",
    "conflicts",
    "decode_text",
    "read_file_tool",
    "write_file_tool",
]

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

    @property
    def _files(self) -> Files:
        return self.environment().files

    def real(self, path: str) -> str:
        """The file on this machine that `path` stands for, links followed (blocking). Raises ToolError."""
        return self._files.real(path)

    def denied(self, path: str) -> bool:
        """Whether `path` is, by whatever name, a file that holds secrets (blocking). Raises ToolError."""
        real = self.real(path)
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

    def kind(self, path: str) -> PathKind | None:
        """What `path` stands for, links followed; None for nothing (blocking). Raises ToolError."""
        try:
            mode = self._files.stat(path).st_mode
        except OSError:
            return None
        return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"

    def check(self, path: str) -> PathKind | None:
        """What `path` stands for, if a file may be there (blocking). Raises ToolError."""
        if self.denied(path):
            raise ToolError(f"{path} holds credentials or is another profile's, and is not available to tools.")
        kind = self.kind(path)
        if kind == "folder":
            raise ToolError(f"{path} is a directory; use search_files or terminal to look into it.")
        if kind == "other":
            raise ToolError(f"{path} is no regular file (a device, pipe or socket).")
        return kind

    def load(self, path: str, limit: int) -> bytes:
        """The bytes of a regular file (blocking). Raises OSError, and ToolError for what is longer or no file."""
        descriptor = self._files.open(path)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise ToolError(f"{path} is no regular file (a device, pipe or socket).")
        with open(descriptor, "rb") as file:
            if status.st_size > limit:
                raise ToolError(f"{path} has {status.st_size} bytes, more than {limit}; use head, tail or grep on it.")
            return file.read(limit)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file (blocking). Raises ToolError."""
        self.check(path)
        try:
            return self.load(path, MAX_BYTES)
        except FileNotFoundError:
            raise ToolError(f"There is no file {path}.{self._nearby(path)}") from None
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}.") from None

    def write(self, path: str, data: bytes) -> str:
        """Replace or make a file as a whole, keeping its mode (blocking); returns the file really written.

        Raises:
            ToolError: it cannot be written; then nothing of it has changed.
        """
        self.check(path)
        try:
            self._files.replace(path, data)
        except OSError as error:
            raise ToolError(f"{path} cannot be written: {error.strerror}. Nothing was changed.") from None
        return self.real(path)

    def scan(self, path: str) -> list[tuple[str, PathKind]]:
        """The names in a directory, sorted (blocking). Raises OSError, ToolError."""
        return self._files.scan(path)

    def _nearby(self, path: str) -> str:
        folder, name = os.path.split(path)
        try:
            names = [entry for entry, _ in self.scan(folder)[:5000]]
        except OSError:
            return f" The directory {folder} does not exist either."
        close = difflib.get_close_matches(name, names, n=3)
        return f" Near it: {', '.join(close)}." if close else ""


def conflicts(path: str, change: Change | None) -> tuple[tuple[str, str], ...]:
    """What a call says of a file that another task had changed."""
    return ((path, change.other),) if change is not None and change.other else ()


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
            access.seen.read(access.real(path))
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
            change = access.seen.conflict(access.real(path))
            created = access.kind(path) is None
            access.seen.wrote(access.write(path, data))
            answer: dict[str, Any] = {"path": path, "bytes_written": len(data), "created": created}
            if change is not None:
                answer["warning"] = f"{change.text} This write replaced it; read it again if that was not meant."
            return json_output(
                answer, preview=f"{len(data)} bytes", files_written=(path,), conflicts=conflicts(path, change)
            )

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
