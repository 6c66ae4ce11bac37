"""Pace: how many tasks without a person go to their model in one round of the loop.

A thousand children whose answers come together would each take a step before anything else gets its turn, and a
conversation needs a dozen turns of the loop to answer. So only a few of them pass in a round and the others wait in
line, while whoever has a person waiting is not asked. It holds nobody back while the loop has time.
"""

from __future__ import annotations

from collections import deque

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

__all__ = ["ATTENDED", "ROUND", "Pace"]

#: Tasks that pass in one round of the loop; a step of a child takes more than half a millisecond. With a thousand
#: children at work a conversation was answered ten times sooner than without a pace. Half of the places are for those
#: in line: the others let as many pass at once as the journal lets go on in a round, who then do not wait twice.
ROUND = 8
#: As many while somebody waits for an answer: rounds are shorter and an answer takes a dozen of them. With 600 children
#: at work it came a third sooner (medians: 83 ms for 130, 89 for 110, 49 for 128). A step costs a tenth to a fifth more
#: CPU, hence not always.
ATTENDED = 2


class Pace:
    """The line of one process."""

    def __init__(self, most: int = ROUND, attended: int = ATTENDED) -> None:
        self._usual, self._attended = most, min(most, attended)
        self._waited: set[str] = set()  # tasks whose answer somebody waits for
        self.most = most  # that pass in a round now
        self._passed = 0  # in this round
        self._line: deque[anyio.Event] = deque()  # of each round to come
        self._newest = 0  # tasks in the last of these rounds
        self._kick = anyio.Event()

    def start(self, group: TaskGroup) -> None:
        """Begin counting rounds, in the given task group."""
        group.start_soon(self._run)

    def hasten(self, task_id: str) -> None:
        """Somebody waits for an answer of this task: fewer others pass in a round until `let_up`."""
        self._waited.add(task_id)
        self.most = self._attended

    def let_up(self, task_id: str) -> None:
        """Nobody waits for it, or it waits for others itself. Repeated: nothing."""
        self._waited.discard(task_id)
        if not self._waited:
            self.most = self._usual

    @property
    def _share(self) -> int:
        """How many of those in line pass in a round."""
        return max(1, self.most // 2)

    async def wait(self) -> None:
        """Wait for a turn; at once while few have passed in this round, whoever is in line for the next ones."""
        if self._passed < self.most:
            if not self._passed:
                self._kick.set()
            self._passed += 1
            return
        if not self._line or self._newest >= self._share:
            self._line.append(anyio.Event())
            self._newest = 0
        self._newest += 1
        await self._line[-1].wait()

    async def _run(self) -> None:
        while True:
            await self._kick.wait()
            while self._passed:
                await anyio.lowlevel.checkpoint()
                self._passed = 0
                if self._line:
                    self._line.popleft().set()
                    self._passed = self._share
            self._kick = anyio.Event()
