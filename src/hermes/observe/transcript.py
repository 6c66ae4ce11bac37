"""Live transcripts: one readable file a task that can be followed with `tail -f`, written from the events.

`<root>/<session id>/<task id>.log`, and `manifest.json` beside it with the tasks and how they stand. The listener only
queues; a thread formats, redacts and appends what has gathered. A full queue leaves lines out and says so in the file;
a disk that fails ends the writing with one message and never a task. The journal, not this, is what a run resumes from.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.events import Envelope, TaskAdopted, TaskEnded, TaskQueued, TaskStarted, TaskSuspended
from hermes.observe.transcript_text import TOLD, lines_of
from hermes.runtime.bus import Bus

__all__ = ["LIVE", "MANIFEST", "Transcripts", "transcribing"]

_log = logging.getLogger(__name__)

#: Where transcripts stand inside a home.
LIVE = ("cache", "delegation", "live")
MANIFEST = "manifest.json"
#: Events that may wait for the disk.
MOST_WAITING = 50_000
#: Seconds in which events gather between two writes, between two manifests, and for the last write of all.
GATHER, REFRESH, LAST = 0.2, 1.0, 3.0


class Transcripts:
    """Writes the transcripts of one process. `rows` also those of batch rows, whose records stand elsewhere."""

    def __init__(
        self,
        root: Path,
        *,
        redact: Callable[[str], str],
        rows: bool = False,
        hold: Hold = NO_HOLD,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._files = _Files(root, redact)
        self._rows = rows
        self._hold = hold
        self._most = most_waiting
        self._waiting: deque[Envelope] = deque()
        self._left_out: dict[tuple[str, str], int] = {}
        self._untold: set[str] = set()
        self._changed = anyio.Event()
        self._writing = anyio.Lock()
        self._limiter = anyio.CapacityLimiter(1)
        self._off = False

    def path(self, session_id: str, task_id: str) -> Path:
        """The file of a task; it exists from its first lines on."""
        return self._files.path(session_id, task_id)

    def listen(self, envelope: Envelope) -> None:
        """Take an event. Never waits."""
        event = envelope.event
        if self._off or type(event) not in TOLD:
            return
        if not self._rows and self._is_row(envelope):
            return
        if len(self._waiting) >= self._most:
            key = (envelope.session_id, envelope.task_id)
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return
        self._waiting.append(envelope)
        self._changed.set()

    def _is_row(self, envelope: Envelope) -> bool:
        event = envelope.event
        if isinstance(event, TaskQueued) and (event.kind == "row" or envelope.parent_id in self._untold):
            self._untold.add(envelope.task_id)
        if envelope.task_id not in self._untold:
            return False
        if isinstance(event, TaskEnded):
            self._untold.discard(envelope.task_id)
        return True

    async def run(self) -> None:
        """Write what comes, until cancelled or the disk fails."""
        while not self._off:
            if self._files.stale:
                with anyio.move_on_after(REFRESH):
                    await self._changed.wait()
            else:
                await self._changed.wait()
            self._changed = anyio.Event()
            await self._write(last=not self._waiting)
            await anyio.sleep(GATHER)

    async def finish(self) -> None:
        """Write what still waits."""
        if not self._off:
            await self._write(last=True)

    async def _write(self, *, last: bool) -> None:
        async with self._writing:
            batch, left_out = tuple(self._waiting), self._left_out
            self._waiting.clear()
            self._left_out = {}
            try:
                with held(self._hold):
                    await anyio.to_thread.run_sync(
                        self._files.write, batch, left_out, last, limiter=self._limiter, abandon_on_cancel=True
                    )
            except OSError as error:
                self._off = True
                self._waiting.clear()
                _log.warning(
                    "no more transcripts are written: %s: %s; the journal is not affected",
                    error.filename or self._files.root,
                    error.strerror or error,
                )


class _Files:
    """What runs on the writing thread."""

    def __init__(self, root: Path, redact: Callable[[str], str]) -> None:
        self.root = root
        self.stale: set[str] = set()  # sessions whose manifest is older than what is known
        self._redact = redact
        self._sessions: dict[str, dict[str, dict[str, Any]]] = {}
        self._quiet = 0  # writes since the manifests were last written

    def path(self, session_id: str, task_id: str) -> Path:
        return self.root / session_id / f"{task_id}.log"

    def write(self, batch: Iterable[Envelope], left_out: dict[tuple[str, str], int], last: bool) -> None:
        texts: dict[tuple[str, str], list[str]] = {}
        for envelope in batch:
            texts.setdefault((envelope.session_id, envelope.task_id), []).append(lines_of(envelope))
            self._note(envelope)
        for key, count in left_out.items():
            texts.setdefault(key, []).append(f"    … {count} events left out: the disk was too slow\n")
        for (session_id, task_id), parts in texts.items():
            text = "".join(parts)
            if text:
                _append(self.path(session_id, task_id), self._redact(text))
        self._quiet += 1
        if last or self._quiet * GATHER >= REFRESH:
            self._quiet = 0
            for session_id in tuple(self.stale):
                self._manifest(session_id)
            self.stale.clear()

    def _note(self, envelope: Envelope) -> None:
        """Keep how a task stands, for the manifest."""
        event = envelope.event
        if not isinstance(event, (TaskQueued, TaskStarted, TaskSuspended, TaskAdopted, TaskEnded)):
            return
        tasks = self._sessions.get(envelope.session_id)
        if tasks is None:
            tasks = self._sessions[envelope.session_id] = _read(self.root / envelope.session_id / MANIFEST)
        row = tasks.setdefault(envelope.task_id, {"id": envelope.task_id, "parent": envelope.parent_id})
        row |= {"log": f"{envelope.task_id}.log", "updated_at": envelope.at}
        if isinstance(event, TaskQueued):
            row |= {"goal": self._redact(event.goal)[:500], "kind": event.kind, "status": "queued"}
        elif isinstance(event, TaskStarted):
            row |= {"status": "running", "model": event.model, "attempt": event.attempt}
        elif isinstance(event, TaskEnded):
            row |= {"status": event.status, "exit_reason": event.exit_reason, "elapsed": event.elapsed}
        else:
            row["status"] = "suspended" if isinstance(event, TaskSuspended) else "running"
        self.stale.add(envelope.session_id)

    def _manifest(self, session_id: str) -> None:
        path = self.root / session_id / MANIFEST
        data = {"schema": 1, "session_id": session_id, "tasks": list(self._sessions[session_id].values())}
        temporary = path.with_name(f".{MANIFEST}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        _append(temporary, json.dumps(data, ensure_ascii=True, indent=1) + "\n")
        os.replace(temporary, path)


def _append(path: Path, text: str) -> None:
    """Append to a file that only its owner may read, making its folder where missing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        file.write(text.encode("utf-8", "replace"))


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The tasks of a manifest that an earlier process wrote; none where it cannot be read."""
    try:
        tasks = json.loads(path.read_bytes())["tasks"]
        return {task["id"]: task for task in tasks}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


@asynccontextmanager
async def transcribing(transcripts: Transcripts, bus: Bus) -> AsyncIterator[None]:
    """Write transcripts of what passes the bus during a block; the last lines are waited for, a few seconds at most."""
    subscription = bus.subscribe(transcripts.listen, types=TOLD)
    async with anyio.create_task_group() as group:
        group.start_soon(transcripts.run)
        try:
            yield
        finally:
            subscription.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(LAST):
                await transcripts.finish()
            group.cancel_scope.cancel()
