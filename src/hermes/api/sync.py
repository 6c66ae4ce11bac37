"""The verbs on tasks for code without an event loop: each call goes through the portal to the thread of the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Self

from hermes.api.client import AsyncHermes, opened
from hermes.api.options import Options, read_options
from hermes.delegation.verbs import Answer
from hermes.runtime.portal import Portal

__all__ = ["Hermes", "open"]


def open(**options: Any) -> Hermes:
    """Open a runtime on a thread of its own, for a `with` block, which gets a `Hermes`. Options as `open_async`."""
    return Hermes(read_options(options))


class Hermes:
    """The verbs of `AsyncHermes` for code without an event loop; from several threads too.

    Ctrl+C ends the call that waits and leaves the tasks alone.
    """

    def __init__(self, options: Options) -> None:
        # The loop of simulated time comes with its clock.
        loop = getattr(options.clock, "loop", None)
        self._portal = Portal(lambda: opened(options), options={"loop_factory": loop} if loop is not None else None)

    def __enter__(self) -> Self:
        self._portal.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the runtime; what still runs is suspended or cancelled, as `on_exit` said."""
        self._portal.close()

    @property
    def portal(self) -> Portal[AsyncHermes]:
        """The thread of the runtime, for what this interface does not have."""
        return self._portal

    def delegate_async(self, goal: str, **options: Any) -> str:
        """As `AsyncHermes.delegate_async`."""
        hermes = self._portal.value
        return self._portal.call(lambda: hermes.delegate_async(goal, **options))

    def delegate(self, goal: str, **options: Any) -> Answer:
        """As `AsyncHermes.delegate`."""
        return self.collect(self.delegate_async(goal, **options))

    def check(self, task_id: str) -> Answer:
        """As `AsyncHermes.check`."""
        return self._portal.call(self._portal.value.check, task_id)

    def steer(self, task_id: str, message: str) -> Answer:
        """As `AsyncHermes.steer`."""
        return self._portal.call(self._portal.value.steer, task_id, message)

    def continue_task(self, task_id: str, message: str) -> Answer:
        """As `AsyncHermes.continue_task`."""
        return self._portal.call(self._portal.value.continue_task, task_id, message)

    def collect(self, task_id: str, timeout: float | None = None) -> Answer:
        """As `AsyncHermes.collect`."""
        return self._portal.call(self._portal.value.collect, task_id, timeout)

    def wait(
        self, task_ids: Sequence[str], mode: Literal["all", "any"] = "all", timeout: float | None = None
    ) -> Answer:
        """As `AsyncHermes.wait`."""
        return self._portal.call(self._portal.value.wait, task_ids, mode, timeout)

    def cancel(self, task_id: str) -> Answer:
        """As `AsyncHermes.cancel`."""
        return self._portal.call(self._portal.value.cancel, task_id)

    def list(self) -> Answer:
        """As `AsyncHermes.list`."""
        return self._portal.call(self._portal.value.list)
