"""What the supervisor knows of the configuration, as plain data. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from hermes.runtime.budgets import Unpriced

__all__ = ["Policy"]


class Policy:
    """What admission knows of the configuration: deepest spawn, most live tasks of a session's tree, and which models
    have no known price. `logs` is where a child that could not even begin leaves a diagnosis, None for nowhere.
    `keep_report` is given a task's id, its session's id and its final text; it writes the text where a reader's room
    may be too small for it, and returns the path or "". `independent_completions`: ends of children that were
    dispatched together are told one by one."""

    def __init__(
        self,
        *,
        max_spawn_depth: int,
        max_live: int,
        orchestrators: bool = True,
        unpriced: Unpriced | None = None,
        logs: Path | None = None,
        keep_report: Callable[[str, str, str], Awaitable[str]] | None = None,
        independent_completions: bool = False,
    ) -> None:
        self.max_spawn_depth = max_spawn_depth
        self.max_live = max_live
        self.orchestrators = orchestrators
        self.unpriced = unpriced
        self.logs = logs
        self.keep_report = keep_report
        self.independent_completions = independent_completions
