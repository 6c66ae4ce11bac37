"""TaskScope: who a task is and where it stands in the tree. Pure data, handed to every tool."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["CallKey", "Role", "TaskKind", "TaskScope"]

TaskKind = Literal["main", "background", "child", "async", "row", "card"]
Role = Literal["leaf", "orchestrator"]


class CallKey(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The identity of one tool call: never the provider's id, which some providers repeat.

    `position` is the history position of the assistant message, `index` the place of the call in it. `sub` numbers the
    calls that one call makes itself, from 1; they have no row of their own.
    """

    task_id: str
    position: int
    index: int
    sub: int = 0

    def __str__(self) -> str:
        inner = f".{self.sub}" if self.sub else ""
        return f"{self.task_id}:{self.position}:{self.index}{inner}"


class TaskScope(msgspec.Struct, frozen=True, kw_only=True):
    """Identity and place of one task.

    `depth` is 0 for a conversation, 1 for its children. `workspace` is an absolute directory. `path` is the chain of
    short labels from the root, as shown beside a question that a child asks.
    """

    task_id: str
    session_id: str
    root_id: str
    parent_id: str | None = None
    kind: TaskKind = "main"
    role: Role = "leaf"
    depth: int = 0
    workspace: str = "."
    path: tuple[str, ...] = ()
