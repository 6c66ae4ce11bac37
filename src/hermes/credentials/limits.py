"""What is learned of a provider's limits, for each credential and model: how many requests a second, how many at once.

Both admit every request. The rate is a token bucket, filled by what the provider's headers say or else by the spacing
of its refusals; the number at once grows while all is clean and everything that is allowed is used, and shrinks once an
episode. Those who wait stand in two lines, requests that a person looks at before the others, and trees take turns in
each. It knows no keys and speaks to nobody; what other processes do with the same key is brought to it as a grant.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import anyio

from hermes.credentials.bucket import Bucket
from hermes.credentials.flow import Flow
from hermes.credentials.grants import GRANT, Found, Grant, Want, believed
from hermes.credentials.queueing import Line, Waiter

__all__ = ["LOCAL_START", "LearnedLimit", "LearnedLimits", "START"]

#: Requests at once before anything is known: of a provider on the network, and of a server on this machine, which
#: queues rather than refuses.
START, LOCAL_START = 64, 1024
#: Seconds for which an answer shows that the key works.
SHORTLY = 5.0
#: Seconds by which a wait gets longer that are told to those who wait.
WORTH_SAYING = 2.0
#: What remains of the requests at once after an episode.
SHRINK = 0.8


class LearnedLimit:
    """Permits for the requests of one credential to one model. A permit is the moment it was given (loop seconds).

    Args:
        start: requests at once before anything is known.
        now: seconds of the loop's clock.
        heard: called when there is something to tell other processes; with True if it should not wait for long.
    """

    def __init__(
        self,
        *,
        start: int = START,
        now: Callable[[], float] = anyio.current_time,
        heard: Callable[[bool], None] | None = None,
    ) -> None:
        self.at_once = self._start = float(start)
        self.in_flight = 0
        self.refused = 0
        self._now = now
        self._bucket = Bucket()
        self._front, self._back = Line(), Line()
        self._ramp = True  # nothing was refused yet: grow by leaps
        self._episode = -math.inf  # permits given before belong to the last episode
        self._paused = -math.inf
        self._answered = -math.inf
        self._held = 0.0  # how long a request takes, smoothed
        self._timer: asyncio.TimerHandle | None = None
        self._heard = heard
        self._listens = False
        self._sent_back = 0  # refused since others were told: they wait elsewhere and come again
        self._given: float | None = None  # requests at once that are this process's part
        self._crowded = False  # more went at once than was allowed
        self._told = (0.0, 0.0)  # requests and tokens sent when it was last said how many

    @property
    def rate(self) -> float | None:
        """Requests a second that are thought to be allowed; None where no limit was met."""
        return self._bucket.rate

    @property
    def waiting(self) -> int:
        """Requests that wait for a permit."""
        return self._front.count + self._back.count

    # -- permits ----------------------------------------------------------------------------------------------------

    def try_acquire(self, tokens: float = 0.0) -> float | None:
        """A permit if there is one at once and nobody waits for it. `tokens` are those of the request."""
        return None if self.waiting else self._grant(tokens)

    async def acquire(
        self, *, tree: str = "", foreground: bool = False, again: bool = False, tokens: float = 0.0
    ) -> float | None:
        """Wait for a permit; None if `evict` sent the waiters away. `again`: refused before, so it goes first."""
        waiter = Waiter(tokens)
        line = self._front if foreground else self._back
        line.push(tree, waiter, first=again)
        self._tell()
        self._pump()
        try:
            await waiter.event.wait()
        except BaseException:
            if waiter.permit is not None:
                self.release(waiter.permit)
            else:
                line.remove(tree, waiter)
                self._pump()
            raise
        return waiter.permit

    def release(self, permit: float) -> None:
        """Give a permit back: the request is over, however it ended."""
        self.in_flight -= 1
        took = self._now() - permit
        self._held = took if not self._held else 0.9 * self._held + 0.1 * took
        if self.waiting:
            self._pump()

    def evict(self) -> None:
        """Send everybody who waits away, to ask with another key."""
        while (waiter := self._front.pop() or self._back.pop()) is not None:
            waiter.event.set()
        self._stop_timer()

    def estimate(self) -> float:
        """Seconds that a request which comes now will wait, roughly; 0 where that is not known."""
        now, ahead = self._now(), self.waiting + 1
        by_count = ahead / self.at_once * self._held if self.in_flight >= int(self.at_once) else 0.0
        by_rate = (ahead - 1) / self._bucket.rate if self._bucket.rate else 0.0
        return max(self._paused - now, 0.0) + max(self._bucket.delay(now, 0.0) + by_rate, by_count)

    # -- what came of it --------------------------------------------------------------------------------------------

    def answered(self, permit: float) -> None:
        """The provider accepted the request of `permit`."""
        now = self._now()
        self._answered = now
        if self.in_flight >= int(self.at_once) or self._bucket.rate is None and self.waiting:
            self.at_once += 2.0 if self._ramp else 1.0 / self.at_once
            if self.waiting:
                self._pump()

    def limited(self, permit: float, wait: float | None, *, tokens: float | None = None) -> None:
        """The provider refused the request for its rate; `wait` are the seconds it named. `tokens`: it was the number
        of these that was too much."""
        now = self._now()
        self.refused += 1
        self._sent_back += 1
        fresh = permit > self._episode
        if fresh:
            self._shrink(now)
        self._bucket.refused(permit, now, fresh=fresh, tokens=tokens, at_once=wait == 0)
        if wait is not None:
            self._pause(now, now + wait)
        self._tell(soon=fresh)
        self._rearm()

    def overloaded(self, permit: float) -> None:
        """The provider could not take the request: it is asked for less at once, its rate stays."""
        if permit > self._episode:
            self._shrink(self._now())

    def contended(self, permit: float) -> bool:
        """Whether others were answered since `permit` or shortly before: its refusal was a matter of turn then."""
        return self._answered >= permit - SHORTLY

    def reported(self, kind: str, limit: float, remaining: float, reset: float) -> None:
        """What headers say: of `limit` requests (or tokens) `remaining` are left, all are back in `reset` seconds."""
        now = self._now()
        self._bucket.report(kind, now, limit, remaining, reset, max(0, self.in_flight - 1))
        if self.waiting:
            self._rearm()

    @property
    def counts_tokens(self) -> bool:
        """Whether the size of a request matters: the provider said that few tokens are left."""
        return self._bucket.counts_tokens

    # -- other processes --------------------------------------------------------------------------------------------

    def want(self, name: str, passed: float, epoch: float) -> Want:
        """What other processes are to know, `passed` seconds after the last time (0: too soon to say how much is sent).
        `epoch` + loop time = wall time."""
        requests, tokens = self._bucket.flows
        sent = (requests.sent, tokens.sent if tokens is not None else 0.0)
        before, back = self._told, len(self._back) + self._sent_back
        if self._listens:
            back = max(back, 1)  # a request is about to come: nobody makes a limit without one
        if passed > 0:
            self._told, self._sent_back = sent, 0
        went = max(0.0, sent[0] - before[0])
        return Want(
            name=name,
            front=len(self._front),
            back=back + (max(self.in_flight, went) if self.in_flight or self.waiting else 0),
            trees=max(1, self._front.trees + self._back.trees),
            sent=went / max(passed, GRANT / 2) if passed > 0 else 0.0,
            tokens=max(0.0, sent[1] - before[1]) / max(passed, GRANT / 2) if passed > 0 else 0.0,
            requests=_found(requests, epoch),
            token_limit=_found(tokens, epoch),
            paused=self._paused + epoch if self._paused > self._now() and not self._listens else 0.0,
            at_once=self.at_once if self._crowded else None,
            at_once_given=self._given,
        )

    def listen(self, patience: float) -> None:
        """Give no permit before `granted`, for `patience` seconds at most: others may know the limit."""
        self._paused, self._listens = self._now() + patience, True

    def granted(self, grant: Grant | None, passed: float, epoch: float) -> None:
        """Keep to a share of what is allowed, and take over what others found out; None: there is nothing to hear."""
        if self._listens:
            self._paused, self._listens = -math.inf, False
        if grant is not None:
            self._take(grant, passed, epoch)
        self._rearm()

    def _take(self, grant: Grant, passed: float, epoch: float) -> None:
        now, bucket = self._now(), self._bucket
        self._adopt(bucket.requests, grant.requests, epoch)
        if grant.token_limit.rate is not None:
            bucket.tokens = bucket.tokens or Flow()
            self._adopt(bucket.tokens, grant.token_limit, epoch)
            bucket.tokens.others(now - passed, now, grant.tokens, pressed=grant.pressed)
        bucket.share(grant.share)
        bucket.requests.others(now - passed, now, grant.sent, pressed=grant.pressed)
        self._given = grant.at_once
        if grant.at_once is not None:
            self.at_once, self._crowded, self._ramp = grant.at_once, True, False
        elif self._ramp and bucket.rate is None:  # several that know nothing do not all begin as if they were alone
            self.at_once = min(self.at_once, max(1.0, self._start * grant.share))
        if grant.paused:
            self._pause(now, grant.paused - epoch)

    def _adopt(self, flow: Flow, found: Found, epoch: float) -> None:
        own = _found(flow, epoch)
        best = believed(own, found)
        if best.rate is None:
            return
        if (best.rate, best.at, best.measured) == (own.rate, own.at, own.measured):
            flow.size = max(flow.size, best.size)
        else:
            flow.adopt(best.rate, best.size, best.at - epoch, self._now(), measured=best.measured)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _pause(self, now: float, until: float) -> None:
        """Give no permit before `until`. Whoever waits already asks again if that is long, and says how long it is."""
        before, self._paused = max(now, self._paused), max(self._paused, until)
        if self._paused - before > WORTH_SAYING and self.waiting:
            self._sent_back += self.waiting
            self.evict()

    def _shrink(self, now: float) -> None:
        self._episode, self._ramp = now, False
        if self.in_flight >= SHRINK * self.at_once:  # else the rate was what held it, and the number is not to blame
            self.at_once, self._crowded = max(1.0, SHRINK * self.at_once), True

    def _grant(self, tokens: float) -> float | None:
        now = self._now()
        if self.in_flight >= int(self.at_once) or now < self._paused:
            return None
        if not self._bucket.take(now, tokens, pressed=self.waiting > 0):
            return None
        self.in_flight += 1
        if self._bucket.rate is not None or self._crowded:
            self._tell()
        return now

    def _tell(self, *, soon: bool = False) -> None:
        if self._heard is not None:
            self._heard(soon)

    def _pump(self) -> None:
        """Give what there is to whoever is first; set the timer if only time is missing."""
        while (line := self._front if len(self._front) else self._back if len(self._back) else None) is not None:
            waiter = line.peek()
            permit = self._grant(waiter.tokens)
            if permit is None:
                self._set_timer(waiter.tokens)
                return
            line.pop()
            waiter.permit = permit
            waiter.event.set()
        self._stop_timer()

    def _rearm(self) -> None:
        self._stop_timer()
        if self.waiting:
            self._pump()

    def _set_timer(self, tokens: float) -> None:
        if self._timer is not None or self.in_flight >= int(self.at_once):
            return  # a release pumps
        now = self._now()
        delay = max(self._paused - now, self._bucket.delay(now, tokens), 0.001)
        # a timer of the loop and not a sleeping waiter: whoever sleeps may be cancelled, and the others go on
        self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        self._pump()

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


def _found(flow: Flow | None, epoch: float) -> Found:
    if flow is None or flow.rate is None or flow.found_at is None:
        return Found()
    return Found(rate=flow.rate, size=flow.size, at=flow.found_at + epoch, measured=flow.measured)


class LearnedLimits:
    """The limits of a process, one for each (provider, credential, model), made when first asked for.

    `heard` is called as by `LearnedLimit`. Where `born` is set it is called when one is made,
    which then waits up to `patience` seconds for what they say.
    """

    patience = 0.0
    born: Callable[[], None] | None = None

    def __init__(
        self, *, now: Callable[[], float] = anyio.current_time, heard: Callable[[bool], None] | None = None
    ) -> None:
        self._now = now
        self._heard = heard
        self._limits: dict[tuple[str, str, str], LearnedLimit] = {}

    def of(self, provider: str, credential: str, model: str, *, start: int = START) -> LearnedLimit:
        """The limit of a credential of `provider` with `model`, the same object each time."""
        key = (provider, credential, model)
        limit = self._limits.get(key)
        if limit is None:
            self._limits[key] = limit = LearnedLimit(start=start, now=self._now, heard=self._heard)
            if self.born is not None:
                limit.listen(self.patience)
                self.born()
        return limit

    def all(self) -> dict[tuple[str, str, str], LearnedLimit]:
        """Every limit by (provider, credential, model)."""
        return dict(self._limits)

    def evict(self, provider: str, credential: str) -> None:
        """Send away whoever waits for this credential, whatever the model."""
        for (owner, name, _), limit in self._limits.items():
            if owner == provider and name == credential:
                limit.evict()
