"""The bus: every event of the process goes through here once, to whoever subscribed.

`publish` never waits. A subscriber is a function that must not wait either; slow readers keep a bounded buffer of their
own. Deltas of a reply are produced only for tasks that somebody watches, since a thousand children at fifty tokens a
second would fill the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from hermes.core.events import Envelope, Event
from hermes.core.scope import TaskScope
from hermes.core.views import TreeView

__all__ = ["Bus", "Subscription"]

Subscriber = Callable[[Envelope], None]


class Subscription:
    """A reader of the stream. `watches` says for a task id whether its deltas are wanted, `types` which events are
    read (None: all); `close` ends it."""

    def __init__(
        self,
        bus: Bus,
        subscriber: Subscriber,
        watches: Callable[[str], bool] | None,
        types: Collection[type[Any]] | None,
    ) -> None:
        self._bus = bus
        self.subscriber = subscriber
        self.watches = watches
        self.types = types

    def close(self) -> None:
        """Stop reading. Closing twice changes nothing."""
        self._bus.drop(self)


class Bus:
    """The stream of one process and the tree view that folds it."""

    def __init__(self) -> None:
        self.tree = TreeView()
        self._subscriptions: list[Subscription] = []
        self._routes: dict[type[Any], tuple[Subscriber, ...]] = {}  # who reads an event, by its type
        self._watching: tuple[Callable[[str], bool], ...] = ()
        self._sequence = 0

    def subscribe(
        self,
        subscriber: Subscriber,
        watches: Callable[[str], bool] | None = None,
        *,
        types: Collection[type[Any]] | None = None,
    ) -> Subscription:
        """Read every event from now on, or every one of some types."""
        subscription = Subscription(self, subscriber, watches, types)
        self._subscriptions.append(subscription)
        self._changed()
        return subscription

    def _changed(self) -> None:
        self._routes = {}
        self._watching = tuple([one.watches for one in self._subscriptions if one.watches is not None])

    def drop(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            self._changed()

    def watched(self, task_id: str) -> bool:
        """Whether somebody wants the deltas of this task."""
        for watches in self._watching:
            if watches(task_id):
                return True
        return False

    def emit(self, scope: TaskScope, at: float, event: Event) -> None:
        """Number and stamp an event of a task, and publish it; `at` is seconds since the epoch."""
        self._sequence += 1
        self.publish(
            Envelope(
                seq=self._sequence,
                at=at,
                session_id=scope.session_id,
                task_id=scope.task_id,
                parent_id=scope.parent_id,
                event=event,
            )
        )

    def number_from(self, sequence: int) -> None:
        """Count on from `sequence`: what an earlier process published keeps its numbers."""
        self._sequence = max(self._sequence, sequence)

    def publish(self, envelope: Envelope) -> None:
        """Hand an event to the view and to every subscriber, in that order."""
        self.tree.apply(envelope)
        kind = type(envelope.event)
        readers = self._routes.get(kind)
        if readers is None:
            found = [one.subscriber for one in self._subscriptions if one.types is None or kind in one.types]
            self._routes[kind] = readers = tuple(found)
        for reader in readers:
            reader(envelope)
