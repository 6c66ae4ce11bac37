"""The loop: ask the model, answer its calls, until it has nothing more to do.

A function of specification, history, inbox, budget and emit. It knows no file, no configuration, no parent and no
screen. A task that lost its process enters the same loop with a longer history: each round asks the history what is
due, so recovery is no special case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import anyio
import msgspec

from hermes.core.errors import LimitKind, LimitReached, ModelError
from hermes.core.events import BudgetReached, Event, TaskPhase
from hermes.core.history import History, OpenCall
from hermes.core.inbox import Inbox
from hermes.core.invoke import CallRunner
from hermes.core.limits import Budget
from hermes.core.messages import Assistant, Entry, Interrupted, Notice, Steer, ToolResult, User
from hermes.core.scope import TaskScope
from hermes.core.turn import Turns, TurnSettings

__all__ = ["Agent", "AgentSpec", "Outcome", "Rest"]

#: Invalid calls in a row (no JSON, unknown tool) that end a turn as partial.
MAX_INVALID = 3
#: Times a reply cut by length is continued, and times an empty one is asked again.
MAX_CONTINUED, MAX_EMPTY = 3, 3
#: Equal calls in a row after which the model is told that it seems stuck.
STUCK_AFTER = 3

OutcomeState = Literal["completed", "exhausted", "failed", "cancelled"]

#: Called with how the turn went when nothing more is due. True: look at the inbox again; False: end.
Rest = Callable[["Outcome"], Awaitable[bool]]


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is. `interactive`: a failed turn or a limit does not end it, a person can go on. `interruptible`:
    its turn can be stopped by its inbox; for a task that can only be stopped as a whole nothing is held ready."""

    scope: TaskScope
    turn: TurnSettings
    interactive: bool = False
    interruptible: bool = True


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run of the loop ended. `error` is one line, `partial` marks a run stopped by repeatedly invalid calls."""

    state: OutcomeState
    text: str = ""
    error: str = ""
    reason: str = ""
    limit: LimitKind | None = None
    partial: bool = False
    permanent: bool = False
    retry_after: float | None = None


#: Of a turn in which nothing was due.
_AT_REST = Outcome(state="completed")


class Agent:
    """One agent bound to its parts. `run` may be entered once."""

    __slots__ = (
        "_budget", "_calls", "_continued", "_emit", "_empty", "_history", "_inbox", "_now", "_rest", "_spec",
        "_stalled", "_turns",
    )  # fmt: skip

    def __init__(
        self,
        spec: AgentSpec,
        *,
        history: History,
        inbox: Inbox,
        budget: Budget,
        emit: Callable[[Event], None],
        now: Callable[[], float],
        rest: Rest,
    ) -> None:
        self._spec = spec
        self._history = history
        self._inbox = inbox
        self._budget = budget
        self._emit = emit
        self._now = now
        self._rest = rest
        self._turns = Turns(spec.turn, scope=spec.scope, history=history, budget=budget, emit=emit, now=now)
        self._calls = CallRunner(
            tools=spec.turn.tools,
            scope=spec.scope,
            budget=budget,
            emit=emit,
            now=now,
            room=self._turns.room,
            guard=spec.turn.guard,
        )
        self._empty = 0
        self._continued = 0
        self._stalled = False  # a failed turn rests until something new comes

    async def run(self) -> Outcome:
        """Work until the task is at rest and `rest` says that nothing more will come."""
        last = _AT_REST
        while True:
            if self._spec.interruptible:
                last = await self._interruptible(last)
            else:
                last = await self._until_rest() or Outcome(state="completed", text=self._final_text())
            self._stalled = last.state != "completed"
            if last.state != "completed" and not self._spec.interactive:
                return last
            self._emit(TaskPhase(phase="idle", detail=last.error))
            if not await self._rest(last):
                return last

    async def _interruptible(self, last: Outcome) -> Outcome:
        """Take turns until nothing is due, or the inbox stops them."""
        with anyio.CancelScope() as scope:
            self._inbox.begin_turn(scope)
            try:
                last = await self._until_rest() or Outcome(state="completed", text=self._final_text())
            finally:
                interrupted = self._inbox.end_turn()
        if scope.cancelled_caught:  # an interrupt that came too late cancels nothing
            await self._note_interrupt(interrupted or "interrupted")
            last = Outcome(state="cancelled", text=self._final_text(), error=interrupted or "interrupted")
        return last

    async def _until_rest(self) -> Outcome | None:
        """Take turns until nothing is due; an Outcome where that ended early.

        A conversation rests after each answer, also when more waits: whoever asked gets the answer to that.
        """
        asked = False
        while True:
            calls = () if self._stalled else self._history.open_calls()
            if calls:
                ended = await self._answer(calls)
                if ended is not None:
                    return ended
                continue
            at_rest = self._stalled or self._history.at_rest
            if at_rest and asked and self._spec.interactive:
                return None
            if (self._inbox.pending or self._turns.warned) and await self._take_inbox(at_rest=at_rest):
                self._stalled = False
            elif at_rest:
                return None
            try:
                if self._turns.crowded and await self._turns.compact():
                    continue
                message, asked = await self._turns.ask(), True
            except LimitReached as limit:
                return await self._exhausted(limit)
            except ModelError as error:
                return Outcome(
                    state="failed",
                    text=self._final_text(),
                    error=str(error),
                    reason=error.reason,
                    permanent=error.permanent,
                    retry_after=error.retry_after,
                )
            ended = await self._accept(message)
            if ended is not None:
                return ended

    async def _accept(self, message: Assistant) -> Outcome | None:
        """Append a reply. An empty one is asked again, one cut by length continued."""
        if not message.text.strip() and not message.calls:
            self._empty += 1
            if self._empty <= MAX_EMPTY and message.stop != "content_filter":
                return None
        self._empty = 0
        entries: list[Entry] = [message]
        cut = message.stop == "length" and not message.calls
        if cut:
            self._continued += 1
            if self._continued > MAX_CONTINUED:
                message = msgspec.structs.replace(message, stop="stop", finish="length")
                entries, cut = [message], False
        if not cut:
            self._continued = 0
        else:
            entries.append(
                Notice(kind="continue", text="Your reply was cut off. Go on exactly where it stopped.", at=self._now())
            )
        await self._turns.append(entries)
        if message.stop == "content_filter":
            return Outcome(
                state="failed",
                text=message.text,
                error=f"{message.model} stopped the reply by its content policy",
                reason="content_policy_blocked",
            )
        return None

    async def _answer(self, calls: Sequence[OpenCall]) -> Outcome | None:
        """Answer the open calls and append the results together."""
        results = await self._calls.answer(calls, self._history)
        entries: list[Entry] = list(results)
        notice = self._stuck_notice()
        if notice is not None:
            entries.append(notice)
        self._turns.append_nowait(entries)
        if all([result.invalid_call for result in results]) and self._invalid_streak() >= MAX_INVALID:
            return Outcome(
                state="failed",
                text=self._final_text(),
                error=f"the model made {MAX_INVALID} invalid tool calls in a row",
                reason="invalid_calls",
                partial=True,
            )
        return None

    def _invalid_streak(self) -> int:
        """Rounds at the end of the history in which every call was invalid."""
        streak = 0
        valid = True
        for entry in self._history.newest_first():
            if isinstance(entry, ToolResult):
                valid = valid and entry.invalid_call
            elif isinstance(entry, Assistant) and entry.calls:
                if not valid:
                    break
                streak += 1
            elif isinstance(entry, (User, Assistant, Interrupted)):
                break
        return streak

    def _stuck_notice(self) -> Notice | None:
        recent: list[list[tuple[str, str]]] = []
        for entry in self._history.newest_first():
            if isinstance(entry, Assistant):
                if not entry.calls:
                    break
                recent.append([(call.name, call.raw) for call in entry.calls])
                if recent[-1] != recent[0]:
                    break
            elif isinstance(entry, User) or (isinstance(entry, Notice) and entry.kind == "stuck"):
                break
            if len(recent) == STUCK_AFTER:
                break
        if len(recent) < STUCK_AFTER or any(calls != recent[0] for calls in recent):
            return None
        return Notice(
            kind="stuck",
            text=f"You made the same call {STUCK_AFTER} times with the same result. Try something else, or answer.",
            at=self._now(),
        )

    async def _take_inbox(self, *, at_rest: bool) -> bool:
        """Let what waits enter the history, in one commit. True when anything did."""
        inbox = self._inbox
        now = self._now()
        entries: list[Entry] = []
        receipts: list[str] = []
        if at_rest and inbox.follow_ups:
            message = inbox.next_follow_up()
            entries.append(User(content=message.content, source=message.source, at=now))
            receipts.append(message.receipt)
            self._budget.new_exchange()
        for steer in inbox.take_steers():
            pictures = steer.pictures
            entries.append(
                Steer(text=steer.text, receipt=steer.receipt, sender=steer.sender, pictures=pictures, at=now)
            )
            receipts.append(steer.receipt)
        ends = inbox.take_ends()
        if ends:
            tasks = tuple(end.task_id for end in ends)
            entries.append(Notice(kind="children", text="\n\n".join(end.text for end in ends), tasks=tasks, at=now))
        remarks = inbox.take_remarks()
        entries.extend(Notice(kind=remark.kind, text=remark.text, refs=remark.refs, at=now) for remark in remarks)
        entries.extend(self._turns.take_warnings())
        if entries:
            await self._turns.append(entries, receipts=receipts, children=[end.task_id for end in ends])
        return bool(entries)

    async def _exhausted(self, limit: LimitReached) -> Outcome:
        """One more call without tools where the limits leave room for it; then the end."""
        self._emit(BudgetReached(kind=limit.kind, limit=limit.limit, scope=limit.scope))
        why = ""
        if limit.kind == "turns" and limit.scope == self._budget.scope:
            why = "You have used all the turns you were given."
        elif limit.kind in ("tokens", "cost") and self._turns.can_report():
            why = "The budget for this work is nearly used up."
        if why:
            try:
                message = await self._turns.ask_summary(why)
                if message.text.strip():
                    await self._turns.append([msgspec.structs.replace(message, calls=())])
            except (LimitReached, ModelError) as error:
                return Outcome(
                    state="exhausted", text=self._final_text(), limit=limit.kind, error=f"{limit}; no summary: {error}"
                )
        return Outcome(state="exhausted", text=self._final_text(), limit=limit.kind, error=str(limit))

    async def _note_interrupt(self, reason: str) -> None:
        """Close the open calls and mark the place, so that roles alternate whatever happened."""
        entries: list[Entry] = list(self._calls.interrupted_results(self._history.open_calls(), reason))
        entries.append(Interrupted(reason=reason, partial=self._turns.partial_text(), at=self._now()))
        with anyio.CancelScope(shield=True):
            await self._turns.append(entries)

    def _final_text(self) -> str:
        """The newest text of the model; cut replies are joined with what continued them."""
        parts: list[str] = []
        for entry in self._history.newest_first():
            if isinstance(entry, Assistant):
                if entry.text.strip() and (not parts or entry.stop == "length"):
                    parts.append(entry.text)
                elif parts:
                    break
            elif isinstance(entry, User) and parts:
                break
        return "".join(reversed(parts))
