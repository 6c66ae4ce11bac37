"""The tape of the rollouts of a run: which of those with its prompt each is, and what came of it where several
processes share a recording or a replay.

Recording and replaying are the runtime's; how a share reaches the run is the engine's.
"""

from __future__ import annotations

import hashlib

import anyio.to_thread

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.runtime.taping import Tape, TapeShare
from hermes.runtime.task import Task

__all__ = ["RowTape", "Twins"]


class Twins:
    """Counts the rollouts of each prompt in the order in which they are handed out, which is the dataset's."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def number(self, prompt: str) -> int:
        """Which rollout of this prompt the next one is, from 1."""
        digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).digest()[:8]
        count = self._counts[digest] = self._counts.get(digest, 0) + 1
        return count


class RowTape:
    """`tape` as rollouts meet it. `shared`: other processes carry out rollouts of this run, so that a result leaves
    only once what was recorded of it outlives this process, and tells what it got of a replay."""

    def __init__(self, tape: Tape, *, shared: bool, hold: Hold = NO_HOLD) -> None:
        self._tape = tape
        self._shared = shared
        self._hold = hold

    def begin(self, session: str, twin: int) -> None:
        """The rollout of a session begins."""
        if twin:
            self._tape.names.place(session, twin)

    async def end(self, task: Task) -> TapeShare | None:
        """A rollout has ended.

        Raises:
            OperatorError: what was recorded cannot be written.
        """
        if not self._shared:
            return None
        with held(self._hold):
            await anyio.to_thread.run_sync(self._tape.settle)
        return self._tape.share(task)
