"""How many calls were denied: a fold over events, and what a run says at its end when they were many."""

from __future__ import annotations

from collections import Counter

from hermes.core.events import ApprovalAnswered, Event, ToolStarted

__all__ = ["MANY", "Denials", "denied_note"]

#: Share of denied calls above which a run says so.
MANY = 0.2


def denied_note(calls: int, denied: int, *, only_looks: bool = False) -> str:
    """The sentence for the end of a run; empty when at most a fifth of its calls were denied.

    `only_looks` says that its model may only run what reads, whatever the settings."""
    if not calls or denied / calls <= MANY:
        return ""
    counted = f"{100 * denied / calls:.0f} % of the tool calls were denied ({denied} of {calls})."
    if only_looks:
        return f"{counted} The tiny local model may only look around (ls, cat, grep, …); take another one for work."
    return (
        f"{counted} A sandbox needs no answers (terminal.backend, hermes doctor says what it lacks); approvals.rules "
        "allows by name; --allow-host-commands runs all of them on this machine."
    )


class Denials:
    """Counts the calls of one run. `reasons` are those of denied calls, each with its number."""

    def __init__(self) -> None:
        self.calls = self.denied = 0
        self.reasons: Counter[str] = Counter()

    def hear(self, event: Event) -> None:
        """Take an event in."""
        if isinstance(event, ToolStarted):
            self.calls += 1
        elif isinstance(event, ApprovalAnswered) and not event.allowed:
            self.denied += 1
            self.reasons[event.reason.partition(" (")[0]] += 1
