"""The result of a task: one value, whatever the verb that brings it."""

from __future__ import annotations

from typing import Any

import msgspec

from hermes.core.messages import NOTHING, Usage

__all__ = [
    "UNJUDGED",
    "CheckResult",
    "ChildRef",
    "TaskResult",
    "ToolTrace",
    "Verdict",
    "WorkspaceReport",
    "async_status",
    "delegate_status",
    "exit_reason",
    "short_use",
    "tokens",
]

#: The ends of a task, in core words.
ENDED = frozenset({"completed", "exhausted", "timed_out", "cancelled", "failed"})

_DELEGATE = {
    "completed": "completed",
    "exhausted": "completed",
    "timed_out": "timeout",
    "cancelled": "interrupted",
    "failed": "failed",
}
_ASYNC = {
    "queued": "queued",
    "running": "running",
    "completed": "completed",
    "exhausted": "completed",
    "timed_out": "failed",
    "cancelled": "cancelled",
    "failed": "failed",
    "suspended": "suspended",
}
_EXIT = {
    "completed": "completed",
    "timed_out": "timeout",
    "cancelled": "interrupted",
    "failed": "error",
}


def delegate_status(state: str) -> str:
    """The word `delegate_task` answers with for a core state."""
    return _DELEGATE[state]


def async_status(state: str) -> str:
    """The word the asynchronous tools answer with for a core state."""
    return _ASYNC[state]


def exit_reason(state: str, limit: str | None = None) -> str:
    """Why a task ended: completed, max_iterations, budget, timeout, interrupted, error."""
    if state == "exhausted":
        return "max_iterations" if limit == "turns" else "budget"
    return _EXIT[state]


class ToolTrace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of a task, without its content."""

    tool: str
    args_bytes: int
    result_bytes: int
    status: str


class ChildRef(msgspec.Struct, frozen=True, kw_only=True):
    """A child of a task and how it stands."""

    task_id: str
    status: str


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The command that decided whether a task is done. `exit_code` is None where it was killed or not allowed;
    `output` is the end of what it printed."""

    command: str
    passed: bool
    exit_code: int | None = None
    output: str = ""


class CheckScore(msgspec.Struct, frozen=True, kw_only=True):
    """What one check made of a finished work: `score` 0 to 1, counted `weight` times in a mean. `seconds` is what it
    took, `detail` what it said; `error` is why it could not judge, which scores 0."""

    check: str
    score: float
    weight: float = 1.0
    seconds: float = 0.0
    detail: str = ""
    error: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime found of a final answer. `schema_valid` is None where no schema was asked for; `output` is the
    value that was read from the answer. `scores` are those of checks that grade the work without sending it back."""

    schema_valid: bool | None = None
    schema_errors: tuple[str, ...] = ()
    output: Any = None
    check: CheckResult | None = None
    scores: tuple[CheckScore, ...] = ()

    def public(self) -> dict[str, Any]:
        """The keys it adds to a result."""
        keys: dict[str, Any] = {}
        if self.schema_valid is not None:
            errors = list(self.schema_errors)
            keys = {"output": self.output, "schema_valid": self.schema_valid, "schema_errors": errors}
        if self.check is not None:
            keys["check"] = msgspec.to_builtins(self.check)
        return keys


class WorkspaceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a workspace of a task's own. `mode` is worktree, copy or scratch.

    `commits` counts those that its branch has and its base has not; `dirty` says that it holds what no commit has.
    `removed`: it was proven empty and is gone, its branch too. `escaped` are files outside that changed while its
    commands ran. `error` says why it could not be looked at; then it is kept as it is.
    """

    mode: str
    path: str
    branch: str = ""
    base: str = ""
    commits: int = 0
    dirty: bool = False
    removed: bool = False
    escaped: tuple[str, ...] = ()
    error: str = ""

    @property
    def key(self) -> str:
        """The name it stands under in a result."""
        return "worktree" if self.mode == "worktree" else "workspace"

    def public(self) -> dict[str, Any]:
        """The keys it has in a result."""
        keys: dict[str, Any] = {"mode": self.mode, "path": None if self.removed else self.path}
        if self.mode == "worktree":
            keys |= {"branch": None if self.removed else self.branch, "base": self.base, "commits": self.commits}
        keys |= {"dirty": self.dirty, "removed": self.removed}
        if self.escaped:
            keys["escaped"] = list(self.escaped)
        if self.error:
            keys["error"] = self.error
        return keys


#: Of an answer that nobody looked at.
UNJUDGED = Verdict()


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a task ended. `summary` is the whole final text; readers cut it to their room. `usage` is the task's own,
    `subtree_usage` includes everything under it. `elapsed` is seconds. `conflicts` are sentences about files that this
    task and another one wrote."""

    task_id: str
    state: str
    exit_reason: str
    summary: str = ""
    error: str = ""
    note: str = ""
    truncated: bool = False
    partial: bool = False
    permanent: bool = False
    error_reason: str = ""
    retry_after: float | None = None
    elapsed: float = 0.0
    api_calls: int = 0
    usage: Usage = NOTHING
    subtree_usage: Usage = NOTHING
    model: str = ""
    tool_trace: tuple[ToolTrace, ...] = ()
    files_read: tuple[str, ...] = ()
    files_written: tuple[str, ...] = ()
    missed_steer: tuple[str, ...] = ()
    children: tuple[ChildRef, ...] = ()
    report_path: str = ""
    diagnostic_path: str = ""
    output: tuple[str, ...] = ()
    agent: str = ""
    verdict: Verdict = UNJUDGED
    workspace: WorkspaceReport | None = None
    conflicts: tuple[str, ...] = ()

    def public(self) -> dict[str, Any]:
        """The keys of the documented result, for JSON answers."""
        return {
            "task_id": self.task_id,
            "status": async_status(self.state),
            "exit_reason": self.exit_reason,
            "summary": self.summary,
            "report_path": self.report_path or None,
            "diagnostic_path": self.diagnostic_path or None,
            "truncated": self.truncated,
            "elapsed": round(self.elapsed, 2),
            "api_calls": self.api_calls,
            "tokens": tokens(self.usage),
            "cost_usd": self.usage.cost_usd,
            "subtree": {"tokens": tokens(self.subtree_usage), "cost_usd": self.subtree_usage.cost_usd},
            "model": self.model,
            "tool_trace": [msgspec.to_builtins(trace) for trace in self.tool_trace],
            "files_read": list(self.files_read),
            "files_written": list(self.files_written),
            "missed_steer": list(self.missed_steer),
            "children": [msgspec.to_builtins(child) for child in self.children],
            "error": self.error or None,
            **({"agent": self.agent} if self.agent else {}),
            **({self.workspace.key: self.workspace.public()} if self.workspace is not None else {}),
            **({"conflicts": list(self.conflicts)} if self.conflicts else {}),
            **self.verdict.public(),
        }


def tokens(usage: Usage) -> dict[str, int]:
    """The token figures of a usage, as answers show them."""
    return {"input": usage.input, "output": usage.output, "cached": usage.cached, "reasoning": usage.reasoning}


def short_use(own: Usage, subtree: Usage | None) -> dict[str, Any]:
    """Tokens and money of a task in a listing; `subtree`, with everything under it, where it has children."""
    use: dict[str, Any] = {"tokens": own.total, "cost_usd": own.cost_usd}
    if subtree is not None:
        use["subtree"] = {"tokens": subtree.total, "cost_usd": subtree.cost_usd}
    return use
