"""Moving a session from one process to another: whoever has it lets it go, and the host is offered it.

Letting go is suspension, taking up is recovery; nothing here runs or adopts a task.
"""

from __future__ import annotations

import anyio

from hermes.core.errors import OperatorError, OwnershipLost
from hermes.core.ids import random_hex
from hermes.runtime.outside import ADOPT, NOBODY, RELEASE
from hermes.runtime.remote import LOOK_EVERY, Remote
from hermes.store.ops import AdoptTasks, InboxRow, PutInbox, Unit

__all__ = ["ANSWERS", "have_let_go", "offer"]

#: Seconds within which a process that lives lets a session go, once no command of it runs any more.
ANSWERS = 15.0


async def have_let_go(
    remote: Remote, session_id: str, *, patience: float = ANSWERS, reason: str = "another terminal goes on with it"
) -> bool:
    """Have a session belong to nobody: whoever has it is asked to let it go, and is told the reason. Returns whether
    somebody had it, so that it was going on until now.

    Raises:
        OperatorError: its process lives and does not answer for `patience` seconds (it may be stopped or asleep).
    """
    rows = await remote.store.tasks(session_id)
    had = False
    for owner in sorted({row.owner for row in rows}):
        if await remote.gone(owner):
            continue
        had = True
        mine = next(row for row in rows if row.owner == owner)
        receipt = await remote.put(mine, RELEASE, reason, f"out-{random_hex(12)}")
        until = anyio.current_time() + patience
        while not await remote.gone((await remote.store.task(mine.task_id) or mine).owner):
            if anyio.current_time() >= until:
                await remote.withdraw(receipt)  # else it would let go whenever it wakes
                raise OperatorError(
                    f"session {session_id} is open in another process (owner {owner}) that does not answer; go on "
                    "there, or end that process and try again"
                )
            await anyio.sleep(LOOK_EVERY)
    return had


async def offer(remote: Remote, session_id: str) -> str:
    """Let the host take a session up that nobody has; returns the receipt of the request.

    Raises:
        OperatorError: it is open in a living process, or was taken up by one just now.
    """
    rows = await remote.store.tasks(session_id)
    main = next((row for row in rows if row.parent_id is None), None)
    if main is None:
        raise OperatorError(f"session {session_id} has no task to go on with")
    for owner in {row.owner for row in rows}:
        if not await remote.gone(owner):
            raise OperatorError(f"session {session_id} goes on in another process (owner {owner}) already")
    receipt = f"out-{random_hex(12)}"
    freed = [
        AdoptTasks(session_id=session_id, from_owner=owner, to_owner=NOBODY)
        for owner in sorted({row.owner for row in rows} - {NOBODY})
    ]
    message = InboxRow(
        receipt=receipt,
        task_id=main.task_id,
        verb=ADOPT,
        text="",
        sender="user",
        state="queued",
        created_at=remote.clock.now(),
    )
    try:
        await remote.store.submit(Unit(ops=(*freed, PutInbox(row=message)))).wait()
    except OwnershipLost as error:
        raise OperatorError(f"session {session_id} was taken up by another process a moment ago") from error
    return receipt
