"""What the events of a rollout say of it: the entries of its tasks, how its calls went, and what it is doing now.

A fold; it reads nothing and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes.core.events import (
    EntryAdded,
    Event,
    QuotaWaiting,
    RetryWaiting,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from hermes.core.messages import Entry
from hermes.runtime.denials import Denials

__all__ = ["Trace"]


class Trace:
    """Entries by task, and what the tools said of their calls. `root` is the task of the rollout itself, `members` are
    the tasks that are known to belong to it."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.report = report
        self.root = ""
        self.members: set[str] = set()
        self.entries: dict[str, list[Entry]] = {}
        self.success: dict[str, bool] = {}
        self.denials = Denials()

    def apply(self, task_id: str, event: Event) -> None:
        """Fold one event of the tree in, and say what is being done."""
        self.hear(task_id, event)
        if isinstance(event, (ToolEnded, ToolStarted)):
            self.report(f"tool {event.name}")
        elif isinstance(event, TurnStarted):
            self.report("model")
        elif isinstance(event, RetryWaiting):
            self.report(f"retry in {event.seconds:.0f} s ({event.reason})")
        elif isinstance(event, QuotaWaiting):
            self.report(f"quota {event.seconds:.0f} s {event.provider}".rstrip() if event.seconds else "model")

    def hear(self, task_id: str, event: Event) -> None:
        """Fold one event of the tree in."""
        self.denials.hear(event)
        if isinstance(event, EntryAdded):
            self.entries.setdefault(task_id, []).append(event.entry)
        elif isinstance(event, ToolEnded) and task_id == self.root:
            self.success[f"{event.position}:{event.index}"] = event.success
