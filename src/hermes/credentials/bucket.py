"""The two token buckets of a limit, of requests and of tokens; a request has to find room in both.

Each is learned by refusals (`flow`) or told by the provider's headers and words; what was told is believed. It keeps no
time of its own: each call says when it is.
"""

from __future__ import annotations

from hermes.credentials.flow import Flow

__all__ = ["Bucket"]


class Bucket:
    """The buckets. Until something is known of tokens they are not counted."""

    def __init__(self) -> None:
        self.requests = Flow()
        self.tokens: Flow | None = None

    @property
    def rate(self) -> float | None:
        """Requests a second, None until a limit was met."""
        return self.requests.rate

    # -- taking -----------------------------------------------------------------------------------------------------

    def take(self, now: float, tokens: float = 0.0, *, pressed: bool = True) -> bool:
        """Take one request of `tokens` tokens out if there is one. `pressed`: more wait, so the rate may be tried."""
        counted = self.tokens if tokens else None
        if not self.requests.ready(now, 1.0, pressed=pressed):
            return False
        if counted is not None:
            if not counted.ready(now, tokens, pressed=pressed):
                return False
            counted.spend(now, tokens)
        self.requests.spend(now, 1.0)
        return True

    def delay(self, now: float, tokens: float = 0.0) -> float:
        """Seconds until `take` may succeed."""
        wait = self.requests.delay(now, 1.0)
        if self.tokens is not None and tokens:
            wait = max(wait, self.tokens.delay(now, tokens))
        return wait

    # -- learning ---------------------------------------------------------------------------------------------------

    def refused(
        self, sent: float, now: float, *, fresh: bool, tokens: float | None = None, at_once: bool = False
    ) -> None:
        """A request sent at `sent` was refused. `tokens`: it was their number that was too much; None: the requests.
        `at_once`: the provider said that nothing has to be waited for."""
        if tokens is None:
            self.requests.refuse(sent, now, 1.0, fresh=fresh, at_once=at_once)
            return
        if self.tokens is None:
            self.tokens = Flow()
        self.tokens.refuse(sent, now, tokens, fresh=fresh, at_once=at_once)

    def report(self, kind: str, now: float, limit: float, remaining: float, reset: float, under_way: int = 0) -> None:
        """The provider says: `remaining` of `limit` are left, all of them back in `reset` seconds. `kind` is `requests`
        or `tokens`; `under_way` requests are sent and may not be counted yet."""
        if limit <= 0 or reset <= 0:
            return
        if kind == "tokens":
            flow = self.tokens = self.tokens or Flow()
            flow.tell(now, limit, remaining, max(limit - remaining, 1.0) / reset)
        else:
            rate = max((limit - remaining) / reset, 1.0 / reset)
            self.requests.tell(now, limit, max(0.0, min(remaining, limit) - under_way), rate)

    # -- other processes --------------------------------------------------------------------------------------------

    @property
    def flows(self) -> tuple[Flow, Flow | None]:
        """The bucket of requests and the one of tokens."""
        return self.requests, self.tokens

    def share(self, part: float) -> None:
        """This process has this part of what is allowed."""
        for flow in (self.requests, self.tokens):
            if flow is not None:
                flow.divide(part)

    @property
    def counts_tokens(self) -> bool:
        """Whether the size of a request matters: tokens were refused, or fewer than half are left."""
        known = self.tokens
        return known is not None and (not known.told or known.level < known.size / 2)
