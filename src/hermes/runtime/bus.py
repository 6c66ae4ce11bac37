"""The bus: every event of the process goes through here once, to whoever subscribed.

`publish` never waits. A subscriber is a function that must not wait either; slow readers keep a bounded buffer of their
own. Deltas of a reply are produced only for tasks that somebody watches, since a thousand children at fifty tokens a
second would fill the loop.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes.core.events import Envelope
from hermes.core.views import TreeView

__all__ = ["Bus", "Subscription"]

Subscriber = Callable[[Envelope], None]


class Subscription:
    """A reader of the stream. `watches` says for a task id whether its deltas are wanted; `close` ends it."""

    def __init__(self, bus: Bus, subscriber: Subscriber, watches: Callable[[str], bool]) -> None:
        self._bus = bus
        self.subscriber = subscriber
        self.watches = watches

    def close(self) -> None:
        """Stop reading. Closing twice changes nothing."""
        self._bus.drop(self)


class Bus:
    """The stream of one process and the tree view that folds it."""

    def __init__(self) -> None:
        self.tree = TreeView()
        self._subscriptions: list[Subscription] = []
        self._sequence = 0

    def subscribe(self, subscriber: Subscriber, watches: Callable[[str], bool] = lambda _: False) -> Subscription:
        """Read every event from now on."""
        subscription = Subscription(self, subscriber, watches)
        self._subscriptions.append(subscription)
        return subscription

    def drop(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def watched(self, task_id: str) -> bool:
        """Whether somebody wants the deltas of this task."""
        return any(subscription.watches(task_id) for subscription in self._subscriptions)

    def next_sequence(self) -> int:
        """The number of the next event."""
        self._sequence += 1
        return self._sequence

    def number_from(self, sequence: int) -> None:
        """Count on from `sequence`: what an earlier process published keeps its numbers."""
        self._sequence = max(self._sequence, sequence)

    def publish(self, envelope: Envelope) -> None:
        """Hand an event to the view and to every subscriber, in that order."""
        self.tree.apply(envelope)
        for subscription in tuple(self._subscriptions):
            subscription.subscriber(envelope)
