"""A token bucket whose rate and size are learned from when a provider refuses: of requests, or of tokens.

The provider takes a request out of its bucket about when it is sent, and at a refusal its bucket is empty. The rate is
therefore the smallest one with which a bucket that was empty at an early refusal could have given all that was accepted
until a later one; what it could not hold while nobody asked is lost in that reckoning as it was lost in fact. What
other processes sent counts as theirs. It keeps no time of its own: each call says when it is.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Flow"]

#: Growth of the rate in a second while everything is used: before and after the rate was measured.
SEARCH, PROBE = 0.1, 0.01
#: A rate below this many a second that was only guessed grows faster, up to doubling in a second: few were sent when it
#: was guessed, so that it may be far too small, and finding that out costs few refusals.
SMALL, DOUBLING = 45.0, 1.0
#: Growth of a guess after a refusal that named no time to wait: asking again at once is what the provider wants.
EAGER = 0.5
#: How near a rate is to the one before if it confirms it, and how often that halves the growth: a rate that was found
#: again and again is tried less often, since each try ends in a pause.
AGREES, SURE = 0.1, 3
#: Seconds of growth at most between two looks: while all are held back nothing is tried.
LEAP = 0.25
#: Seconds without a refusal after which the growth has doubled; part of a measured rate that an episode leaves.
HASTE, LEAST = 5.0, 0.9
#: Share of a measured rate that is used, so that the provider's bucket fills again.
MARGIN = 0.975
#: Share of the size that is taken at once after a pause: what stays in the provider's bucket lets the rate be tried.
SPARED = 0.5
#: Seconds and accepted requests, of which one has to be reached for a time to measure anything; longest time that does.
SHORTEST, FEWEST, LONGEST = 2.0, 60, 60.0
#: What is left of the rate at a refusal that measures nothing.
CUT = 0.85
#: Seconds by which a timer may be late on a busy machine: what the bucket gained meanwhile is not lost.
LATE = 0.2
#: Seconds of sending that are counted as one moment, and how many such moments are remembered.
MOMENT, REMEMBERED = 0.05, 1200
#: How many times larger or smaller a share is if others came or went.
SHIFT = 1.4
#: Steps of halving in which a rate is found, to a thousandth; how much larger one is tried to see whether it matters.
HALVINGS, TRIAL = 14, 0.05


class Flow:
    """The bucket. `rate` is what it gains in a second, None until a limit was met; `size` what it holds at most.

    `share` of both are for this process.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self.size = 1.0
        self.level = 0.0
        self.share = 1.0
        self.told = False  # by the provider: nothing is to be found out
        self.found_at: float | None = None
        self.sent = 0.0
        self.measured = False  # the rate is more than a first guess
        self._base = 0.0  # the rate as it was measured, before it was tried to be more
        self._confirmed = 0  # how often it was measured again to be the same
        self._at_once = self._eager = False  # the last refusal said that there is nothing to wait for; the only one did
        self._at = 0.0
        self._due = False
        self._cut = False
        self._first: float | None = None
        self._rushed, self._guess = (0.0, 0.0), 0.0
        self._empties: deque[float] = deque()
        self._sends: deque[list[float]] = deque(maxlen=REMEMBERED)  # [moment, amount, how many]
        self._others: deque[list[float]] = deque(maxlen=64)  # [since, amount a second]

    # -- taking -----------------------------------------------------------------------------------------------------

    def ready(self, now: float, amount: float, *, pressed: bool = True) -> bool:
        """Whether there is `amount`. `pressed`: more wait, so the rate may be tried."""
        if self.rate is None:
            return True
        self._fill(now, pressed)
        return self.level >= min(amount, self.held)

    def spend(self, now: float, amount: float) -> None:
        """Take `amount` out."""
        self.sent += amount
        sends = self._sends
        if sends and now - sends[-1][0] < MOMENT:
            last = sends[-1]
            last[1] += amount
            last[2] += 1
        else:
            sends.append([now, amount, 1])
        if self.rate is not None:
            self.level -= amount

    def delay(self, now: float, amount: float) -> float:
        """Seconds until there is `amount`."""
        if self.rate is None:
            return 0.0
        self._fill(now, False)
        return max(0.0, (min(amount, self.held) - self.level) / (self.rate * self.share))

    @property
    def held(self) -> float:
        """What this process takes at once."""
        if self.told:
            return max(1.0, self.size * self.share)
        return max(1.0, SPARED * self.size * self.share, LATE * (self.rate or 0.0) * self.share)

    def _fill(self, now: float, pressed: bool) -> None:
        if self._due:
            self._learn(now)
        rate, passed = self.rate, now - self._at
        if rate is None or passed <= 0:
            return
        self._at = now
        self.level = min(self.held, self.level + rate * self.share * passed)
        if pressed and not self.told and self.level < self.held:  # a bucket that fills up holds nobody back
            growth = self._growth(rate) * (1.0 + (now - (self.found_at or now)) / HASTE)
            self.rate = rate * (1.0 + growth * min(passed, LEAP))

    def _growth(self, rate: float) -> float:
        """How much of the rate is added in a second, soon after the last refusal."""
        if self.measured:
            return PROBE / 2.0**self._confirmed
        return max(EAGER if self._eager else SEARCH, min(DOUBLING, SEARCH * SMALL / rate))

    # -- learning ---------------------------------------------------------------------------------------------------

    def refuse(self, sent: float, now: float, amount: float, *, fresh: bool, at_once: bool = False) -> None:
        """What was sent at `sent` was refused: the bucket was empty. `fresh`: since the rate was last put right.
        `at_once`: the provider said that nothing has to be waited for."""
        self._at_once = at_once
        for moment in reversed(self._sends):
            if moment[0] <= sent:
                if moment[1] >= amount:  # less than that: it was not counted yet when this was sent
                    moment[1] -= amount
                    moment[2] -= 1
                    self.sent -= amount
                break
        self.found_at = now
        self.level, self._at = 0.0, now
        if self.told:
            return
        if self._first is None:
            self._first = sent
            self._empties.append(sent)
            self._guess, self._eager = max(1.0, amount), at_once
            self.rate = max(self._guess, self._rush()[0])
        elif fresh:
            self._empties.append(sent)
            self._cut, self._eager = True, False
        elif self._empties and sent < self._empties[-1] and (len(self._empties) < 2 or sent > self._empties[-2]):
            self._empties[-1] = sent  # it was empty before, only that answer came later
        self._due = True

    def _rush(self) -> tuple[float, float]:
        """What went through in the second before the first refusal, which the provider's bucket held, and how long
        that took."""
        first = self._first
        if first is None:
            return 0.0, 0.0
        parts = [each for each in self._sends if first - 1.0 < each[0] <= first]
        return sum(each[1] for each in parts), first - parts[0][0] if parts else 0.0

    def _learn(self, now: float) -> None:
        """Put rate and size right after the refusals of an episode."""
        self._due = False
        empties = self._empties
        while len(empties) > 1 and now - empties[0] > LONGEST:
            empties.popleft()
        begin, end = (empties[0], empties[-1]) if empties else (now, now)
        span = end - begin
        parts = [each for each in self._sends if begin < each[0] < end]
        total, count = sum(each[1] for each in parts), sum(each[2] for each in parts)
        long_enough = total > 0 and span > 0 and (span >= SHORTEST or count >= FEWEST)
        rate = self._fitting(parts, span, total) if long_enough else 0.0
        if rate > 0:
            least = LEAST * self._base if self.measured and self._cut else 0.0
            self._found(
                max(0.05, MARGIN * rate, least),
                measured=count >= FEWEST or not self._at_once,
                again=self._cut and not self._at_once,
            )
            self.size = max(1.0, self._rushed[0] - rate * self._rushed[1])
        elif self._cut:
            self.rate = max(0.05, CUT * (self.rate or 1.0))
        elif self._guess and end <= (self._first or 0.0) and not self.measured:  # the first refusals, and no others
            self._rushed = self._rush()
            self.size = max(1.0, self._rushed[0])
            self.rate = max(self.size, self._guess)
        self._cut = False
        after = [each for each in self._sends if each[0] > end]
        left = self._replay(self._steps(after, end, now), self.rate or 0.0)
        self.level, self._at = min(self.held, max(0.0, left * self.share)), now

    def _found(self, rate: float, *, measured: bool, again: bool) -> None:
        """This is the rate. `measured`: it is more than a guess; `again`: by another episode than the one before."""
        agrees = self.measured and measured and abs(rate - self._base) <= AGREES * self._base
        self._confirmed = min(SURE, self._confirmed + again) if agrees else 0
        self._base = self.rate = rate
        self.measured = measured

    def _fitting(self, parts: list[list[float]], span: float, total: float) -> float:
        """The smallest rate that allows `parts` between the first and the last refusal; 0 where the bucket was full
        just before that, since larger ones allow them as well."""
        begin, end = self._empties[0], self._empties[-1]
        total += self._foreign(begin, end)
        low, high = 0.0, 4.0 * total / span
        steps = self._steps(parts, begin, end)
        if self._replay(steps, high) < 0:
            return total / span  # more went at once than the bucket was thought to hold
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self._replay(steps, middle) < 0:
                low = middle
            else:
                high = middle
        gained = self._replay(steps, (1 + TRIAL) * high) - self._replay(steps, high)
        since_full = gained / (TRIAL * high)
        return high if since_full > SHORTEST / 2 or since_full * high > FEWEST / 2 else 0.0

    def _steps(self, parts: list[list[float]], begin: float, end: float) -> list[tuple[float, float, float]]:
        """What went on from `begin` to `end`: seconds that passed, what others took meanwhile, what was taken then."""
        steps, at = [], begin
        for when, amount, _ in parts:
            when = max(when, at)
            steps.append((when - at, self._foreign(at, when), amount))
            at = when
        steps.append((end - at, self._foreign(at, end), 0.0))
        return steps

    def _replay(self, steps: list[tuple[float, float, float]], rate: float) -> float:
        """The level after `steps` of a bucket that was empty before them and gains `rate`."""
        level, size = 0.0, self.size
        for passed, others, amount in steps:
            level += rate * passed - others
            if level > size:
                level = size
            level -= amount
        return level

    # -- other processes --------------------------------------------------------------------------------------------

    def divide(self, share: float) -> None:
        """This process has this part of what is allowed from now on."""
        if max(share, self.share) > SHIFT * min(share, self.share):
            self._empties.clear()  # others came or went, and it is not known since when: measure anew
        self.level = min(self.level, self.level * share / self.share)
        self.share = share

    def others(self, since: float, now: float, speed: float, *, pressed: bool = False) -> None:
        """Other processes sent `speed` a second between `since` and `now`, and go on like that within their share;
        `pressed`: they have so much to do that they use it up."""
        known = self._others
        if not known and not speed:
            return
        if known and known[-1][0] >= since:
            known[-1][1] = speed
        else:
            known.append([since, speed])
        if now > since:
            share = speed if self.rate is None else self.rate * (1 - self.share)
            known.append([now, share if pressed else min(speed, share)])

    def _foreign(self, begin: float, end: float) -> float:
        """What other processes sent meanwhile."""
        if not self._others:
            return 0.0
        found, until = 0.0, end
        for since, speed in reversed(self._others):
            if since < until:
                found += speed * (until - max(since, begin))
                until = since
            if until <= begin:
                break
        return found

    def tell(self, now: float, size: float, level: float, rate: float) -> None:
        """The provider says what it is: of `size` there are `level`, and `rate` a second comes back."""
        self.told, self.measured, self.found_at = True, True, now
        self.size, self.level, self._at, self.rate = size, level * self.share, now, rate

    def adopt(self, rate: float, size: float, found_at: float, now: float, *, measured: bool) -> None:
        """Take over what another process found out at `found_at`."""
        if self.rate is None:
            self.level, self._at = 0.0, now
        self._found(max(0.05, rate), measured=measured, again=False)
        self.size = max(1.0, size)
        self._due, self._cut, self.found_at = False, False, found_at
        if self._first is None:
            self._first, self._guess = now, 0.0
        if not self._empties:
            self._empties.append(now)
