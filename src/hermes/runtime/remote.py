"""The verbs on tasks of any process, living or gone, for whoever runs no task: a command in another terminal.

Everything goes through the journal: what a task does is read there, what is asked of it is written there, and whoever
has the task answers. A task without a living process keeps what is asked until somebody takes it up; only a cancel is
carried out at once, since nothing has to run for it. Nothing is adopted here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, Literal

import anyio
import anyio.to_thread

from hermes.core.clock import NO_HOLD, Clock, Hold, held
from hermes.core.errors import OperatorError, OwnershipLost, StoreError
from hermes.core.ids import IdSource, random_hex
from hermes.core.messages import Usage, opening
from hermes.core.result import ENDED, async_status, short_use
from hermes.core.usage import TURN_ENDED, fold, stored_call
from hermes.core.views import TaskView, TreeView
from hermes.runtime.finding import find_session
from hermes.runtime.outside import ADOPT, NOBODY, RELEASE
from hermes.runtime.rows import fold_events, paused, resting, stored_result, suspend_lost
from hermes.runtime.unowned import end_cancelled
from hermes.store.ops import InboxRow, MarkInbox, PutInbox, Store, TaskRow, Unit

__all__ = ["Answer", "Remote", "SHOWN_ENDED"]

#: Ended tasks that a listing shows, newest first.
SHOWN_ENDED = 50
#: Seconds between two looks into the journal while something is waited for.
LOOK_EVERY = 0.1
#: Seconds after which a request to the host counts as not heard.
OFFERED = 30.0
#: Seconds for which an answer is waited for.
PATIENCE = 5.0

Answer = dict[str, Any]


class Remote:
    """The verbs over one journal. `is_gone(owner)` says whether a process is proven to have ended (it may block),
    `ring(owner)` wakes one."""

    def __init__(
        self,
        store: Store,
        *,
        is_gone: Callable[[str], bool],
        ring: Callable[[str], bool],
        clock: Clock,
        redact: Callable[[bytes], bytes],
        hold: Hold = NO_HOLD,
        ids: IdSource = random_hex,
    ) -> None:
        self.store = store
        self.clock = clock
        self._is_gone = is_gone
        self._ring = ring
        self._redact = redact
        self._hold = hold
        self._ids = ids

    # -- finding and looking ----------------------------------------------------------------------------------------

    async def find(self, wanted: str) -> TaskRow | Answer:
        """The task of an id or of its unique beginning, or the conversation of a session's id; else the answer saying
        so, with the nearest ids."""
        exact = await self.store.task(wanted)
        if exact is not None:
            return exact
        found = await self.store.find_tasks(wanted, limit=4) if wanted else []
        if len(found) == 1:
            return found[0]
        main = [row for row in await self.store.tasks(wanted) if row.parent_id is None]
        if main:
            return main[0]
        answer: Answer = {"error": f"Task not found: {wanted}"}
        near = [row.task_id for row in found[:3]] or get_close_matches(wanted, await self._recent_ids(), 3, 0.5)
        return answer | ({"nearest": near} if near else {})

    async def _recent_ids(self) -> list[str]:
        sessions = await self.store.sessions(limit=20)
        return [row.task_id for session in sessions for row in await self.store.tasks(session.session_id)]

    async def session(self, wanted: str) -> str:
        """The session that is meant by the id of one of its tasks, or as `find_session` says.

        Raises:
            UsageError: there is none, or several.
        """
        task = await self.find(wanted) if "_" in wanted or "-" in wanted else None
        if isinstance(task, TaskRow):
            return task.session_id
        return await find_session(self.store, wanted)

    async def gone(self, owner: str) -> bool:
        """Whether nobody lives that has the tasks of `owner`."""
        if owner == NOBODY:
            return True
        with held(self._hold):
            return await anyio.to_thread.run_sync(self._is_gone, owner)

    async def state(self, row: TaskRow) -> str:
        """The state of a task as it really is: without a living process what has not ended is suspended, or queued
        while it is on its way to the host."""
        while True:
            if row.ended_at is not None or not await self.gone(row.owner):
                # Just taken up, it waits for its turn.
                return "queued" if row.state == "suspended" else row.state
            if row.owner == NOBODY and row.session_id in await self._offered():
                return "queued"
            now = await self.store.task(row.task_id) or row
            if (now.owner, now.ended_at) == (row.owner, row.ended_at):
                return "suspended"
            row = now  # it was taken up while we looked

    async def _offered(self) -> set[str]:
        """Sessions that a host is about to take up."""
        since = self.clock.now() - OFFERED
        fresh = [row for row in await self.store.queued(NOBODY) if row.verb == ADOPT and row.created_at >= since]
        return {task.session_id for row in fresh if (task := await self.store.task(row.task_id)) is not None}

    async def tree(self, session_id: str) -> TreeView:
        """What the kept events of a session say, and which of its tasks lost their process."""
        tree, rows = TreeView(), await self.store.tasks(session_id)
        await fold_events(self.store, session_id, rows, tree)
        for row in rows:
            if row.ended_at is None and await self.state(row) == "suspended":
                suspend_lost(tree, row)
        return tree

    async def check(self, row: TaskRow) -> Answer:
        """State, newest output, use and receipts of a task. Never waits."""
        tree = await self.tree(row.session_id)
        view = tree.tasks.setdefault(row.task_id, TaskView(row.task_id, row.session_id, row.parent_id))
        state = await self.state(row)
        now = self.clock.now()
        result = stored_result(row)
        lines = list(view.lines)
        answer: Answer = {
            "task_id": row.task_id,
            "session_id": row.session_id,
            "goal": row.goal,
            "status": async_status(state),
            "elapsed": round(self._elapsed(row, view, state), 2),
            "output_preview": "\n".join(lines[-10:]),
            "output_lines": len(lines),
            "usage": tree.use(row.task_id),
        }
        if state == "suspended":
            answer |= {"since": view.last_activity or row.created_at, "how_to_resume": how_to_resume(row)}
            if view.phase == "idle":
                answer["phase"] = "idle"
        elif state == "queued":
            answer["position"] = self._positions(await self.store.tasks(row.session_id)).get(row.task_id, 1)
        elif result is None:
            answer["phase"] = f"{view.phase} {view.phase_detail}".strip()
            answer["last_activity_seconds"] = round(max(0.0, now - view.last_activity), 1)
        else:
            answer |= {"exit_reason": result.exit_reason, "truncated": result.truncated}
            if result.error:
                answer["error"] = result.error
        receipts = [self._receipt(message) for message in await self.store.inbox(row.task_id) if _public(message)]
        return answer | ({"receipts": receipts} if receipts else {})

    def _elapsed(self, row: TaskRow, view: TaskView | None, state: str) -> float:
        """Seconds that a task ran; without a `view` all since it began."""
        result = stored_result(row)
        if result is not None:
            return result.elapsed
        if row.started_at is None:
            return 0.0
        if state == "suspended":
            return view.lived if view is not None else 0.0
        began = view.started_at if view is not None else None
        return max(0.0, self.clock.now() - (began or row.started_at))

    @staticmethod
    def _positions(rows: Sequence[TaskRow]) -> dict[str, int]:
        """The place of each queued task of a session among those of the same parent; 1 is next."""
        lines: dict[str | None, int] = {}
        places: dict[str, int] = {}
        for row in rows:
            if row.state == "queued" and row.ended_at is None:
                places[row.task_id] = lines[row.parent_id] = lines.get(row.parent_id, 0) + 1
        return places

    async def list(self, session_id: str | None = None, *, ended: int = SHOWN_ENDED) -> Answer:
        """Tasks in short, of one session or of the newest fifty: running, queued, suspended, then the newest ended."""
        sessions = await self.store.sessions(limit=SHOWN_ENDED)
        ids = [session_id] if session_id is not None else [row.session_id for row in sessions if row.source != "batch"]
        order = {"running": 0, "queued": 1, "suspended": 2}
        found: list[tuple[int, float, Answer]] = []
        alive: dict[str, bool] = {}
        offered = await self._offered()
        for session in ids:
            rows = await self.store.tasks(session)
            places = self._positions(rows)
            used, idle = await self._used(session, rows), await resting(self.store, session, rows)
            going = any(row.ended_at is None for row in rows)
            views = (await self.tree(session)).tasks if going and await paused(self.store, session) else {}
            for row in rows:
                if row.ended_at is None and row.owner not in alive:
                    alive[row.owner] = not await self.gone(row.owner)
                state = row.state
                if row.ended_at is None and not alive[row.owner]:
                    state = "queued" if row.owner == NOBODY and session in offered else "suspended"
                elif state == "suspended":
                    state = "queued"
                moment = row.ended_at if row.ended_at is not None else row.created_at
                answer = self._row(row, state, places, views.get(row.task_id)) | used[row.task_id]
                if row.task_id in idle and row.ended_at is None:
                    answer["phase"] = "idle"
                found.append((order.get(state, 3), -moment, answer))
        found.sort(key=lambda item: item[:2])
        active = [answer for rank, _, answer in found if rank < 3]
        return {"tasks": [*active, *[answer for rank, _, answer in found if rank == 3][:ended]], "active": len(active)}

    async def _used(self, session: str, rows: Sequence[TaskRow]) -> dict[str, Answer]:
        """What each task of a session used: an ended one by its result, the others by the calls that are stored."""
        parents = {row.parent_id for row in rows}
        ends = {row.task_id: end for row in rows if (end := stored_result(row)) is not None}
        calls = await self.store.events_of_type(TURN_ENDED, session_id=session) if len(ends) < len(rows) else []
        table = fold([stored_call(call.task_id, session, call.at, call.body) for call in calls], "task")
        lines = {line.key: line for line in table.lines}
        found = {}
        for row in rows:
            end, line = ends.get(row.task_id), lines.get(row.task_id)
            own = end.usage if end is not None else line.usage if line is not None else Usage()
            under = end.subtree_usage if end is not None else line.subtree if line is not None else Usage()
            found[row.task_id] = short_use(own, under if row.task_id in parents else None)
        return found

    def _row(self, row: TaskRow, state: str, places: dict[str, int], view: TaskView | None) -> Answer:
        answer: Answer = {
            "task_id": row.task_id,
            "session_id": row.session_id,
            "kind": row.kind,
            "depth": row.depth,
            "goal": opening(row.goal, 60),
            "status": async_status(state),
            "elapsed": round(self._elapsed(row, view, state), 2),
        }
        return answer | ({"position": places.get(row.task_id, 1)} if state == "queued" else {})

    # -- talking ----------------------------------------------------------------------------------------------------

    async def send(
        self, row: TaskRow, verb: str, text: str = "", *, receipt: str = "", patience: float = PATIENCE
    ) -> Answer:
        """Ask something of a task: steer, follow_up, continue, cancel, interrupt; wait for the answer up to `patience`
        seconds. `continue` is for one that has ended.

        The same `receipt` asks once, however often it is sent.
        """
        known = await self._message(row.task_id, receipt) if receipt else None
        state = await self.state(row)
        if known is None:
            if row.ended_at is None and verb == "continue":
                why = f"Task {row.task_id} has not ended (status: {async_status(state)}): use hermes tasks steer."
                return {"ok": False, "error": why}
            if row.ended_at is not None and verb != "continue":
                return {"ok": False, "error": f"Task {row.task_id} is not running (status: {async_status(state)})."}
            if state == "suspended" and verb == "cancel":
                return await self._cancel(row, text)
            receipt = await self.put(row, verb, text, receipt or f"out-{self._ids(12)}")
        wait = 0.0 if state == "suspended" or row.ended_at is not None and await self.gone(row.owner) else patience
        message = await self._answered(row, receipt, wait)
        return self._answer(row, message, state)

    async def put(self, row: TaskRow, verb: str, text: str, receipt: str) -> str:
        """Write a message to a task, once for a receipt, and wake whoever has the task; returns the receipt."""
        message = InboxRow(
            receipt=receipt,
            task_id=row.task_id,
            verb=verb,
            text=self._redact(text.encode("utf-8", "replace")).decode(),
            sender="user",
            state="queued",
            created_at=self.clock.now(),
        )
        try:
            await self.store.submit(Unit(ops=(PutInbox(row=message),))).wait()
        except StoreError:
            if await self._message(row.task_id, receipt) is None:  # else another sender of the same receipt was first
                raise
        await self.ring(row)
        return receipt

    async def withdraw(self, receipt: str) -> None:
        """Take a message back that nobody has answered; one that was answered stands."""
        await self.store.submit(Unit(ops=(MarkInbox(receipt=receipt, state="refused"),))).wait()

    async def ring(self, row: TaskRow) -> None:
        """Wake whoever has a task."""
        with held(self._hold):
            await anyio.to_thread.run_sync(self._ring, row.owner)

    async def _message(self, task_id: str, receipt: str) -> InboxRow | None:
        return next((row for row in await self.store.inbox(task_id) if row.receipt == receipt), None)

    async def _answered(self, row: TaskRow, receipt: str, patience: float) -> InboxRow:
        """The message once it is answered, or as it stands when the time has passed."""
        until = anyio.current_time() + patience
        while True:
            message = await self._message(row.task_id, receipt)
            if message is None:
                raise OperatorError(f"the message {receipt} to {row.task_id} is gone; was its session deleted?")
            if message.state != "queued" or anyio.current_time() >= until:
                return message
            await anyio.sleep(LOOK_EVERY)

    def _answer(self, row: TaskRow, message: InboxRow, state: str) -> Answer:
        answer: Answer = {"ok": message.state in ("queued", "delivered"), "task_id": row.task_id}
        answer["receipt"] = self._receipt(message)
        if message.state == "queued" and (state == "suspended" or message.verb == "continue"):
            answer["message"] = f"Kept until the task goes on: {how_to_resume(row)}"
        elif message.state == "queued":
            answer["message"] = "Kept; the task reads it at its next step."
        elif message.state == "missed":
            answer["error"] = f"Task {row.task_id} ended or rested before it could be told."
        elif message.state == "refused":
            answer["error"] = f"Task {row.task_id} did not accept it."
        return answer

    @staticmethod
    def _receipt(message: InboxRow) -> Answer:
        receipt: Answer = {"id": message.receipt, "verb": message.verb, "state": message.state}
        return receipt | ({"position": message.position} if message.position is not None else {})

    async def _cancel(self, row: TaskRow, text: str) -> Answer:
        """End a task that nobody runs, and everything under it, with what it has."""
        rows = await self.store.tasks(row.session_id)
        for owner in {other.owner for other in rows}:
            if not await self.gone(owner):
                raise OperatorError(f"session {row.session_id} was taken up a moment ago; try again")
        try:
            ended = await end_cancelled(
                self.store, rows, row, text, tree=await self.tree(row.session_id), now=self.clock.now(),
                redact=self._redact, hold=self._hold,
            )  # fmt: skip
        except OwnershipLost as error:
            raise OperatorError(f"session {row.session_id} was taken up a moment ago; try again") from error
        return {"ok": True, "cancelled": row.task_id, "status": "cancelled", "ended": ended}

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def wait(
        self, task_ids: Sequence[str], *, mode: Literal["all", "any"] = "all", timeout: float | None = None
    ) -> Answer:
        """Wait until all (or any) of the tasks ended. A suspended one is not waited for: it is named."""
        until = None if timeout is None else anyio.current_time() + timeout
        while True:
            states: dict[str, str] = {}
            for task_id in task_ids:
                row = await self.store.task(task_id)
                states[task_id] = await self.state(row) if row is not None else "suspended"
            over = [task_id for task_id, state in states.items() if state in ENDED]
            suspended = [task_id for task_id, state in states.items() if state == "suspended"]
            still = [task_id for task_id in task_ids if task_id not in over and task_id not in suspended]
            done = not still if mode == "all" else bool(over or suspended)
            late = until is not None and anyio.current_time() >= until
            if done or late:
                return {"ended": over, "suspended": suspended, "running": still, "timed_out": not done}
            await anyio.sleep(LOOK_EVERY)

    async def collect(self, row: TaskRow, *, timeout: float | None = None) -> Answer:
        """The result of a task, waited for; the same each time. Suspended: at once, with how to resume."""
        waited = await self.wait([row.task_id], timeout=timeout)
        row = await self.store.task(row.task_id) or row
        result = stored_result(row)
        if result is not None:
            return result.public()
        answer = await self.check(row)
        return answer | {"timed_out": waited["timed_out"]}


def how_to_resume(row: TaskRow) -> str:
    """The command with which a suspended task goes on."""
    return f"hermes chat --resume {row.session_id}, or in the background: hermes tasks resume {row.task_id}"


def _public(message: InboxRow) -> bool:
    return message.verb not in (ADOPT, RELEASE)
