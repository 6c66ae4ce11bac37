"""The history of a task: entries that only grow, and the journal they are written to before anything acts on them.

Memory and journal are appended in one synchronous step; waiting for the disk is separate (`Pending.wait`). A *segment*
is the part a request shows: one system prompt, one list of tools, an optional summary of what came before. The full
history stays in the journal; training rows come from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from hermes.core.messages import Assistant, Entry, Interrupted, Summary, ToolCall, ToolResult
from hermes.core.model import ToolSpec

__all__ = ["DONE", "History", "Journal", "MemoryJournal", "OpenCall", "Pending", "Segment"]


class Pending(Protocol):
    """Something on its way to the disk."""

    async def wait(self) -> None:
        """Wait, shielded, until it stands. Raises what the store raises."""


class _Done:
    async def wait(self) -> None:
        return None


#: A write that stands already.
DONE: Pending = _Done()


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """What every request of a segment has in common. `start` is its first history position."""

    number: int
    start: int
    system: str
    nonce: str
    tools: tuple[ToolSpec, ...]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What an append takes out of the inbox: receipts of control messages, and children whose ends it delivers."""

    receipts: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


_NOTHING = Taken()


class Journal(Protocol):
    """Where a history is written. Each method is one unit: all or nothing."""

    def segment(self, segment: Segment, entries: Sequence[tuple[int, Entry]]) -> Pending:
        """A segment begins, with its first entries."""

    def entries(
        self, entries: Sequence[tuple[int, Entry]], started: Sequence[tuple[int, int, str]], taken: Taken
    ) -> Pending:
        """Entries join; `started` are (position, index, name) of calls that begin with them."""

    def call_ended(self, result: ToolResult, delivers: Sequence[str]) -> Pending:
        """A call has its result, before the results enter the history together. `delivers` are children whose end it
        brings."""


class MemoryJournal:
    """A journal that keeps nothing: for tests and for runs that need no durability."""

    def segment(self, segment: Segment, entries: Sequence[tuple[int, Entry]]) -> Pending:
        return DONE

    def entries(
        self, entries: Sequence[tuple[int, Entry]], started: Sequence[tuple[int, int, str]], taken: Taken
    ) -> Pending:
        return DONE

    def call_ended(self, result: ToolResult, delivers: Sequence[str]) -> Pending:
        return DONE


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call without a result in the history. `result`: it ended before; `began`: it was started in an earlier life of
    the process and its effect is unknown."""

    position: int
    index: int
    call: ToolCall
    result: ToolResult | None
    began: bool


class History:
    """Entries of the current segment with their positions, and all entries of this life.

    `restored` brings what the store knew: entries from the segment's start, results and marks of open calls.
    """

    __slots__ = (
        "_all",
        "_began",
        "_first",
        "_journal",
        "_next",
        "_places",
        "_results",
        "_segment",
        "_shown",
        "revision",
    )

    def __init__(
        self,
        journal: Journal,
        *,
        segment: Segment | None = None,
        entries: Iterable[tuple[int, Entry]] = (),
        results: Mapping[tuple[int, int], ToolResult] | None = None,
        began: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._journal = journal
        self._segment = segment
        numbered = list(entries)
        self._all: list[Entry] = [entry for _, entry in numbered]
        self._shown = self._all  # what the segment shows; one list with `_all` until a segment shows less
        self.revision = 0  # grows with each change of what is shown
        # A summary stands before the tail that it protects, so the last entry need not have the highest position.
        start = segment.start if segment else 0
        self._next = max((position + 1 for position, _ in numbered), default=start)
        self._first = start
        self._places: list[int] | None = None
        self._place([position for position, _ in numbered])
        self._results = dict(results) if results else None  # of calls whose round has not ended
        self._began: Collection[tuple[int, int]] = frozenset(began) or ()

    def _place(self, positions: list[int]) -> None:
        """Note the positions of what is shown. Mostly they follow each other and the first says it all."""
        self._first = positions[0] if positions else self._next
        follow = not positions or positions == list(range(positions[0], positions[0] + len(positions)))
        self._places = None if follow else positions

    @property
    def segment(self) -> Segment:
        """The current segment. Raises ValueError before `begin`."""
        if self._segment is None:
            raise ValueError("the history has no segment yet")
        return self._segment

    @property
    def next_position(self) -> int:
        """The position the next entry will get."""
        return self._next

    @property
    def last(self) -> Entry | None:
        """The newest entry."""
        return self._shown[-1] if self._shown else None

    @property
    def at_rest(self) -> bool:
        """Whether nothing is due: it ends with an answer, with an interruption, or is empty."""
        last = self.last
        if last is None or isinstance(last, Interrupted):
            return True
        return isinstance(last, Assistant) and not last.calls and last.stop != "length"

    def view(self) -> tuple[Entry, ...]:
        """The entries a request shows."""
        return tuple(self._shown)

    def newest_first(self) -> Iterator[Entry]:
        """The entries a request shows, the newest first."""
        return reversed(self._shown)

    def behind(self, position: int) -> list[Entry]:
        """The entries that joined behind a position, the oldest first."""
        places = self._positions()
        first = len(places)
        while first and places[first - 1] > position:
            first -= 1
        return self._shown[first:]

    def _positions(self) -> Sequence[int]:
        return self._places if self._places is not None else range(self._first, self._first + len(self._shown))

    def positions(self) -> list[tuple[int, Entry]]:
        """The entries a request shows, with their positions."""
        return list(zip(self._positions(), self._shown, strict=True))

    def full(self) -> tuple[Entry, ...]:
        """Every entry of this life of the task, across segments."""
        return tuple(self._all)

    def begin(self, segment: Segment, entries: Sequence[Entry] = ()) -> Pending:
        """Start a segment. The first entry of a later one is its Summary; the tail it protects is kept by reference."""
        numbered = self._number(entries)
        tail: list[tuple[int, Entry]] = []
        if numbered and isinstance(numbered[0][1], Summary):
            upto = numbered[0][1].upto
            tail = [item for item in self.positions() if item[0] >= upto and not isinstance(item[1], Summary)]
        self._segment = segment
        shown = [*numbered[:1], *tail, *numbered[1:]]
        self._all.extend(entries)
        self._shown = self._all if len(self._all) == len(numbered) else [entry for _, entry in shown]
        self._place([position for position, _ in shown])
        self.revision += 1
        return self._journal.segment(segment, numbered)

    def renew(self, tools: tuple[ToolSpec, ...], at: float) -> Pending:
        """Start a segment with other tools, or for another model, that shows everything the last one did: its first
        entry repeats the summary that was shown, an empty one where there was none."""
        old, first = self.segment, self._shown[0] if self._shown else None
        kept = Summary(text="", upto=self._positions()[0] if self._shown else self._next, at=at)
        if isinstance(first, Summary):
            kept = msgspec.structs.replace(first, at=at)
        new = msgspec.structs.replace(old, number=old.number + 1, start=self._next, tools=tools)
        return self.begin(new, (kept,))

    def append(
        self, entries: Sequence[Entry], *, receipts: Sequence[str] = (), children: Sequence[str] = ()
    ) -> Pending:
        """Append entries, in memory and to the journal in one step. Calls of an Assistant count as started."""
        numbered = self._number(entries)
        started: list[tuple[int, int, str]] = []
        for position, entry in numbered:
            if isinstance(entry, Assistant):
                if entry.calls:
                    started.extend([(position, index, call.name) for index, call in enumerate(entry.calls)])
            elif self._results is not None and isinstance(entry, ToolResult):
                self._results.pop((entry.position, entry.index), None)
                self._results = self._results or None
        if self._places is not None:
            self._places.extend([position for position, _ in numbered])
        elif not self._shown:
            self._first = numbered[0][0] if numbered else self._first
        self._all.extend(entries)
        if self._shown is not self._all:
            self._shown.extend(entries)
        self.revision += 1
        taken = Taken(receipts=tuple(receipts), children=tuple(children)) if receipts or children else _NOTHING
        return self._journal.entries(numbered, started, taken)

    def _number(self, entries: Sequence[Entry]) -> list[tuple[int, Entry]]:
        numbered = list(enumerate(entries, self._next))
        self._next += len(numbered)
        return numbered

    def record(self, result: ToolResult, delivers: Sequence[str] = ()) -> Pending:
        """Keep the result of a call until all results of its turn enter the history together."""
        if self._results is None:
            self._results = {}
        self._results[(result.position, result.index)] = result
        return self._journal.call_ended(result, delivers)

    def open_calls(self) -> list[OpenCall]:
        """Calls of the newest assistant message that have no result in the history yet, in their order."""
        shown = self._shown
        for place in range(len(shown) - 1, -1, -1):
            entry = shown[place]
            if isinstance(entry, ToolResult):
                return []
            if isinstance(entry, Assistant):
                position = self._first + place if self._places is None else self._places[place]
                return [
                    OpenCall(
                        position=position,
                        index=index,
                        call=call,
                        result=self._results.get((position, index)) if self._results is not None else None,
                        began=(position, index) in self._began,
                    )
                    for index, call in enumerate(entry.calls)
                ]
            if not isinstance(entry, Summary):
                return []
        return []
