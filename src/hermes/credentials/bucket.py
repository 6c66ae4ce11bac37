"""A token bucket whose rate and size are learned: from headers, or from when a provider refuses.

At a refusal the provider's own bucket is empty. What it accepted between two refusals, over the time between them, is
therefore its rate, if its bucket was not full in between; if it was, what it accepted since, less what the bucket held,
is. The largest of these quotients over times that are long enough is the rate. It keeps no time of its own: each call
says when it is.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Bucket"]

#: Growth of the rate in a second while everything is used: before and after the rate was measured.
SEARCH, PROBE = 0.15, 0.01
#: Share of a measured rate that is used, so that the provider's bucket fills again.
MARGIN = 0.985
#: Seconds and accepted requests, of which one has to be reached for a time to measure anything; longest time that does.
SHORTEST, FEWEST, LONGEST = 4.0, 100, 60.0
#: What is left of the rate at a refusal that measures nothing.
CUT = 0.85
#: Accepted requests that are remembered to tell how many went through at once.
REMEMBERED = 1024
#: How often, in seconds, what was accepted so far is noted, and how many notes are kept.
NOTE_EVERY, NOTES = 0.25, 240


class _Tokens:
    """The provider's own count of tokens, as its headers tell it."""

    def __init__(self) -> None:
        self.limit = 0.0
        self.left = 0.0
        self.rate = 0.0
        self.at = 0.0

    def now(self, now: float) -> float:
        return min(self.limit, self.left + self.rate * (now - self.at))


class Bucket:
    """The bucket. `rate` is requests a second, None until a limit was met; `size` how many may go at once."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self.size = 1.0
        self.level = 0.0
        self._at = 0.0
        self._told = False  # by headers: nothing is to be found out
        self._measured = False
        self._empty: float | None = None
        self._total = 0
        self._empties: deque[tuple[float, int]] = deque()
        self._first: float | None = None
        self._rush = 0
        self._notes: deque[tuple[float, int]] = deque(maxlen=NOTES)
        self._recent: deque[float] = deque(maxlen=REMEMBERED)
        self._tokens: _Tokens | None = None

    # -- taking -----------------------------------------------------------------------------------------------------

    def take(self, now: float, tokens: float = 0.0, *, pressed: bool = True) -> bool:
        """Take one request of `tokens` tokens out if there is one. `pressed`: more wait, so the rate may be tried."""
        if self.rate is not None:
            self._fill(now, pressed)
            if self.level < 1.0:
                return False
        if self._tokens is not None and tokens and not self._take_tokens(now, tokens):
            return False
        if self.rate is not None:
            self.level -= 1.0
        return True

    def delay(self, now: float, tokens: float = 0.0) -> float:
        """Seconds until `take` may succeed."""
        wait = 0.0
        if self.rate is not None:
            self._fill(now, False)
            wait = max(0.0, (1.0 - self.level) / self.rate)
        known = self._tokens
        if known is not None and tokens and known.rate > 0:
            wait = max(wait, (min(tokens, known.limit) - known.now(now)) / known.rate)
        return wait

    def _fill(self, now: float, pressed: bool) -> None:
        rate, passed = self.rate, now - self._at
        if rate is None or passed <= 0:
            return
        self._at = now
        self.level = min(self.size, self.level + rate * passed)
        if pressed and not self._told:
            self.rate = rate * (1.0 + (PROBE if self._measured else SEARCH) * min(passed, 1.0))

    def _take_tokens(self, now: float, tokens: float) -> bool:
        known = self._tokens
        if known is None:
            return True
        left = known.now(now)
        if left < min(tokens, known.limit):
            return False
        known.left, known.at = left - tokens, now
        return True

    # -- learning ---------------------------------------------------------------------------------------------------

    def accepted(self, sent: float, now: float, under_way: int = 0) -> None:
        """A request sent at `sent` was accepted; `under_way` others are not answered yet, and will mostly be too."""
        if self._empty is None:
            self._recent.append(sent)
            return
        if self._first is not None and sent <= self._first:
            self._rush += 1  # it went with the first rush, which the provider's bucket held
            self.size = max(1.0, self._rush)
            if not self._measured and not self._told:
                self.rate = max(self.rate or 1.0, self._rush)
            return
        if not self._notes or now >= self._notes[-1][0] + NOTE_EVERY:
            self._notes.append((now, self._total + under_way))
        self._total += 1

    def refused(self, now: float, *, fresh: bool, under_way: int = 0) -> None:
        """A request was refused: the bucket is empty. `fresh`: for the first time since the rate was last put right."""
        if self._told:
            self.level = 0.0
            return
        if self._empty is None:
            self._begin(now)
        elif fresh:
            self._measure(now, self._total + under_way)
        if self._empties and now - self._empties[-1][0] < NOTE_EVERY:
            self._empties.pop()
        # the first rush is not counted, so neither is what of it is under way
        self._empties.append((now, self._total + (under_way if self._empties else 0)))
        self._empty = now
        self.level, self._at = 0.0, now

    def _begin(self, now: float) -> None:
        self._rush = sum(1 for sent in self._recent if sent > now - 1.0)
        self._first, self.size, self.rate = now, max(1.0, self._rush), max(1.0, self._rush)
        self._recent.clear()

    def _measure(self, now: float, total: int) -> None:
        while len(self._empties) > 1 and now - self._empties[0][0] > LONGEST:
            self._empties.popleft()
        found = 0.0
        for points, held in ((self._empties, 0.0), (self._notes, self.size)):
            for at, before in points:
                passed, accepted = now - at, total - before
                if passed >= SHORTEST or (passed > 0 and accepted >= FEWEST):
                    found = max(found, (accepted - held) / passed)
        if found > 0:
            self.rate, self._measured = max(0.05, MARGIN * found), True
        else:
            self.rate = max(0.05, CUT * (self.rate or 1.0))

    def report(self, now: float, limit: float, remaining: float, reset: float, *, under_way: int = 0) -> None:
        """Headers: `remaining` of `limit` requests are left, all of them back in `reset` seconds; `under_way` are sent
        and may not be counted yet."""
        if limit <= 0 or reset <= 0:
            return
        self._told = True
        self.size, self.level, self._at = limit, max(0.0, min(remaining, limit) - under_way), now
        self.rate = max((limit - remaining) / reset, 1.0 / reset)

    def report_tokens(self, now: float, limit: float, remaining: float, reset: float) -> None:
        """The same for tokens."""
        if limit <= 0 or reset <= 0:
            return
        known = self._tokens = self._tokens or _Tokens()
        known.limit, known.left, known.at = limit, remaining, now
        known.rate = max(limit - remaining, 1.0) / reset

    @property
    def counts_tokens(self) -> bool:
        """Whether few enough tokens are left that the size of a request matters."""
        known = self._tokens
        return known is not None and known.left < known.limit / 2
