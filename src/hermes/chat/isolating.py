"""`--worktree` in a conversation: each new one works in a git worktree of its own, and says where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.compose import isolated_spec
from hermes.runtime.spec import TaskSpec

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat

__all__ = ["in_worktree"]


async def in_worktree(chat: Chat, text: str) -> TaskSpec:
    """The specification of a conversation that begins with `text`.

    Raises:
        OperatorError: a worktree cannot be had here.
    """
    spec, notes = await isolated_spec(
        chat.assembly,
        "worktree",
        workspace=chat.workspace,
        goal=text,
        interactive=True,
        toolsets=chat.toolsets,
        unattended=False,
    )
    branch = spec.isolation.branch if spec.isolation is not None else ""
    for note in (f"this conversation works in {spec.workspace}, on the branch {branch}", *notes):
        chat.screen.note(note)
    return spec
