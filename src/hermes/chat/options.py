"""What a command line said that a conversation has to know. Reads no flag itself."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["UNSET", "GlobalOptions"]

#: Stands for an option that was not given, where None has a meaning of its own.
UNSET = "unset"


class GlobalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was said before the subcommand (or merged in after it). Empty or None means not given.

    `max_turns` is `unset`, a number, or None for unlimited. `run_budget` is seconds, `max_cost` US dollars. `prompt` is
    the one of `-z`. `face`: `tui`, `cli`, None for what the terminal can do.
    """

    model: str = ""
    toolsets: tuple[str, ...] | None = None
    profile: str | None = None
    provider: str = ""
    reasoning: str = ""
    max_turns: int | str | None = UNSET
    run_budget: float | None = None
    directory: str | None = None
    prompt: str | None = None
    usage_file: str | None = None
    yolo: bool = False
    host_commands: bool = False
    max_cost: float | None = None
    worktree: bool = False
    face: str | None = None

    def flags(self) -> dict[str, Any]:
        """The settings these options stand for, by dotted key."""
        found: dict[str, Any] = {}
        if self.model:
            found["model.default"] = self.model
        if self.reasoning:
            found["agent.reasoning_effort"] = self.reasoning
        if self.max_turns != UNSET:
            found["agent.max_turns"] = self.max_turns
        if self.run_budget is not None:
            found["agent.run_budget_seconds"] = self.run_budget
        if self.max_cost is not None:
            found["budget.session_usd"] = self.max_cost
        if self.yolo:
            found["approvals.mode"] = "allow"
        if self.host_commands:
            found["approvals.host_commands"] = True
        return found
