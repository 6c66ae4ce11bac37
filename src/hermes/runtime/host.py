"""The host: takes up the sessions it is asked to and runs them without anybody watching, until nothing is left to do.

A request is a row on a conversation that nobody has; taking it up is recovery, like everywhere. The host of a home is
one process; that it is the only one, its files and its log are the business of whoever starts it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from hermes.core.errors import HermesError, StoreError
from hermes.runtime.outside import ADOPT, LOOK_EVERY, NOBODY
from hermes.runtime.recovery import Recovery
from hermes.runtime.rows import stored_spec
from hermes.runtime.spec import ModelChoice
from hermes.runtime.supervisor import Supervisor
from hermes.runtime.task import Task
from hermes.store.ops import InboxRow, MarkInbox, Unit

__all__ = ["IDLE", "Host"]

#: Seconds without work after which a host ends.
IDLE = 60.0


class Host:
    """Runs sessions for one supervisor.

    `check` raises for a model that cannot be had here, for want of a key for instance; `asked_to_stop` is looked at
    twice a second; `say` takes a line for the log.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        recovery: Recovery,
        *,
        check: Callable[[ModelChoice], None],
        asked_to_stop: Callable[[], Awaitable[bool]],
        say: Callable[[str], None],
        rung: Callable[[], Awaitable[None]] | None = None,
        idle: float = IDLE,
    ) -> None:
        self._supervisor = supervisor
        self._recovery = recovery
        self._check = check
        self._asked_to_stop = asked_to_stop
        self._say = say
        self._rung = rung
        self._idle = idle

    async def run(self) -> str:
        """Work until there was nothing to do for a while, or somebody asks to stop; returns why it ended.

        Raises:
            StoreError: the journal broke.
        """
        supervisor = self._supervisor
        last = anyio.current_time()
        while True:
            taken = await self.take()
            if supervisor.broken is not None:
                raise supervisor.broken
            now = anyio.current_time()
            if taken or any(_works(task) for task in supervisor.tasks.values()):
                last = now
            elif now - last >= self._idle:
                return f"nothing to do for {self._idle:g} s"
            if await self._asked_to_stop():
                return "asked to stop"
            with anyio.move_on_after(LOOK_EVERY):
                await (self._rung() if self._rung is not None else anyio.sleep_forever())

    async def take(self) -> int:
        """Take up every session that it is asked to; returns how many."""
        taken = 0
        for request in await self._supervisor.store.queued(NOBODY):
            if request.verb == ADOPT and await self._take(request):
                taken += 1
        return taken

    async def _take(self, request: InboxRow) -> bool:
        store = self._supervisor.store
        row = await store.task(request.task_id)
        if row is None or row.owner != NOBODY:
            return False  # somebody was faster
        try:
            for other in await store.tasks(row.session_id):
                if other.ended_at is None:
                    self._check(stored_spec(other).model)
            await self._recovery.adopt(row.session_id)
        except StoreError:
            raise
        except HermesError as error:
            self._say(f"session {row.session_id} was not taken up: {error}")
            await store.submit(Unit(ops=(MarkInbox(receipt=request.receipt, state="refused"),))).wait()
            return False
        # A session with nothing unfinished but its conversation has no other place where the request is answered.
        await store.submit(Unit(ops=(MarkInbox(receipt=request.receipt, state="delivered"),))).wait()
        self._say(f"session {row.session_id} was taken up")
        return True


def _works(task: Task) -> bool:
    """Whether a task has something to do: a conversation that waits for a person has not."""
    if task.ended:
        return False
    return not (task.spec.interactive and task.resting and not task.inbox.pending)
