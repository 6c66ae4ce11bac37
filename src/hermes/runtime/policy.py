"""What the supervisor knows of the configuration, as plain data. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from hermes.core.agent import Outcome
from hermes.core.result import WorkspaceReport
from hermes.runtime.budgets import Unpriced
from hermes.runtime.task import Task

__all__ = ["Policy"]


class Policy:
    """What admission knows of the configuration: deepest spawn, most live tasks of a session's tree, and which models
    have no known price. `logs` is where a child that could not even begin leaves a diagnosis, None for nowhere.
    `keep_report` is given a task's id, its session's id and its final text; it writes the text where a reader's room
    may be too small for it, and returns the path or "". `independent_completions`: ends of children that were
    dispatched together are told one by one. `settle_workspace` looks at a workspace of an ended task's own and says
    what became of it. `examine`, if set, looks at what a task has done, with its outcome, before its environment goes.
    `handover_wait` is the seconds that running commands get before their session is let go."""

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
        settle_workspace: Callable[[Task], Awaitable[WorkspaceReport | None]] | None = None,
        handover_wait: float = 0.0,
    ) -> None:
        self.max_spawn_depth = max_spawn_depth
        self.max_live = max_live
        self.orchestrators = orchestrators
        self.unpriced = unpriced
        self.logs = logs
        self.keep_report = keep_report
        self.independent_completions = independent_completions
        self.settle_workspace = settle_workspace
        self.handover_wait = handover_wait
        self.examine: Callable[[Task, Outcome], Awaitable[None]] | None = None
