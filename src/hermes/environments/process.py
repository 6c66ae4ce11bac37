"""One process group: started in a session of its own, watched by the event loop, ended as a whole.

The leader's output goes through one pipe. Nothing here knows what a terminal session is or what is done with output.
Ending a group waits in a thread on real time, so that it also works while a simulated clock stands.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hermes.environments.kernel_files import beginning

__all__ = [
    "CALL_KEY",
    "DEPTH",
    "ProcessGroup",
    "Spawned",
    "end_all",
    "end_escaped",
    "end_leftovers",
    "group_members",
    "parent_of",
    "processes_of_call",
    "processes_with",
    "running_pids",
    "spawn",
    "start_time",
]

#: Variable that carries the key of the call that a process belongs to.
CALL_KEY = "HERMES_CALL_KEY"
#: Variable that carries how deep in the tree the task stands.
DEPTH = "HERMES_DEPTH"

_CHUNK = 65536
#: Seconds that what was killed may take to go: on a busy machine it waits for its turn on a processor.
_KILLED_WITHIN = 5.0


class Spawned(NamedTuple):
    """A process as it comes from the thread that started it, with the read end of its output."""

    popen: subprocess.Popen[bytes]
    read_fd: int
    started: str
    begun: float


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, handed: int | None = None) -> Spawned:
    """Start `argv` in a session of its own (blocking). The descriptor `handed` is the process's alone afterwards.

    Raises OSError.
    """
    try:
        return _spawn(argv, env, cwd, () if handed is None else (handed,))
    finally:
        if handed is not None:
            os.close(handed)


def _spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, handed: Sequence[int]) -> Spawned:
    begun = time.monotonic()
    read_fd, write_fd = os.pipe()
    try:
        os.set_blocking(read_fd, False)
        popen = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=write_fd,
            stderr=write_fd,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            pass_fds=handed,
        )
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
    return Spawned(popen, read_fd, start_time(popen.pid), begun)


class ProcessGroup:
    """A started command. `feed` gets its output on the event loop; `exited` and `eof` are set there too.

    `end_inside` ends what signals to the group do not reach, where there is such; it may block.
    """

    def __init__(self, spawned: Spawned, end_inside: Callable[[], None] | None = None) -> None:
        popen, read_fd, self.started, self.begun = spawned
        self._end_inside = end_inside if end_inside is not None else _nothing
        self.pid = popen.pid
        self.ended: float | None = None
        self.exited = asyncio.Event()
        self.eof = asyncio.Event()
        self._popen = popen
        self._fd: int | None = read_fd
        self._pidfd: int | None = None
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._feed: Callable[[bytes], bool] = _discard
        self._on_end: Callable[[], None] = _nothing
        self._reading = False

    @property
    def exit_code(self) -> int | None:
        """The leader's exit code, 128 + N after signal N, None while it runs."""
        code = self._popen.returncode
        return code if code is None or code >= 0 else 128 - code

    @property
    def elapsed(self) -> float:
        """Seconds since the start, up to the end."""
        return (self.ended if self.ended is not None else time.monotonic()) - self.begun

    def watch(self, feed: Callable[[bytes], bool], on_end: Callable[[], None]) -> None:
        """Begin reading. `feed` returns False to pause; `resume` goes on. `on_end` is told that the leader is gone."""
        self._feed, self._on_end = feed, on_end
        self.resume()
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or too old
            threading.Thread(target=self._wait_on_thread, name=f"wait-{self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_exit)

    def _wait_on_thread(self) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        self._reap()
        self._stop_watching()
        if self.ended is None:
            self.ended = time.monotonic()
        self.exited.set()
        self._on_end()

    def _reap(self) -> bool:
        with self._lock:
            return self._popen.poll() is not None

    def resume(self) -> None:
        """Read on after a pause."""
        if self._fd is not None and not self._reading:
            self._loop.add_reader(self._fd, self._on_output)
            self._reading = True

    def _pause(self) -> None:
        if self._fd is not None and self._reading:
            self._loop.remove_reader(self._fd)
            self._reading = False

    def _on_output(self) -> None:
        if self._fd is None:
            return
        try:
            data = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.stop_reading()
        elif not self._feed(data):
            self._pause()

    def drain(self) -> None:
        """Read what is in the pipe now, without waiting; a writer that never stops is left after a megabyte."""
        for _ in range(16):
            if self._fd is None:
                return
            try:
                data = os.read(self._fd, _CHUNK)
            except (BlockingIOError, InterruptedError):
                return
            if not data:
                self.stop_reading()
                return
            self._feed(data)

    def wait_for_output(self, seconds: float) -> None:
        """Wait on a thread, in real time, until there is something to read or the pipe is closed."""
        fd = self._fd
        if fd is not None:
            poller = select.poll()
            poller.register(fd, select.POLLIN | select.POLLHUP)
            poller.poll(seconds * 1000)

    def discard_output(self) -> None:
        """Go on reading without keeping anything, so that a process left behind is not killed by a closed pipe."""
        self._feed = _discard
        self.resume()

    def stop_reading(self) -> None:
        """Close our end of the pipe."""
        self._pause()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self.eof.set()

    def forget(self) -> None:
        """Give every descriptor back. The process must have been ended before."""
        self.stop_reading()
        self._stop_watching()

    def _stop_watching(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def group_exists(self) -> bool:
        """Whether the group has any member, dead ones that nobody has reaped included. Cheap."""
        return _group_exists(self.pid)

    def survivors(self, patience: float = 0.0) -> bool:
        """Whether anything of the group still runs `patience` seconds after the leader was reaped (blocking)."""
        return not self._gone_within(patience)

    def end(self, grace: float = 2.0) -> bool:
        """End the whole group (blocking: call it on a thread): TERM, `grace` seconds, KILL, bounded wait.

        Returns whether nothing of it is left.
        """
        if not self._alive():
            return True
        self._end_inside()
        _signal_group(self.pid, signal.SIGTERM)
        if self._gone_within(grace):
            return True
        _signal_group(self.pid, signal.SIGKILL)
        return self._gone_within(_KILLED_WITHIN)

    def _alive(self) -> bool:
        return not self._reap() or (_group_exists(self.pid) and bool(group_members(self.pid)))

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        pause = 0.002
        while self._alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
        return True


def _discard(_data: bytes) -> bool:
    return True


def _nothing() -> None:
    return


def _group_exists(pgid: int) -> bool:
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _signal_group(pgid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, number)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on, empty where there is none."""
    try:
        return beginning(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()
    except OSError:
        return []


def start_time(pid: int) -> str:
    """Return when a process started, in a form that only compares for equality; "" where it cannot be known."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 else ""


def parent_of(pid: int) -> int:
    """The process that started another; 0 where it cannot be known."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def running_pids() -> list[int]:
    """All processes that are seen from here; none where there is no /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def group_members(pgid: int) -> list[int]:
    """Living processes of a group. Without /proc: the group's own id while the group exists."""
    pids = running_pids()
    if not pids:
        return [pgid] if _group_exists(pgid) else []
    members = []
    for pid in pids:
        fields = _stat(pid)
        if len(fields) > 2 and fields[2] == str(pgid) and fields[0] not in "ZX":
            members.append(pid)
    return members


def processes_of_call(prefix: str) -> list[int]:
    """Living processes whose environment says that they belong to a call key beginning with `prefix`."""
    return processes_with(CALL_KEY, prefix)


def processes_with(name: str, prefix: str) -> list[int]:
    """Living processes in whose environment the variable `name` begins with `prefix`; this process is left out."""
    needle = b"\0" + name.encode() + b"=" + prefix.encode()
    found = []
    for pid in running_pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = b"\0" + file.read()
        except OSError:  # another user's, or gone
            continue
        if needle in environ and pid != os.getpid():
            found.append(pid)
    return found


def end_escaped(prefix: str) -> None:
    """Kill what left its group and still carries a call key beginning with `prefix` (blocking, bounded)."""
    deadline = time.monotonic() + _KILLED_WITHIN
    while (found := processes_of_call(prefix)) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def end_leftovers(call_key: str, pgid: int | None = None, started: str | None = None, grace: float = 2.0) -> int:
    """End what a lost process left of one call and return how many processes were signalled (blocking).

    The group is only signalled while its leader still is the process that was recorded or its members carry the call
    key: numbers are used again. Processes that left the group are found by the call key in their environment.
    """
    exact, inner = call_key + "\0", call_key + "."

    def remaining() -> set[int]:
        pids = {*processes_of_call(exact), *processes_of_call(inner)}
        if pgid is not None and started and start_time(pgid) == started:
            pids.update(group_members(pgid))
        return pids

    return end_all(remaining, grace)


def end_all(remaining: Callable[[], set[int]], grace: float = 2.0) -> int:
    """End processes and return how many were signalled (blocking): TERM, `grace` seconds, KILL, bounded wait.

    `remaining` finds those that are still there, and may find new ones.
    """
    seen: set[int] = set()
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED_WITHIN)):
        signalled: set[int] = set()
        deadline = time.monotonic() + seconds
        while True:
            targets = remaining()
            if not targets and seen:
                # A process that is just replacing its program shows no environment for a moment: look once more.
                time.sleep(0.02)
                targets = remaining()
            if not targets:
                return len(seen)
            seen |= targets
            for pid in targets - signalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            signalled |= targets
            if time.monotonic() >= deadline:
                break
            time.sleep(0.02)
    return len(seen)
