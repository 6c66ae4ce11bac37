"""One model call of a task: reservation, request, stream, message, and the side calls (summary, compaction)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from hermes.core.allowance import Allowance
from hermes.core.assemble import Assembler
from hermes.core.clock import loop_clock
from hermes.core.codec import scrub_surrogates
from hermes.core.compaction import (
    Compaction,
    compaction_request,
    estimate_entries,
    estimate_tools,
    protected_start,
)
from hermes.core.errors import LimitKind, LimitReached, ModelError, StoreError
from hermes.core.events import (
    BudgetWarned,
    ContextCompacted,
    EntryAdded,
    Event,
    NoticeDelivered,
    RetryWaiting,
    StreamRestarted,
    TaskPhase,
    TextDeltaEvent,
    ThinkingDeltaEvent,
    TurnEnded,
    TurnStarted,
)
from hermes.core.history import History, Segment
from hermes.core.kit import Kit
from hermes.core.limits import Budget
from hermes.core.messages import NOTHING, Assistant, Entry, Notice, Summary, Usage, viewable
from hermes.core.model import (
    Announced,
    Delta,
    Model,
    ModelRequest,
    Restarted,
    Stop,
    TextDelta,
    ThinkingDelta,
    ToolChoice,
    ToolSpec,
)
from hermes.core.scope import TaskScope
from hermes.core.sizing import Sizing, at_most
from hermes.core.tools import Guard, Tool

__all__ = ["TurnSettings", "Turns"]

_SUMMARY_REQUEST = "Without calling tools, write the final report now: what was done, what was found, what is missing."


class TurnSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a task asks its model.

    `guard` makes the calls of its tools in their place; `restate` returns what a compacted segment must still know
    (open handles); `pace` is awaited before each call: whoever lets tasks by in turn stands there. `tool_sizes`
    estimates the tokens of a list of tools.
    """

    model: Model
    tools: tuple[Tool, ...] | Kit
    guard: Guard | None = None
    watched: Callable[[], bool]
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    prefill: tuple[Mapping[str, str], ...] = ()
    extra: Mapping[str, object] = {}
    compaction: Compaction = Compaction()
    restate: Callable[[], str] = lambda: ""
    pace: Callable[[], Awaitable[None]] | None = None
    tool_sizes: Callable[[tuple[ToolSpec, ...]], int] = estimate_tools


class Turns:
    """Asks the model for one task."""

    __slots__ = (
        "_allowance", "_assembler", "_budget", "_clock", "_emit", "_history", "_now", "_number", "_overflowed",
        "_scope", "_settings", "_sizing", "_warnings",
    )  # fmt: skip

    def __init__(
        self,
        settings: TurnSettings,
        *,
        scope: TaskScope,
        history: History,
        budget: Budget,
        emit: Callable[[Event], None],
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._scope = scope
        self._history = history
        self._budget = budget
        self._emit = emit
        self._now = now
        self._number = 0
        self._clock = loop_clock()
        self._assembler: Assembler | None = None
        self._sizing = Sizing(history, settings.tool_sizes)
        self._overflowed = False
        self._warnings: tuple[Notice, ...] = ()
        self._allowance = Allowance(budget, settings.model.profile)
        budget.on_warning = self._warned

    # -- the history, with its events -------------------------------------------------------------------------------

    def append_nowait(self, entries: Sequence[Entry]) -> None:
        """Append without waiting for the disk: the next awaited write commits it."""
        first = self._history.next_position
        self._history.append(entries)
        self._announce(first, entries)

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        receipts: Sequence[str] = (),
        children: Sequence[str] = (),
    ) -> None:
        """Append and wait until it stands, then tell the views. Cancelled meanwhile, it stands all the same."""
        first = self._history.next_position
        stands = True
        try:
            await self._history.append(entries, receipts=receipts, children=children).wait()
        except StoreError:
            stands = False
            raise
        finally:
            if stands:
                self._announce(first, entries)
                if children:
                    self._emit(NoticeDelivered(tasks=tuple(children), position=first + len(entries) - 1))

    def _announce(self, first: int, entries: Sequence[Entry]) -> None:
        for offset, entry in enumerate(entries):
            self._emit(EntryAdded(position=first + offset, entry=entry))

    @property
    def warned(self) -> bool:
        """Whether a limit came near since the last boundary."""
        return bool(self._warnings)

    def take_warnings(self) -> tuple[Notice, ...]:
        """Notices about limits that came near since the last boundary."""
        warnings, self._warnings = self._warnings, ()
        return warnings

    def _warned(self, kind: LimitKind, used: float, limit: float, scope: str, first: bool) -> None:
        if first:
            self._emit(BudgetWarned(kind=kind, used=used, limit=limit, scope=scope))
        amounts = f"${used:.4g} of ${limit:g}" if kind == "cost" else f"{used:g} of {limit:g} {kind}"
        shared = "" if scope == self._scope.task_id else " by you and the tasks you share the limit with"
        text = f"{amounts} are used{shared}. Finish the essential part and write your report."
        self._warnings += (Notice(kind="budget", text=text, at=self._now()),)

    # -- sizes ------------------------------------------------------------------------------------------------------

    def room(self) -> int:
        """Tokens of the window that are still free."""
        return max(0, self._settings.model.profile.window - self._sizing.size())

    def partial_text(self) -> str:
        """What came of a reply that was stopped."""
        return scrub_surrogates(self._assembler.text) if self._assembler is not None else ""

    # -- calls ------------------------------------------------------------------------------------------------------

    async def ask(self) -> Assistant:
        """Ask for the next reply, within budget. Does not append it.

        Raises:
            LimitReached: no budget for another turn, or after it none for a closing report.
            ModelError: the model failed for good; a context that overflowed was compacted once first.
        """
        if self._number > 0 and self._budget.limited():
            nearly = self._allowance.nearly_out(self._sizing.bound(), self._settings.max_tokens)
            if nearly is not None:
                raise nearly
        if self._settings.pace is not None:
            await self._settings.pace()
        self._budget.turn()
        try:
            return await self._call("main", self._history.view(), "auto")
        except ModelError as error:
            if error.reason not in ("context_overflow", "payload_too_large") or self._overflowed:
                raise
            self._overflowed = True
            if not await self._compact():
                raise
        message = await self._call("main", self._history.view(), "auto")
        self._overflowed = False
        return message

    def _waiting(self) -> None:
        self._emit(TaskPhase(phase="quota", detail="room in the budget that other tasks hold"))

    def can_report(self) -> bool:
        """Whether the budget has room for a closing report."""
        return self._allowance.fits(self._sizing.bound() + at_most(len(_SUMMARY_REQUEST) // 3))

    async def ask_summary(self, why: str) -> Assistant:
        """The one extra call at a limit: no tools, a final report. `why` begins the request."""
        notice = Notice(kind="budget", text=f"{why} {_SUMMARY_REQUEST}", at=self._now())
        await self.append([notice])
        return await self._call("summary", self._history.view(), "none")

    async def _call(self, purpose: str, entries: tuple[Entry, ...], choice: ToolChoice) -> Assistant:
        settings = self._settings
        side = purpose == "compaction"
        estimate = estimate_entries(entries) if side else self._sizing.size()
        bound = at_most(estimate) if side else self._sizing.bound()
        grant = await self._allowance.grant(bound, settings.max_tokens, self._waiting)
        self._number += 1
        self._emit(TurnStarted(turn=self._number, model=settings.model.name, input_estimate=estimate, purpose=purpose))
        request = self._request(purpose, entries, choice, grant.cap)
        began = self._clock()
        self._assembler = assembler = Assembler()
        spent = Usage(input=estimate, estimated=True)
        error = ""
        calls = 0
        try:
            message = await self._stream(request, assembler, estimate)
            if message.usage.estimated and grant.most is not None:
                message = msgspec.structs.replace(message, usage=grant.most)
            spent = message.usage
            calls = len(message.calls)
        except ModelError as failure:
            error = str(failure)
            spent = self._spent(assembler, estimate, grant.most) if assembler.started else NOTHING
            raise
        except BaseException:
            # Cancelled: what was sent and written is charged and shown all the same.
            spent = self._spent(assembler, estimate, grant.most) if assembler.started else spent
            raise
        finally:
            spent = self._allowance.priced(spent)
            if assembler.lost.total:
                spent = spent + self._allowance.priced(assembler.lost)
            grant.reservation.settle(spent)
            self._emit(
                TurnEnded(
                    turn=self._number,
                    model=settings.model.name,
                    usage=spent,
                    duration=round(self._clock() - began, 4),
                    calls=calls,
                    purpose=purpose,
                    error=error,
                )
            )
        self._budget.settled()
        if grant.cap is not None and settings.max_tokens is None and _was_cut(message):
            self._allowance.widen()
        if purpose != "compaction":
            self._sizing.reported(message.usage)
        self._assembler = None
        return message if message.usage is spent else msgspec.structs.replace(message, usage=spent)

    @staticmethod
    def _spent(assembler: Assembler, estimate: int, most: Usage | None) -> Usage:
        """What a reply that did not come to its end used: what was reported, else the most it may have been."""
        if assembler.reported is not None:
            return assembler.reported
        if most is not None:
            return most
        written = Assistant(text=assembler.text + assembler.thinking)
        return Usage(input=estimate, output=estimate_entries((written,)), estimated=True)

    def _request(
        self, purpose: str, entries: tuple[Entry, ...], choice: ToolChoice, max_tokens: int | None
    ) -> ModelRequest:
        """The request of a call. A compaction is a side call: no tools, no prefill, nobody watches."""
        settings, segment = self._settings, self._history.segment
        if purpose == "compaction":
            return ModelRequest(
                system="You summarise transcripts of an agent's work.",
                entries=entries,
                tool_choice=choice,
                max_tokens=max_tokens,
                watched=False,
                affinity=self._scope.task_id,
                tree=self._scope.root_id,
                extra=settings.extra,
            )
        return ModelRequest(
            system=segment.system,
            entries=viewable(entries, settings.model.profile.images),
            tools=segment.tools,
            tool_choice=choice,
            max_tokens=max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=settings.seed,
            reasoning_effort=settings.reasoning_effort,
            steer_nonce=segment.nonce,
            watched=settings.watched(),
            affinity=self._scope.task_id,
            tree=self._scope.root_id,
            prefill=settings.prefill,
            extra=settings.extra,
        )

    async def _stream(self, request: ModelRequest, assembler: Assembler, estimate: int) -> Assistant:
        watched = request.watched
        async with self._settings.model.stream(request) as deltas:
            ready: Callable[[], Sequence[Delta]] = getattr(deltas, "ready", tuple)
            async for first in deltas:
                for delta in (first, *ready()):
                    assembler.push(delta)
                    if watched or type(delta) is Restarted or type(delta) is Announced:
                        self._show(delta)
                if type(delta) is Stop:
                    break
        guess = self._spent(assembler, estimate, None)
        return assembler.finish(model=self._settings.model.name, at=self._now(), estimate=guess)

    def _show(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._emit(TextDeltaEvent(text=delta.text))
        elif isinstance(delta, ThinkingDelta):
            self._emit(ThinkingDeltaEvent(text=delta.text))
        elif isinstance(delta, Restarted):
            self._emit(StreamRestarted(attempt=delta.attempt, reason=delta.reason))
            self._emit(
                RetryWaiting(attempt=delta.attempt, reason=delta.reason, seconds=delta.wait, message=delta.message)
            )
        elif isinstance(delta, Announced):
            self._emit(delta.event)

    # -- compaction -------------------------------------------------------------------------------------------------

    @property
    def crowded(self) -> bool:
        """Whether the next request would fill more than the threshold of the window."""
        compaction = self._settings.compaction
        if not compaction.enabled or self._overflowed:
            return False
        return self._sizing.size() > compaction.threshold * self._settings.model.profile.window

    async def compact(self) -> bool:
        """Make room for the next request. True when that was possible."""
        try:
            return await self._compact()
        except (ModelError, LimitReached):
            # The request may still fit; if it does not, `ask` reports the overflow itself.
            self._overflowed = True
            return False

    async def _compact(self) -> bool:
        history, settings = self._history, self._settings
        positions = history.positions()
        start = None
        for protect in (settings.compaction.protect_last, 6, 2):
            start = protected_start(positions, protect)
            if start is not None:
                break
        if start is None:
            return False
        before = self._sizing.size()
        old = tuple(entry for place, entry in positions if place < start or isinstance(entry, Summary))
        window = settings.model.profile.window
        reply = await self._call("compaction", (compaction_request(old, max_chars=int(window * 1.5)),), "none")
        text = reply.text.strip() or "(the summary came back empty)"
        restated = settings.restate()
        if restated:
            text = f"{text}\n\n{restated}"
        segment = history.segment
        summary = Summary(text=text, upto=start, at=self._now())
        position = history.next_position
        new = Segment(
            number=segment.number + 1,
            start=position,
            system=segment.system,
            nonce=segment.nonce,
            tools=segment.tools,
        )
        self._sizing.reported(None)
        await history.begin(new, [summary]).wait()
        self._emit(EntryAdded(position=position, entry=summary))
        self._emit(ContextCompacted(segment=new.number, before_tokens=before, after_tokens=self._sizing.size()))
        return True


def _was_cut(message: Assistant) -> bool:
    return message.stop == "length" or message.finish in ("length", "max_tokens", "max_output_tokens")
