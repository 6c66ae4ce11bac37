"""Background processes of one task: started once, looked at by id, ended with the task at the latest.

Nothing waits for them: the event loop reads their output. Who ended a process stands in its `reason`, and whoever asked
to be told is told once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property

import anyio
import anyio.to_thread

from hermes.core.clock import Hold, held
from hermes.core.environment import OnProcess, ProcessInfo, ProcessOutput
from hermes.core.errors import ToolError
from hermes.core.ids import random_hex
from hermes.environments.pump import Pump

__all__ = ["BackgroundProcesses"]

#: Lines of output that stand in the notice of an end.
TAIL = 20


class _Entry:
    def __init__(self, process_id: str, command: str, pump: Pump, notify: bool) -> None:
        self.process_id = process_id
        self.command = command
        self.pump = pump
        self.notify = notify
        self.reason = ""
        self.timer: asyncio.TimerHandle | None = None
        self.ended = asyncio.Event()
        self.ending: asyncio.Task[None] | None = None


class BackgroundProcesses:
    """The processes of one task. `limit` is seconds one may live (None: no end), `grace` those after TERM."""

    def __init__(
        self,
        limit: float | None,
        grace: float,
        hold: Hold,
        on_ended: OnProcess,
        ids: Callable[[int], str] = random_hex,
    ) -> None:
        self._limit = limit
        self._grace = grace
        self._hold = hold
        self._on_ended = on_ended
        self._ids = ids
        self._entries: dict[str, _Entry] = {}

    @cached_property
    def _threads(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(64)

    @property
    def any(self) -> bool:
        """Whether a process was ever taken in."""
        return bool(self._entries)

    def add(self, command: str, pump: Pump, *, notify: bool = False) -> ProcessInfo:
        """Take a started process in and begin to read it."""
        entry = _Entry(f"proc_{self._ids(8)}", command, pump, notify)
        self._entries[entry.process_id] = entry
        pump.begin(lambda: self._on_done(entry))
        if self._limit is not None:
            entry.timer = asyncio.get_running_loop().call_later(
                self._limit, self._stop, entry, f"policy: it ran longer than {self._limit:g} s"
            )
        return self._info(entry)

    def _on_done(self, entry: _Entry) -> None:
        if not entry.pump.group.exited.is_set():
            size = entry.pump.output.limits.disk
            self._stop(entry, f"policy: {entry.pump.passed or f'it printed more than {size} bytes'}")
        elif entry.ending is None:
            entry.ending = asyncio.get_running_loop().create_task(self._end(entry))

    def _stop(self, entry: _Entry, reason: str) -> None:
        if entry.ending is None:
            entry.reason = reason
            entry.ending = asyncio.get_running_loop().create_task(self._end(entry))

    async def _end(self, entry: _Entry) -> None:
        """End what is left of the group, take the rest of its output and tell whoever wants to know."""
        group = entry.pump.group
        if entry.timer is not None:
            entry.timer.cancel()
        try:
            with held(self._hold):
                await anyio.to_thread.run_sync(group.end, self._grace, limiter=self._threads)
                await group.exited.wait()
                await entry.pump.finish()
                if entry.pump.output.spilled:
                    await anyio.to_thread.run_sync(entry.pump.close_file, limiter=self._threads)
        finally:
            group.forget()
            entry.ended.set()
        self._on_ended(self._info(entry))

    def _info(self, entry: _Entry) -> ProcessInfo:
        group = entry.pump.group
        exited = group.exited.is_set()
        return ProcessInfo(
            process_id=entry.process_id,
            command=entry.command,
            state="running" if not exited else "killed" if entry.reason else "exited",
            pid=group.pid,
            elapsed=group.elapsed,
            exit_code=group.exit_code if exited else None,
            limit=self._limit,
            reason=entry.reason,
            notify=entry.notify and not entry.ended.is_set(),
            tail=entry.pump.output.lines(None, TAIL)[0] if entry.ended.is_set() else "",
        )

    def _entry(self, process_id: str) -> _Entry:
        entry = self._entries.get(process_id)
        if entry is None:
            known = ", ".join(self._entries) or "none"
            raise ToolError(f"There is no background process {process_id!r} in this task (known: {known}).")
        return entry

    def list(self) -> tuple[ProcessInfo, ...]:
        """All of them, oldest first."""
        return tuple(self._info(entry) for entry in self._entries.values())

    def poll(self, process_id: str) -> ProcessOutput:
        """State and the output since the last poll. Raises ToolError."""
        entry = self._entry(process_id)
        text, cut = entry.pump.output.new_text()
        return self._output(entry, text, cut)

    def log(self, process_id: str, offset: int | None, limit: int) -> ProcessOutput:
        """`limit` lines from `offset` on, or the last ones. Raises ToolError."""
        entry = self._entry(process_id)
        text, first, total, cut = entry.pump.output.lines(offset, max(1, limit))
        return self._output(entry, text, cut, first, total)

    def _output(self, entry: _Entry, text: str, cut: bool, first: int = 1, total: int = 0) -> ProcessOutput:
        output = entry.pump.output
        return ProcessOutput(
            info=self._info(entry),
            text=text,
            first=first,
            total_lines=total or output.newlines,
            truncated=cut,
            output_path=str(output.path) if output.spilled else "",
        )

    async def wait(self, process_id: str, timeout: float) -> ProcessOutput:
        """Wait at most `timeout` seconds for the end. Raises ToolError."""
        entry = self._entry(process_id)
        with anyio.move_on_after(timeout):
            await entry.ended.wait()
        return self.poll(process_id)

    async def kill(self, process_id: str, reason: str) -> ProcessInfo:
        """End it with its group; an ended one is left. Raises ToolError."""
        entry = self._entry(process_id)
        self._stop(entry, reason)
        await entry.ended.wait()
        return self._info(entry)

    async def close(self) -> tuple[ProcessInfo, ...]:
        """End all; returns those that were still running. To be awaited shielded."""
        for entry in self._entries.values():
            self._stop(entry, "the task ended")
        for entry in self._entries.values():
            await entry.ended.wait()
        return tuple(self._info(entry) for entry in self._entries.values() if entry.reason == "the task ended")
