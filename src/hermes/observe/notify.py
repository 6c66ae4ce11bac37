"""Telling a person who looks elsewhere: a command, a webhook, the terminal's bell, each once for an occasion.

Nothing waits for it: the listener only queues, sending is bounded in time and number, and what fails is logged once for
each way of telling. What is sent holds no known secret. It decides nothing about the run.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
import anyio.to_thread
import msgspec

from hermes.config.notify import NotifySettings
from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.codec import encode_json
from hermes.core.events import Envelope
from hermes.environments.scrub import command_environment
from hermes.observe.occasions import LOOKED_AT, Occasion, Occasions
from hermes.runtime.bus import Bus

__all__ = ["Channel", "Notifier", "NotifyFailed", "Post", "channels", "notifying"]

_log = logging.getLogger(__name__)

#: Seconds that one sending may take, that a conversation has to rest to count as done, and for what waits at the end.
LIMIT, SETTLE, LAST = 10.0, 3.0, 5.0
#: Occasions that may wait, and that are sent at once.
MOST_WAITING, AT_ONCE = 100, 4

#: Sends a body to the webhook and returns the HTTP status.
Post = Callable[[str, bytes], Awaitable[int]]


class NotifyFailed(Exception):
    """A way of telling did not work; the text says why and holds no address."""


class Channel(NamedTuple):
    """One way of telling. `send` gets the message as JSON and raises NotifyFailed with a text fit for the log."""

    name: str
    send: Callable[[bytes], Awaitable[None]]


class Notifier:
    """Tells occasions through channels."""

    def __init__(
        self, occasions: Occasions, ways: Sequence[Channel], *, redact: Callable[[bytes], bytes], limit: float = LIMIT
    ) -> None:
        self._occasions = occasions
        self._ways = tuple(ways)
        self._redact = redact
        self._limit = limit
        self._waiting: deque[Occasion] = deque()
        self._changed = anyio.Event()
        self._failed: set[str] = set()
        self._sending = 0
        self._quiet = anyio.Event()

    def listen(self, envelope: Envelope) -> None:
        """Take an event. Never waits."""
        occasion = self._occasions.of(envelope)
        if occasion is None:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._once("queue", f"more than {MOST_WAITING} messages wait; what comes now is not told")
            return
        self._waiting.append(occasion)
        self._changed.set()

    async def run(self) -> None:
        """Send what comes, until cancelled."""
        places = anyio.CapacityLimiter(AT_ONCE)
        async with anyio.create_task_group() as group:
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                while self._waiting:
                    occasion = self._waiting.popleft()
                    if occasion.turn is not None:
                        group.start_soon(self._later, occasion)
                        continue
                    message = self.message(occasion)
                    for way in self._ways:
                        self._sending += 1
                        group.start_soon(self._send, way, message, places)
                self._quiet.set()

    async def tell(self, occasions: Sequence[Occasion]) -> None:
        """Send these now and wait for it, whatever was asked for; nothing has to run."""
        places = anyio.CapacityLimiter(AT_ONCE)
        async with anyio.create_task_group() as group:
            for occasion in occasions:
                message = self.message(occasion)
                for way in self._ways:
                    self._sending += 1
                    group.start_soon(self._send, way, message, places)

    async def finish(self) -> None:
        """Wait until everything found so far is sent, a few seconds at most."""
        with anyio.move_on_after(LAST):
            while self._waiting or self._sending:
                self._quiet = anyio.Event()
                await self._quiet.wait()

    async def _later(self, occasion: Occasion) -> None:
        await anyio.sleep(SETTLE)
        if self._occasions.still(occasion):
            self._waiting.append(msgspec.structs.replace(occasion, turn=None))
            self._changed.set()

    async def _send(self, way: Channel, message: bytes, places: anyio.CapacityLimiter) -> None:
        try:
            async with places:
                with anyio.fail_after(self._limit):
                    await way.send(message)
        except TimeoutError:
            self._once(way.name, f"notify.{way.name} did not end within {self._limit:g} s")
        except NotifyFailed as error:
            self._once(way.name, f"notify.{way.name} failed: {error}")
        except Exception as error:  # a message that cannot be sent is never a failure of the run
            self._once(way.name, f"notify.{way.name} failed: {type(error).__name__}")
        finally:
            self._sending -= 1
            self._quiet.set()

    def message(self, occasion: Occasion) -> bytes:
        """The JSON that is sent."""
        body = msgspec.to_builtins(occasion)
        del body["turn"]
        body["show"] = occasion.show or f"hermes sessions show {occasion.session_id}"
        return self._redact(encode_json({"schema": 1, **body}))

    def _once(self, name: str, text: str) -> None:
        if name not in self._failed:
            self._failed.add(name)
            _log.warning("%s; this is said once", text)


def channels(
    settings: NotifySettings,
    *,
    post: Post,
    environ: Mapping[str, str],
    passthrough: Sequence[str] = (),
    hold: Hold = NO_HOLD,
) -> list[Channel]:
    """The ways of telling that are configured. Commands get the variables that a model's commands get, no others."""
    found: list[Channel] = []
    if settings.command:
        argv = ["/bin/sh", "-c", settings.command] if isinstance(settings.command, str) else list(settings.command)
        found.append(Channel("command", _command(argv, command_environment(environ, passthrough), hold)))
    if settings.webhook:
        found.append(Channel("webhook", _webhook(settings.webhook, post)))
    if settings.bell:
        found.append(Channel("bell", _bell(hold)))
    return found


def _command(argv: list[str], environment: Mapping[str, str], hold: Hold) -> Callable[[bytes], Awaitable[None]]:
    async def send(message: bytes) -> None:
        stop = threading.Event()
        try:
            with held(hold):
                await anyio.to_thread.run_sync(_run, argv, environment, message, stop, abandon_on_cancel=True)
        finally:
            stop.set()  # left at the time limit: the thread ends the command's whole group

    return send


def _run(argv: list[str], environment: Mapping[str, str], message: bytes, stop: threading.Event) -> None:
    """Run a command with `message` on its stdin until it ends or `stop` is set."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        raise NotifyFailed(f"{os.path.basename(argv[0])} cannot be started: {error.strerror or error}") from error
    given: bytes | None = message + b"\n"
    while True:
        try:
            process.communicate(given, timeout=0.1)
            break
        except subprocess.TimeoutExpired:
            given = None  # it is kept and sent on by the next call
            if stop.is_set():
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return
    if process.returncode:
        raise NotifyFailed(f"{os.path.basename(argv[0])} ended with exit code {process.returncode}")


def _webhook(url: str, post: Post) -> Callable[[bytes], Awaitable[None]]:
    async def send(message: bytes) -> None:
        status = await post(url, message)
        if status >= 300:
            raise NotifyFailed(f"the server answered with status {status}")

    return send


def _bell(hold: Hold) -> Callable[[bytes], Awaitable[None]]:
    async def send(message: bytes) -> None:
        if sys.stderr.isatty():
            with held(hold):  # on a thread: a terminal that was stopped takes nothing
                await anyio.to_thread.run_sync(_ring, abandon_on_cancel=True)

    return send


def _ring() -> None:
    sys.stderr.write("\a")
    sys.stderr.flush()


@asynccontextmanager
async def notifying(notifier: Notifier, bus: Bus) -> AsyncIterator[None]:
    """Tell what passes the bus during a block; what was found is sent before it is left, within a few seconds."""
    subscription = bus.subscribe(notifier.listen, types=LOOKED_AT)
    async with anyio.create_task_group() as group:
        group.start_soon(notifier.run)
        try:
            yield
        finally:
            subscription.close()
            with anyio.CancelScope(shield=True):
                await notifier.finish()
            group.cancel_scope.cancel()
