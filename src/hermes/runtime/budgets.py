"""The budget that stands above all tasks of a session, and the question whether a task's model may run under it.

Counting is `core.limits`; what a session may spend is in the specification of its first task. Nothing is stored here:
what was used is a fold over the journal, and what is only set aside dies with the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hermes.core.errors import AdmissionRefused, UsageError
from hermes.core.limits import Budget, Limits
from hermes.runtime.spec import ModelChoice, TaskSpec

__all__ = ["SESSION", "SessionBudgets", "Unpriced", "unknown_price"]

#: How the budget of a session is called where its limits are named.
SESSION = "session"

#: The name of a choice's model where its price is unknown, None where it is known.
Unpriced = Callable[[ModelChoice], str | None]


def unknown_price(model: str, limit: float) -> str:
    """Why a money limit cannot be held with a model, and what to do."""
    return (
        f"the price of {model} is unknown, so the limit of ${limit:g} cannot be held. Set its price (US dollars for a "
        f"million tokens) in config.yaml under `models:` as `{model}: {{price_input: 1.0, price_output: 4.0}}`, or set "
        "no limit."
    )


class SessionBudgets:
    """The budgets of the sessions of one process, by session id."""

    def __init__(self, unpriced: Unpriced | None = None) -> None:
        self._unpriced = unpriced
        self._sessions: dict[str, Budget] = {}
        #: Stands above every session of the process and counts what all of them use; None: nobody asks for that.
        self.above: Budget | None = None

    def new(self, task_id: str, spec: TaskSpec, session_id: str, parent: Budget | None) -> Budget:
        """The budget of a task, under its parent's or its session's."""
        if parent is None and spec.session is not None:
            parent = self._sessions.setdefault(session_id, Budget(spec.session, SESSION, self.above))
        return Budget(spec.limits, task_id, parent or self.above)

    def of(self, session_id: str) -> Budget | None:
        """The budget of a session; None before its first task, and for tasks that share none (batch rows)."""
        return self._sessions.get(session_id)

    def forget(self, session_id: str) -> None:
        """Drop an ended session."""
        self._sessions.pop(session_id, None)

    def admit(self, specs: Sequence[TaskSpec], session_id: str, parent: Budget | None) -> None:
        """Refuse models of unknown price where a person limited the money.

        Raises:
            UsageError: such a task would begin a tree.
            AdmissionRefused: such a task would be a child.
        """
        if self._unpriced is None:
            return
        above = parent.priced_only() if parent is not None else None
        if parent is None and (session := self.of(session_id)) is not None:
            above = session.priced_only()
        for spec in specs:
            limit = above if above is not None else _asked(spec.limits)
            if limit is None and parent is None and spec.session is not None:
                limit = _asked(spec.session)
            model = self._unpriced(spec.model) if limit is not None else None
            if limit is None or model is None:
                continue
            if parent is None:
                raise UsageError(unknown_price(model, limit))
            raise AdmissionRefused(f"{unknown_price(model, limit)} Or name no model: children then use yours.")


def _asked(limits: Limits) -> float | None:
    return limits.cost_usd if limits.priced_only else None
