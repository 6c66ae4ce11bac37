"""Reaching tasks of other processes from a command, and the host of a home: asking it, and starting it where there is
none. Runs no task itself and needs no model."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from hermes.cli.options import Sources
from hermes.config import Home
from hermes.core.clock import SystemClock
from hermes.core.errors import OperatorError
from hermes.core.program import program_path
from hermes.credentials.redact import Redactor
from hermes.environments.process import CALL_KEY, DEPTH
from hermes.runtime.finding import find_session
from hermes.runtime.moving import ANSWERS, have_let_go, offer
from hermes.runtime.remote import Remote
from hermes.runtime.rows import stored_spec
from hermes.store.hosting import HOST, host_alive, host_info, request_stop
from hermes.store.owner import is_gone
from hermes.store.sqlite import open_store
from hermes.store.wake import ring

__all__ = ["hand_to_host", "host_log", "offer_to_host", "reach", "start_host", "stop_host", "take_from_host"]

#: Seconds in which a host takes up what it is asked to; starting one is most of it.
PATIENCE = 30.0
#: Seconds that a host gets to end when it is asked to, beside those for commands that run: tasks are stopped and
#: written within ten.
STOP = 20.0
#: A log that is longer (bytes) is put aside when a host starts.
LOG_BYTES = 1_000_000

#: Runs the rest of the line as a process that no terminal and no parent can end, and returns at once.
_DETACH = "import os, sys\nif os.fork():\n    os._exit(0)\nos.setsid()\nos.execv(sys.argv[1], sys.argv[1:])"


@asynccontextmanager
async def reach(sources: Sources) -> AsyncIterator[Remote]:
    """The verbs on every task of the home, for the length of a block.

    Raises:
        OperatorError: there is no journal yet, or it cannot be opened.
    """
    home = sources.loaded.home
    if not home.database.exists():
        raise OperatorError(f"there are no tasks yet ({home.database} is missing).")
    store = await open_store(home.database)
    try:
        yield Remote(
            store,
            is_gone=partial(is_gone, home.path),
            ring=partial(ring, home.path),
            clock=SystemClock(),
            redact=Redactor(sources.secrets()).json_bytes,
        )
    finally:
        await store.close()


async def take_from_host(sources: Sources, wanted: str) -> tuple[str, bool]:
    """The session that is meant, and whether the host had it; it is made to let it go, any other process is left alone.

    Raises:
        UsageError: there is no such session.
        OperatorError: the host does not answer.
    """
    home = sources.loaded.home
    async with reach(sources) as remote:
        session = await find_session(remote.store, wanted)
        info = await anyio.to_thread.run_sync(host_info, home.path)
        if info is None or all(row.owner != info.owner for row in await remote.store.tasks(session)):
            return session, False
        wait = sources.loaded.settings.runtime.handover_wait_seconds
        return session, await have_let_go(remote, session, patience=ANSWERS + wait)


def host_log(home: Path) -> Path:
    """Where the host writes what happens to it."""
    return home / "logs" / "host.log"


def start_host(home: Home, arguments: Sequence[str] = ()) -> None:
    """Start the host of a home in a session of its own; `arguments` are options of `hermes`. Where one lives already,
    the new one ends at once.

    Raises:
        OperatorError: its log cannot be written, or nothing can be started.
    """
    log = host_log(home.path)
    home.prepare(home.run_dir, home.logs_dir)
    environ = {name: value for name, value in os.environ.items() if name not in (CALL_KEY, DEPTH)}
    environ |= {"HERMES_HOME": str(home.path), **program_path(environ)}
    command = [sys.executable, "-m", "hermes.cli.main", *arguments, "host"]
    try:
        if log.exists() and log.stat().st_size > LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", _DETACH, *command],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                cwd=home.path,
                env=environ,
                start_new_session=True,
                check=True,
            )
        finally:
            os.close(descriptor)
    except (OSError, subprocess.CalledProcessError) as error:
        raise OperatorError(f"the background process could not be started ({error}); see {log}") from error


def stop_host(home: Path, wait: float) -> None:
    """Have the host end and wait until it has; its work stays resumable. `wait` are seconds for commands that run.

    Raises:
        OperatorError: it does not end.
    """
    request_stop(home)
    ring(home, HOST)
    until = time.monotonic() + STOP + wait
    while host_alive(home):
        if time.monotonic() >= until:
            raise OperatorError(f"the background process does not end; look into {host_log(home)}")
        time.sleep(0.05)


async def offer_to_host(remote: Remote, sources: Sources, session_id: str) -> str:
    """Ask the host to take up a session that nobody has, and see that there is a host; returns the receipt.

    Raises:
        OperatorError: the session is open elsewhere, or no host can be started.
    """
    receipt = await offer(remote, session_id)
    await _wake(sources, await _arguments(remote, sources, session_id))
    return receipt


async def hand_to_host(remote: Remote, sources: Sources, session_id: str, *, patience: float = PATIENCE) -> None:
    """The same, and wait until it has been taken up.

    Raises:
        OperatorError: the host refused it, or did not come to it. The work is safe all the same.
    """
    home = sources.loaded.home.path
    receipt = await offer_to_host(remote, sources, session_id)
    until = anyio.current_time() + patience
    silent = 0
    while True:
        state = await _state(remote, session_id, receipt)
        if state == "delivered":
            return
        silent = 0 if await anyio.to_thread.run_sync(host_alive, home) else silent + 1
        if silent == 30:  # it ended for want of work just before it was asked
            await _wake(sources, await _arguments(remote, sources, session_id))
        if state == "refused" or anyio.current_time() >= until or silent > 100:
            await remote.withdraw(receipt)
            why = await anyio.to_thread.run_sync(_last_line, host_log(home))
            raise OperatorError(
                f"the background process did not take up session {session_id} ({why or 'no reason given'}; log: "
                f"{host_log(home)}). Nothing is lost: hermes chat --resume {session_id}"
            )
        await anyio.sleep(0.1)


async def _state(remote: Remote, session_id: str, receipt: str) -> str:
    for row in await remote.store.tasks(session_id):
        for message in await remote.store.inbox(row.task_id) if row.parent_id is None else ():
            if message.receipt == receipt:
                return message.state
    return "queued"


async def _arguments(remote: Remote, sources: Sources, session_id: str) -> list[str]:
    """Options for a host that is started for a session: its model where none is configured."""
    options = sources.options
    main = next((row for row in await remote.store.tasks(session_id) if row.parent_id is None), None)
    model = options.model or (stored_spec(main).model.name if main is not None else "")
    found = ["-m", model] if model else []
    return [*found, "--provider", options.provider] if options.provider else found


async def _wake(sources: Sources, arguments: Sequence[str]) -> None:
    home = sources.loaded.home
    if await anyio.to_thread.run_sync(host_alive, home.path):
        await anyio.to_thread.run_sync(ring, home.path, HOST)
    else:
        await anyio.to_thread.run_sync(start_host, home, arguments)


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""
