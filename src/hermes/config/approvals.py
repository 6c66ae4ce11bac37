"""The settings of approvals; `hermes.config.schema` holds them among all others. Decides nothing."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["ApprovalRule", "ApprovalSettings", "Decision"]

Decision = Literal["ask", "allow", "deny"]


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One rule. All conditions it has must hold; `docs/approvals.md` says how each is compared.

    `tool` is a tool's name, `command` a program with its words, `path` a file or directory with all below it, `host` a
    machine, `line` a whole command line to the letter.
    """

    decision: Decision
    tool: str = ""
    command: str = ""
    path: str = ""
    host: str = ""
    line: str = ""

    def __post_init__(self) -> None:
        if not any((self.tool, self.command, self.path, self.host, self.line)):
            raise ValueError("a rule needs one of tool, command, path, host, line")


class ApprovalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Dangerous commands. A plain word is its `mode`."""

    mode: Annotated[
        Literal["ask", "allow", "deny"],
        Meta(description="What happens with a dangerous command; without a terminal `ask` denies."),
    ] = "ask"
    timeout: Annotated[float, Meta(description="Seconds a question waits before it counts as no.", gt=0)] = 300
    rules: Annotated[
        tuple[ApprovalRule, ...],
        Meta(
            description="What is allowed, denied or asked by name, before the mode: `{decision, tool, command, path, "
            "host, line}`; the last one that fits wins, a denial always. The answer `always` adds one."
        ),
    ] = ()
    host_commands: Annotated[
        bool,
        Meta(
            description="Run dangerous commands on this machine where nobody can be asked and there is no sandbox; "
            "`--allow-host-commands` for one run."
        ),
    ] = False
