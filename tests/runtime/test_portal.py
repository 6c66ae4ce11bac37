"""The portal: one background thread, callable from everywhere but a fork."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import anyio
import pytest

from hermes.core.errors import UsageError
from hermes.runtime.portal import Portal


class Place:
    """What is open on the thread: notes what happened there."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.closed = False
        self.waiting = threading.Event()
        self.cancelled = threading.Event()

    async def ident(self) -> int:
        await anyio.sleep(0)
        return threading.get_ident()

    async def wait(self) -> None:
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise

    async def fail(self) -> None:
        raise ValueError("as it was raised")


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    opened = Place()
    try:
        yield opened
    finally:
        await anyio.sleep(0)
        opened.closed = True


def test_calls_run_on_the_thread_and_closing_leaves_it() -> None:
    with Portal(place) as portal:
        there = portal.value
        assert there.thread != threading.get_ident()
        assert portal.call(there.ident) == there.thread
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(lambda _: portal.call(there.ident), range(40))) == {there.thread}
    assert there.closed
    with pytest.raises(UsageError, match="not open"):
        portal.call(there.ident)
    portal.close()


@pytest.mark.anyio
@pytest.mark.may_block
async def test_it_works_inside_a_running_loop() -> None:
    with Portal(place) as portal:
        assert portal.call(portal.value.ident) == portal.value.thread


def test_an_error_arrives_as_it_was_raised() -> None:
    with Portal(place) as portal, pytest.raises(ValueError, match="as it was raised"):
        portal.call(portal.value.fail)


def test_opening_that_fails_leaves_no_thread() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise UsageError("cannot open")
        yield

    with pytest.raises(UsageError, match="cannot open"):
        Portal(broken).open()


def test_an_interrupt_from_the_keyboard_ends_the_waiting_call_only() -> None:
    with Portal(place) as portal:
        there = portal.value

        def press() -> None:
            there.waiting.wait(10)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            portal.call(there.wait)
        presser.join()
        assert there.cancelled.wait(10)
        assert portal.call(there.ident) == there.thread


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_is_refused_and_cannot_hang() -> None:
    with Portal(place) as portal:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                portal.call(portal.value.ident)
            except UsageError as error:
                code = 0 if "fork" in str(error) else 2
            portal.close()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert portal.call(portal.value.ident) == portal.value.thread
