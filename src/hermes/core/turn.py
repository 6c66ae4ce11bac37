"""One model call of a task: reservation, request, stream, message, and the side calls (summary, compaction)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import anyio
import msgspec

from hermes.core.assemble import Assembler
from hermes.core.codec import scrub_surrogates
from hermes.core.compaction import (
    Compaction,
    compaction_request,
    estimate_entries,
    estimate_tools,
    protected_start,
)
from hermes.core.errors import LimitReached, ModelError
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
from hermes.core.limits import Budget
from hermes.core.messages import Assistant, Entry, Notice, Summary, Text, Usage, User
from hermes.core.model import Delta, Model, ModelRequest, Restarted, TextDelta, ThinkingDelta, ToolChoice
from hermes.core.scope import TaskScope
from hermes.core.tools import Tool

__all__ = ["TurnSettings", "Turns"]

#: What is reserved for the answer where no cap is set: design figure for a reply of ordinary length.
RESERVED_OUTPUT = 4_096
_SUMMARY_REQUEST = (
    "You have used all the turns you were given. Without calling tools, write the final report now: what was done, "
    "what was found, what is missing."
)


class TurnSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a task asks its model. `restate` returns what a compacted segment must still know (open handles)."""

    model: Model
    tools: tuple[Tool, ...]
    watched: Callable[[], bool]
    max_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    prefill: tuple[Mapping[str, str], ...] = ()
    extra: Mapping[str, object] = {}
    compaction: Compaction = Compaction()
    restate: Callable[[], str] = lambda: ""
    before_ask: Callable[[], object] | None = None


class Turns:
    """Asks the model for one task."""

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
        self._assembler: Assembler | None = None
        self._reported: tuple[int, int] | None = None  # (history position, tokens up to it) as the provider counted
        self._overflowed = False
        self._warnings: list[Notice] = []
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
        notify: bool = False,
    ) -> None:
        """Append and wait until it stands, then tell the views."""
        first = self._history.next_position
        await self._history.append(entries, receipts=receipts, children=children).wait()
        self._announce(first, entries)
        if notify and children:
            self._emit(NoticeDelivered(tasks=tuple(children), position=first + len(entries) - 1))

    def _announce(self, first: int, entries: Sequence[Entry]) -> None:
        for offset, entry in enumerate(entries):
            self._emit(EntryAdded(position=first + offset, entry=entry))

    def take_warnings(self) -> list[Notice]:
        """Notices about limits that came near since the last boundary."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def _warned(self, kind: str, used: float, limit: float, scope: str) -> None:
        self._emit(BudgetWarned(kind=kind, used=used, limit=limit, scope=scope))
        self._warnings.append(
            Notice(
                kind="budget",
                text=f"{used:g} of {limit:g} {kind} are used. Finish the essential part and write your report.",
                at=self._now(),
            )
        )

    # -- sizes ------------------------------------------------------------------------------------------------------

    def size(self) -> int:
        """Tokens of the next request: what the provider last counted and an estimate of what was added since."""
        if self._reported is not None:
            position, tokens = self._reported
            added = [entry for place, entry in self._history.positions() if place > position]
            return tokens + estimate_entries(added)
        segment = self._history.segment
        return estimate_entries((User(content=(Text(segment.system),)), *self._history.view())) + estimate_tools(
            segment.tools
        )

    def room(self) -> int:
        """Tokens of the window that are still free."""
        return max(0, self._settings.model.profile.window - self.size())

    def partial_text(self) -> str:
        """What came of a reply that was stopped."""
        return scrub_surrogates(self._assembler.text) if self._assembler is not None else ""

    # -- calls ------------------------------------------------------------------------------------------------------

    async def ask(self) -> Assistant:
        """Ask for the next reply, within budget. Does not append it.

        Raises:
            LimitReached: no budget for another turn.
            ModelError: the model failed for good; a context that overflowed was compacted once first.
        """
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

    async def ask_summary(self) -> Assistant:
        """The one extra call at the cap on turns: no tools, a final report."""
        notice = Notice(kind="budget", text=_SUMMARY_REQUEST, at=self._now())
        await self.append([notice])
        return await self._call("summary", self._history.view(), "none")

    async def _call(self, purpose: str, entries: tuple[Entry, ...], choice: ToolChoice) -> Assistant:
        settings = self._settings
        estimate = self.size() if purpose != "compaction" else estimate_entries(entries)
        room = self._budget.room()
        max_tokens = settings.max_tokens
        wanted = max_tokens or min(RESERVED_OUTPUT, settings.model.profile.max_output)
        if room is not None:
            wanted = max(1, min(wanted, room - estimate)) if room > estimate else 1
            max_tokens = wanted
        reservation = self._budget.reserve(estimate + wanted, self._price(estimate, wanted))
        self._number += 1
        self._emit(TurnStarted(turn=self._number, model=settings.model.name, input_estimate=estimate, purpose=purpose))
        self._emit(TaskPhase(phase="model"))
        request = self._request(purpose, entries, choice, max_tokens)
        began = anyio.current_time()
        self._assembler = assembler = Assembler()
        spent = Usage(input=estimate, output=0, estimated=True)
        error = ""
        calls = 0
        try:
            message = await self._stream(request, assembler, estimate)
            spent = self._priced(message.usage) + assembler.lost
            calls = len(message.calls)
            message = msgspec.structs.replace(message, usage=spent)
        except ModelError as failure:
            error = str(failure)
            spent = assembler.lost if not assembler.started else spent + assembler.lost
            raise
        finally:
            # Also when cancelled: the tokens were sent, so they are charged and shown.
            reservation.settle(spent)
            self._emit(
                TurnEnded(
                    turn=self._number,
                    model=settings.model.name,
                    usage=spent,
                    duration=round(anyio.current_time() - began, 4),
                    calls=calls,
                    purpose=purpose,
                    error=error,
                )
            )
        self._budget.settled()
        if purpose != "compaction":
            self._reported = (self._history.next_position, message.usage.input + message.usage.output)
            if message.usage.estimated:
                self._reported = None
        self._assembler = None
        return message

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
                extra=settings.extra,
            )
        return ModelRequest(
            system=segment.system,
            entries=entries,
            tools=segment.tools,
            tool_choice=choice,
            max_tokens=max_tokens,
            temperature=settings.temperature,
            reasoning_effort=settings.reasoning_effort,
            steer_nonce=segment.nonce,
            watched=settings.watched(),
            affinity=self._scope.task_id,
            prefill=settings.prefill,
            extra=settings.extra,
        )

    async def _stream(self, request: ModelRequest, assembler: Assembler, estimate: int) -> Assistant:
        async with self._settings.model.stream(request) as deltas:
            async for delta in deltas:
                assembler.push(delta)
                if request.watched or isinstance(delta, Restarted):
                    self._show(delta)
        guess = Usage(
            input=estimate,
            output=estimate_entries((Assistant(text=assembler.text + assembler.thinking),)),
            estimated=True,
        )
        return assembler.finish(model=self._settings.model.name, at=self._now(), estimate=guess)

    def _show(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._emit(TextDeltaEvent(text=delta.text))
        elif isinstance(delta, ThinkingDelta):
            self._emit(ThinkingDeltaEvent(text=delta.text))
        elif isinstance(delta, Restarted):
            self._emit(StreamRestarted(attempt=delta.attempt, reason=delta.reason))
            self._emit(RetryWaiting(attempt=delta.attempt, reason=delta.reason, seconds=delta.wait))

    def _price(self, tokens_in: int, tokens_out: int) -> float:
        profile = self._settings.model.profile
        return (tokens_in * (profile.price_input or 0.0) + tokens_out * (profile.price_output or 0.0)) / 1e6

    def _priced(self, usage: Usage) -> Usage:
        """Add the cost where the provider named none and the price is known."""
        profile = self._settings.model.profile
        if usage.cost_usd is not None or profile.price_input is None or profile.price_output is None:
            return usage
        cached = profile.price_cached if profile.price_cached is not None else profile.price_input
        cost = (
            (usage.input - usage.cached) * profile.price_input
            + usage.cached * cached
            + usage.output * profile.price_output
        ) / 1e6
        return msgspec.structs.replace(usage, cost_usd=cost)

    # -- compaction -------------------------------------------------------------------------------------------------

    async def compact_if_due(self) -> bool:
        """Compact when the next request would fill more than the threshold of the window. True when it did."""
        compaction = self._settings.compaction
        if not compaction.enabled or self._overflowed:
            return False
        if self.size() <= compaction.threshold * self._settings.model.profile.window:
            return False
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
        before = self.size()
        old = tuple(entry for place, entry in positions if place < start)
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
        await history.begin(new, [summary]).wait()
        self._reported = None
        self._emit(EntryAdded(position=position, entry=summary))
        self._emit(ContextCompacted(segment=new.number, before_tokens=before, after_tokens=self.size()))
        return True
