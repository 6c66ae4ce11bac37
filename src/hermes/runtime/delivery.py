"""Ends of children on their way to whoever has to hear of them. Each reaches one reader, once.

Ends of children that one call dispatched together are told together, when the last of them has ended, unless the policy
wants each by itself. What is written when an end is told is the history's and the store's part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.core.inbox import ChildEnd
from hermes.runtime.task import Task

if TYPE_CHECKING:
    from hermes.runtime.supervisor import Supervisor

__all__ = ["Delivery"]


class Delivery:
    """Tells ends for the supervisor."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def tell(self, child: Task) -> None:
        """Put a child's end into the inbox of whoever has to hear of it, unless somebody is collecting it, or others of
        its group have not ended."""
        if not self._untold(child):
            return
        group = child.together
        if len(group) < 2 or self._supervisor.policy.independent_completions:
            self._notify(child)
        elif all(other.ended for other in group):
            for other in group:
                if self._untold(other):
                    self._notify(other)

    def _untold(self, child: Task) -> bool:
        if child.delivery != "pending" or child.collectors:
            return False
        target = self.listener(child)
        return target is not None and not target.inbox.holds(child.id)

    def _notify(self, child: Task) -> None:
        target = self.listener(child)
        if target is not None:
            text, at = self._supervisor.notice(child), self._supervisor.clock.now()
            target.inbox.notify(ChildEnd(task_id=child.id, text=text, at=at))

    def listener(self, child: Task) -> Task | None:
        """The nearest living ancestor, who hears of a child's end."""
        ancestor = child.parent
        while ancestor is not None and (ancestor.ended or ancestor.ending):
            ancestor = ancestor.parent
        return ancestor

    def consumed(self, child_id: str) -> bool:
        """Mark a child's end as told; False when it was, or is not known here."""
        child = self._supervisor.tasks.get(child_id)
        if child is None or child.delivery != "pending":
            return False
        child.delivery = "consumed"
        self.withdraw(child)
        return True

    def withdraw(self, child: Task) -> None:
        """Take a child's end back from whoever has not read it yet."""
        target = self.listener(child)
        if target is not None:
            target.inbox.withdraw(child.id)
