"""Guards that turn a quiet fault of a test into a loud one.

`LoopbackOnly` refuses connections and name lookups beyond this machine, `home_environment` tells which variables to set
and unset so that no real home or key is seen, `NonBlocking` fails a call that blocks the event loop, `new_threads`,
`new_tasks` and `OpenTransports` find what a test left behind. `hermes.testing.fixtures` wires them into pytest.

Commands that a test starts are processes of their own and deliberately not guarded.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = [
    "LoopbackOnly",
    "NetworkBlocked",
    "NonBlocking",
    "OpenTransports",
    "home_environment",
    "new_tasks",
    "new_threads",
]

#: Name lookups that stay on the machine. `.invalid` can exist nowhere, so a test may use it for "no such host".
LOCAL_NAMES = frozenset({"", "localhost", "ip6-localhost", "0.0.0.0", "::"})
#: Variables by which the environment of whoever runs the tests could reach them.
FOREIGN = re.compile(r"^(HERMES_.*|XDG_.*_HOME|.*_API_KEY|.*_BASE_URL|(HTTPS?|ALL|NO)_PROXY)$", re.IGNORECASE)
#: Threads that live as long as the loop or process: idle workers of anyio and of the loop's executor.
POOLED = re.compile(r"^(AnyIO worker thread|asyncio_\d+|asyncio-waitpid-\d+|pytest_timeout)")


class NetworkBlocked(AssertionError):
    """A connection or name lookup beyond this machine was refused. No OSError, so that nothing retries it."""


class LoopbackOnly:
    """Refuses connections beyond this machine while active. One a process: an audit hook can never be removed.

    `attempts` holds the addresses refused since the guard was last entered, so that a test can be failed even though
    the code under test caught the error.
    """

    def __init__(self) -> None:
        self.attempts: list[str] = []
        self._active = 0
        sys.addaudithook(self._audit)

    def __enter__(self) -> LoopbackOnly:
        if self._active == 0:
            self.attempts = []
        self._active += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._active -= 1

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._active or not event.startswith("socket."):
            return
        if event in ("socket.connect", "socket.sendto"):
            sock, address = args
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                self._check(address[0])
        elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
            host = args[0]
            self._check(host.decode("ascii", "replace") if isinstance(host, bytes) else host or "")

    def _check(self, host: str) -> None:
        if is_local(host):
            return
        if host.rstrip(".").endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        self.attempts.append(host)
        raise NetworkBlocked(f"a test wanted to reach {host}: tests speak to 127.0.0.1 only, start a loopback server")


def is_local(host: str) -> bool:
    """Return whether a host name or address belongs to this machine."""
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def home_environment(environ: Mapping[str, str], home: Path) -> tuple[dict[str, str], list[str]]:
    """Return the variables to set and the names to unset, so that `home` is the only home that code can find."""
    wanted = {"HOME": str(home), "HERMES_HOME": str(home / ".hermes")}
    return wanted, [name for name in environ if FOREIGN.match(name) and name not in wanted]


class NonBlocking:
    """Fails calls by which code of the given packages blocks a running event loop (sleeps, file and socket I/O, locks).

    Looking at a path (`stat`, `getcwd` and the like) is allowed: it takes microseconds.

    Raises:
        ModuleNotFoundError: when blockbuster is not installed.
    """

    CHEAP = ("os.stat", "os.getcwd", "os.access", "os.readlink", "os.path.")

    def __init__(self, *packages: ModuleType | str) -> None:
        # edge: a package for tests only, which a user who does not use this guard need not install.
        from blockbuster import BlockBuster

        self._buster = BlockBuster(list(packages))
        self._functions = [
            function for name, function in self._buster.functions.items() if not name.startswith(self.CHEAP)
        ]
        for function in self._functions:
            # Starting a thread waits for its first breath; the interpreter leaves no other way.
            function.can_block_in("threading.py", {"start"})

    @contextmanager
    def active(self) -> Iterator[None]:
        """Watch for the length of a block."""
        try:
            for function in self._functions:
                function.activate()
            yield
        finally:
            for function in self._functions:
                function.deactivate()


def new_threads(before: Iterable[threading.Thread], patience: float = 10.0) -> list[threading.Thread]:
    """Return the threads that are not in `before`, after up to `patience` real seconds for those that are ending."""
    known = set(before)
    deadline = time.monotonic() + patience
    while True:
        left = [thread for thread in threading.enumerate() if thread not in known and not POOLED.match(thread.name)]
        if not left or time.monotonic() >= deadline:
            return left
        left[0].join(0.01)


async def new_tasks(before: Iterable[asyncio.Task[Any]], rounds: int = 20) -> list[asyncio.Task[Any]]:
    """Return the tasks of this loop that are not in `before`, after `rounds` turns of the loop for those ending."""
    known = {*before, asyncio.current_task()}
    left: list[asyncio.Task[Any]] = []
    for _ in range(rounds):
        left = [task for task in asyncio.all_tasks() - known if not _belongs_to_pytest(task)]
        if not left:
            break
        await asyncio.sleep(0)
    return sorted(left, key=lambda task: task.get_name())


class OpenTransports:
    """Knows the connections, pipes and processes of every event loop. One a process: it stays for good.

    What nobody closed is noticed by the interpreter too, but only when it collects its garbage: in whatever test runs
    by then.
    """

    def __init__(self) -> None:
        self._all: set[weakref.ref[asyncio.BaseTransport]] = set()
        real = asyncio.BaseTransport.__init__

        def begin(transport: asyncio.BaseTransport, *args: Any, **options: Any) -> None:
            real(transport, *args, **options)
            self._all.add(weakref.ref(transport, self._all.discard))

        asyncio.BaseTransport.__init__ = begin  # type: ignore[method-assign, assignment]

    def open(self) -> set[asyncio.BaseTransport]:
        """Return those that nobody has closed, and processes whose end nobody waited for."""
        known = (each() for each in self._all.copy())  # loops of other threads make more meanwhile
        return {transport for transport in known if transport is not None and not _is_closed(transport)}

    async def new(self, before: Iterable[asyncio.BaseTransport], rounds: int = 20) -> list[asyncio.BaseTransport]:
        """Return the open ones of this loop that are not in `before`, after `rounds` turns for those ending."""
        known = set(before)
        left: set[asyncio.BaseTransport] = set()
        for _ in range(rounds):
            left = self.open() - known
            if not left:
                break
            await asyncio.sleep(0)
        return sorted(left, key=repr)


def _is_closed(transport: asyncio.BaseTransport) -> bool:
    if not transport.is_closing():
        return False
    return not isinstance(transport, asyncio.SubprocessTransport) or transport.get_returncode() is not None


def _belongs_to_pytest(task: asyncio.Task[Any]) -> bool:
    """Return whether a task is the one in which anyio's plugin calls tests and fixtures."""
    return getattr(task.get_coro(), "__qualname__", "").startswith("TestRunner.")
