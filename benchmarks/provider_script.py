"""What the loopback model of the benchmarks answers: children work through five turns, a parent starts them and talks.

A conversation that begins with `PARENT` is a parent's. `start N sync|async` in its newest message spawns N children,
anything else is answered after 20 ms. Any other conversation is a child's: four calls of `todo`, then a report, each
after 200 ms.
"""

from __future__ import annotations

from hermes.testing.faults import Status, rate_limited
from hermes.testing.scripted import Reply, call, reply
from hermes.testing.server import Request

__all__ = ["TURNS", "answer", "batch", "endless", "limited"]

TURNS = 5
CHILD_DELAY, PARENT_DELAY = 0.2, 0.02


def answer(request: Request) -> Reply:
    """A parent or a child of five turns."""
    return _parent(request) if request.first_user.startswith("PARENT") else _child(request, TURNS)


def endless(request: Request) -> Reply:
    """A parent, or a child that never comes to an end and whose model takes a second."""
    return _parent(request) if request.first_user.startswith("PARENT") else _child(request, 1_000_000, delay=1.0)


def batch(request: Request) -> Reply:
    """One command, then an answer; the server's own latency comes before each."""
    if request.turn == 0:
        return reply(thinking="look first", calls=[call("terminal", call_id="call_0", command="echo one")])
    return reply("There is one.", thinking="that was it")


def _parent(request: Request) -> Reply:
    words = request.last.split()
    if "start" not in words:
        return reply("ok", delay=PARENT_DELAY)
    count, how = words[words.index("start") + 1 :][:2]
    tasks = [{"goal": f"Work through the list of part {number:06d} and report."} for number in range(int(count))]
    if how == "sync":
        return reply(calls=[call("delegate_task", call_id="call_0", tasks=tasks)])
    return reply(calls=[call("delegate_task", call_id="call_0", tasks=tasks, background=True)], delay=PARENT_DELAY)


def _child(request: Request, turns: int, delay: float = CHILD_DELAY) -> Reply:
    turn = request.turn
    if turn < turns - 1:
        steps = [{"content": f"step {turn} of the work", "status": "completed"}]
        return reply(thinking="one more step", calls=[call("todo", call_id=f"call_{turn}", todos=steps)], delay=delay)
    return reply("All steps of the list are made.", thinking="all steps are made", delay=delay)


class _Bucket:
    """What one key may do: `RATE` requests a second, `BURST` at once."""

    RATE, BURST = 50.0, 50.0

    def __init__(self) -> None:
        self.level, self.at = self.BURST, 0.0

    def take(self, now: float) -> bool:
        """Take a request out if there is one."""
        self.level, self.at = min(self.BURST, self.level + self.RATE * (now - self.at)), now
        if self.level < 1:
            return False
        self.level -= 1
        return True


_buckets: dict[str, _Bucket] = {}


def limited(request: Request) -> Reply | Status:
    """Any reply, within the limit of the request's key; beyond it 429 with a Retry-After of one second."""
    if _buckets.setdefault(request.key, _Bucket()).take(request.at):
        return reply("ok")
    return rate_limited("1")
