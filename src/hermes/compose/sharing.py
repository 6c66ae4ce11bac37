"""Sharing what a provider allows with the other processes of the home: a grant every two seconds, by live demand.

While no other process lives nothing is written but what was found out of a limit, for those that come later. A file
that cannot be used costs the sharing and no request: each process then goes by what it finds out alone.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from hermes.core.clock import Hold, held
from hermes.core.errors import OperatorError
from hermes.credentials.grants import GRANT, Grant, Grants, Want
from hermes.credentials.limits import LearnedLimits

__all__ = ["Sharing"]

#: Seconds after which a process that had nothing to ask may say that it has, since a first share is a small one; and
#: after which what others should know at once is said.
SOON = 0.25

#: Seconds for which the first request waits to hear what others found out; it takes milliseconds.
PATIENCE = 0.9

_log = logging.getLogger(__name__)


class Sharing:
    """The grants of a process, from `run` on.

    Args:
        limits: what the process learned.
        name_of: what a limit is called between processes, by (provider, credential, model).
        path: the file, in the folder that has the locks of the living processes.
        owner: the id of this process.
        gone: whether the process of an id is proven to have ended.
        living: the ids of the processes that live, this one among them. Blocks.
        now: seconds since the epoch.
        loop_now: seconds of the loop's clock.
    """

    def __init__(
        self,
        limits: LearnedLimits,
        name_of: Callable[[str, str, str], str],
        *,
        path: Path,
        owner: str,
        gone: Callable[[str], bool],
        living: Callable[[], Sequence[str]],
        now: Callable[[], float],
        loop_now: Callable[[], float],
        hold: Hold,
    ) -> None:
        self._limits = limits
        self._name_of = name_of
        self._grants = Grants(path, owner, gone)
        self._owner = owner
        self._living = living
        self._now = now
        self._loop_now = loop_now
        self._hold = hold
        self._wanted = anyio.Event()
        self._born, self._news = anyio.Event(), anyio.Event()
        limits.patience, limits.born = PATIENCE, self._new
        self._last = loop_now()
        self._shared = self._wrote = False
        self._known: dict[str, float] = {}  # what is in the file, by the moment at which it was found out
        self._trouble = ""

    def wake(self, *, soon: bool = False) -> None:
        """There is something to tell; `soon`: others should not have to wait for it until the next grant."""
        self._wanted.set()
        if soon:
            self._news.set()

    def _new(self) -> None:
        self._born.set()
        self.wake(soon=True)

    async def run(self) -> None:
        """Exchange what is wanted for grants, until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted = anyio.Event()  # what comes up during the exchange was no part of it
                self._born, self._news = anyio.Event(), anyio.Event()
                busy = await self.exchange()
                if busy:
                    self._wanted.set()
                with anyio.move_on_after(SOON):
                    await self._born.wait()  # a first request does not wait for the next grant
                if busy and not self._born.is_set():
                    with anyio.move_on_after(GRANT - SOON):
                        await self._news.wait()
        finally:
            if self._wrote:
                with anyio.CancelScope(shield=True), held(self._hold):
                    await anyio.to_thread.run_sync(self._leave)

    async def exchange(self) -> bool:
        """Say what is wanted and take the grants; returns whether anything was wanted."""
        now, wall = self._loop_now(), self._now()
        passed = now - self._last
        passed, self._last = (0.0, self._last) if passed < SOON else (passed, now)
        limits = {self._name_of(*key): limit for key, limit in self._limits.all().items()}
        wants = [limit.want(name, passed, wall - now) for name, limit in limits.items()]
        with held(self._hold):
            granted = await anyio.to_thread.run_sync(self._exchange, wants, wall)
        given = {grant.name: grant for grant in granted}
        for name, limit in limits.items():
            limit.granted(given.get(name), passed, wall - now)
        return any(not want.idle for want in wants)

    def _exchange(self, wants: Sequence[Want], wall: float) -> Sequence[Grant]:
        try:
            others = any(name != self._owner for name in self._living())
            news = any(_moment(want) > self._known.get(want.name, 0.0) for want in wants)
            asked = all(want.name in self._known for want in wants) or not self._grants.path.exists()
            if not (others or self._shared or news) and asked:
                return ()
            granted = self._grants.exchange(wants, wall)
            self._shared, self._wrote = others, True
            self._known.update((want.name, _moment(want)) for want in wants)
            return granted
        except (sqlite3.Error, OSError, OperatorError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("limits are not shared with other processes: %s: %s", self._grants.path, error)
            return ()

    def _leave(self) -> None:
        try:
            self._grants.leave()
        except (sqlite3.Error, OSError) as error:  # its demand lapses by itself
            _log.info("cannot leave %s: %s", self._grants.path, error)


def _moment(want: Want) -> float:
    return max(want.requests.at, want.token_limit.at)
