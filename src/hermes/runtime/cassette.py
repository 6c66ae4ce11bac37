"""The cassette: a file with every reply of a model and every result of a tool of whole trees of tasks.

JSON lines. The first is the header; each other one is a task, a reply, a call or the end of a task. Tasks are named by
their place in the tree and never by their ids, which are new in every run: a root by the digest of its goal, a child by
its parent, the round and the call that made it, and its place among those of that call. `seq` and `asked` number what
happened in one process in the order in which it happened; a tree is of one process, whichever else are in the file.

A file is written beside its place and put there whole, at the end. This module knows the format; what is kept and given
again when is decided in `recording.py` and `replaying.py`.
"""

from __future__ import annotations

import fcntl
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, TypeVar

import msgspec

from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError, UsageError
from hermes.core.model import ModelProfile
from hermes.core.tools import ToolOutput
from hermes.providers.recorded import KeptReply

__all__ = [
    "CallLine",
    "Cassette",
    "CassetteFile",
    "EndLine",
    "Header",
    "Line",
    "RemarkLine",
    "ReplyLine",
    "RequestShape",
    "TaskLine",
    "open_part",
    "part_of",
    "read_cassette",
]

FORMAT, VERSION = "hermes-cassette", 1


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="cassette"):
    """The first line. `model` and `provider` are those of the conversation, `recorded_at` seconds since the epoch."""

    format: str = FORMAT
    version: int = VERSION
    recorded_at: float = 0.0
    model: str = ""
    provider: str = ""
    profile: ModelProfile = ModelProfile()


class TaskLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="task"):
    """A task that got its model: `choice` is the name it was asked by, `model` the one that answers to it."""

    task: str
    id: str
    kind: str
    goal: str = ""
    group: str = ""
    workspace: str = ""
    choice: str = ""
    model: str = ""
    profile: ModelProfile = ModelProfile()


class RequestShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is compared of a request. `system` (a digest) and `tools` (names) stand only where they changed; `kept`
    messages are those of the task's request before, `new` says what follows them."""

    model: str
    system: str | None = None
    tools: tuple[str, ...] | None = None
    effort: str = ""
    kept: int = 0
    new: tuple[str, ...] = ()


class ReplyLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="reply"):
    """What came of request number `turn` of a task, side calls counted."""

    task: str
    turn: int
    asked: int
    seq: int
    at: float
    request: RequestShape
    reply: KeptReply


class CallLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call"):
    """What came of call `index` of the `round`-th reply with calls. `live` calls are made again when it is replayed."""

    task: str
    round: int
    index: int
    tool: str
    asked: int
    seq: int
    at: float
    seconds: float = 0.0
    output: ToolOutput | None = None
    error: str | None = None
    cut: bool = False
    live: bool = False


class RemarkLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="remark"):
    """What a task was told of a background command, or of its cards, before its request number `turn`."""

    task: str
    turn: int
    text: str
    kind: str = "process"


class EndLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="end"):
    """The end of a task."""

    task: str
    seq: int
    state: str = ""


Line = Header | TaskLine | ReplyLine | CallLine | RemarkLine | EndLine
_decoder = msgspec.json.Decoder(Line)


_Entry = TypeVar("_Entry", "ReplyLine", "CallLine")


class _Source:
    """The file of a cassette, open for as long as somebody holds this, and where in it replies and calls stand."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._places: dict[tuple[str | int, ...], tuple[int, int]] = {}

    def __del__(self) -> None:
        os.close(self._descriptor)

    def note(self, line: ReplyLine | CallLine, offset: int, length: int) -> None:
        self._places[_key(line)] = offset, length

    def whole(self, line: _Entry) -> _Entry:
        offset, length = self._places[_key(line)]
        try:
            found = _decoder.decode(os.pread(self._descriptor, length, offset))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            found = None
        if type(found) is not type(line) or _key(found) != _key(line):
            raise OperatorError(f"the recording {self._path} was changed while it was replayed. Replay it once more.")
        return found


class Cassette(msgspec.Struct, frozen=True, kw_only=True):
    """A cassette that was read. What replies and calls brought stays in the file, where all who replay it share it."""

    path: Path
    source: _Source
    header: Header
    tasks: dict[str, TaskLine]
    replies: dict[tuple[str, int], ReplyLine]
    calls: dict[tuple[str, int, int], CallLine]
    ends: dict[str, EndLine]
    remarks: dict[tuple[str, int], list[RemarkLine]]

    def whole(self, line: _Entry) -> _Entry:
        """A reply or a call of this cassette with what it brought.

        Raises:
            OperatorError: the file is not what it was when it was read.
        """
        return self.source.whole(line)


def _key(line: ReplyLine | CallLine) -> tuple[str | int, ...]:
    return (line.task, line.turn) if isinstance(line, ReplyLine) else (line.task, line.round, line.index)


def read_cassette(path: Path) -> Cassette:
    """Read a cassette.

    Raises:
        UsageError: the file cannot be read, is none, is of another version, or has a line that is none.
    """
    try:
        with path.open("rb") as file:
            if file.seekable():
                return _read(path, file)
            with tempfile.TemporaryFile() as copy:  # what comes through a pipe can be read once
                shutil.copyfileobj(file, copy)
                copy.seek(0)
                return _read(path, copy)
    except OSError as error:
        raise UsageError(f"the recording {path} cannot be read: {error.strerror}.") from None


def _read(path: Path, file: IO[bytes]) -> Cassette:
    first = file.readline()
    header = _line(path, 1, first)
    if not isinstance(header, Header) or header.format != FORMAT:
        raise UsageError(f"{path} is no recording: its first line is not the head of one. `--record FILE` makes one.")
    if header.version != VERSION:
        raise UsageError(
            f"the recording {path} has format version {header.version}, this Hermes reads {VERSION}. Record it anew."
        )
    source = _Source(path, os.dup(file.fileno()))
    found = Cassette(path=path, source=source, header=header, tasks={}, replies={}, calls={}, ends={}, remarks={})
    offset = len(first)
    for number, text in enumerate(file, 2):
        if not text.isspace():
            line = _line(path, number, text)
            if isinstance(line, ReplyLine):
                source.note(line, offset, len(text))
                line = msgspec.structs.replace(line, reply=KeptReply(cut=line.reply.cut))
            elif isinstance(line, CallLine):
                source.note(line, offset, len(text))
                line = msgspec.structs.replace(line, output=None)
            _add(found, line, number)
        offset += len(text)
    return found


def _line(path: Path, number: int, text: bytes) -> Line:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if number == 1:
            raise UsageError(
                f"{path} is no recording: its first line is not the head of one. `--record FILE` makes one."
            ) from None
        if not text.endswith(b"\n"):
            raise UsageError(
                f"{path}:{number}: the last line is cut off: the recording was stopped while it was written. Delete "
                "this line to replay what stands before it, or record it anew."
            ) from None
        raise UsageError(f"{path}:{number}: this line is not one of a recording: {error}.") from None


def _add(cassette: Cassette, line: Line, number: int) -> None:
    if isinstance(line, Header):
        raise UsageError(f"{cassette.path}:{number}: a second head. Two recordings cannot stand in one file.")
    if isinstance(line, RemarkLine):
        cassette.remarks.setdefault((line.task, line.turn), []).append(line)
        return
    if isinstance(line, TaskLine):
        new = cassette.tasks.setdefault(line.task, line) is line
    elif isinstance(line, ReplyLine):
        new = cassette.replies.setdefault((line.task, line.turn), line) is line
    elif isinstance(line, CallLine):
        new = cassette.calls.setdefault((line.task, line.round, line.index), line) is line
    else:
        new = cassette.ends.setdefault(line.task, line) is line
    if not new:
        raise UsageError(f"{cassette.path}:{number}: this entry of {line.task} stands there twice. Record it anew.")


def part_of(path: Path) -> Path:
    """Where a cassette stands while it is written."""
    return path.with_name(path.name + ".part")


def open_part(path: Path) -> BinaryIO:
    """Open the empty file that becomes the cassette `path`, locked for as long as it is open.

    Raises:
        UsageError: there can be no such file, or another process is recording to it.
    """
    try:
        if path.is_dir():
            raise UsageError(f"--record {path} is a folder. Name a file.")
        descriptor = os.open(part_of(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"the recording {path} cannot be written: {error.strerror}.") from None
    file = os.fdopen(descriptor, "wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UsageError(f"another process is recording to {path}. Name another file.") from None
    file.truncate(0)  # left by a process that was killed
    return file


class CassetteFile:
    """A cassette that is being written, by a thread of its own. `redact` cleans each line.

    The lines go to `<path>.part`; only `close` puts them in the place of what was there.

    Raises:
        UsageError: there can be no such file, or another process is recording to it.
    """

    def __init__(self, path: Path, redact: Callable[[bytes], bytes]) -> None:
        self.path = path
        self._part = part_of(path)
        self._redact = redact
        self._file = open_part(path)
        self._lines: queue.SimpleQueue[Line | threading.Event | None] = queue.SimpleQueue()
        self._trouble: OSError | None = None
        self._thread = threading.Thread(target=self._write, name="cassette", daemon=True)
        self._thread.start()

    def put(self, line: Line) -> None:
        """Write a line soon; never waits."""
        self._lines.put(line)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                if isinstance(line, threading.Event):
                    self._file.flush()
                elif self._trouble is None:
                    self._file.write(self._redact(_encoded(line)) + b"\n")
                    if self._lines.empty():
                        self._file.flush()
            except OSError as error:
                self._trouble = self._trouble or error
            if isinstance(line, threading.Event):
                line.set()

    def settle(self) -> None:
        """Wait until every line so far is where the end of this process does not reach it. Blocks.

        Raises:
            OperatorError: the disk did not take it.
        """
        if self._file.closed:
            return
        written = threading.Event()
        self._lines.put(written)
        while not written.wait(1.0) and self._thread.is_alive():
            pass  # a slow disk
        if self._trouble is not None:
            raise self._refused(self._trouble)

    def _refused(self, error: OSError) -> OperatorError:
        return OperatorError(
            f"the recording {self.path} could not be written: {error.strerror}. What there is stands in {self._part}."
        )

    def close(self) -> None:
        """Write what is left and put the file into its place. Blocks. Closing twice changes nothing.

        Raises:
            OperatorError: the disk did not take it; an older recording stands as it was.
        """
        if self._file.closed:
            return
        self._lines.put(None)
        self._thread.join()
        try:
            if self._trouble is not None:
                raise self._trouble
            self._file.flush()
            os.fsync(self._file.fileno())
            self._part.replace(self.path)
        except OSError as error:
            raise self._refused(error) from None
        finally:
            with suppress(OSError):  # what it could still say has been said
                self._file.close()


def _encoded(line: Line) -> bytes:
    try:
        return encode_json(line)
    except TypeError:
        # What a tool keeps for programs need not be JSON; what the model reads always is.
        assert isinstance(line, CallLine) and line.output is not None
        return encode_json(msgspec.structs.replace(line, output=msgspec.structs.replace(line.output, details=None)))
