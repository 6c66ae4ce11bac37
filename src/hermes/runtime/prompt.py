"""The system text of a conversation. Names a tool only where the conversation has it."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["conversation_system"]

_BASE = (
    "You are Hermes, an agent that works for the user on their machine. Do what is asked with the tools you have, look "
    "instead of guessing, and say plainly what you did and what you could not do. Answer in the language of the user."
)
_TERMINAL = (
    "Commands run in the working directory {workspace}. Your terminal keeps its directory and variables between "
    "commands. Long-running programs go to the background."
)
_DELEGATION = (
    "Work that is large, or independent parts that can run at the same time, may go to child agents. A child knows "
    "nothing of this conversation, so its goal must be complete. Each child costs tokens: do small steps yourself."
)
_ASYNC = (
    "Children may also run beside the conversation. Their reports arrive by themselves as new messages; until then no "
    "result exists, so never report or guess one."
)
_FINITE = "This is a single request: nobody can answer questions. Finish the work and give the final answer."


def conversation_system(
    toolsets: Sequence[str], *, workspace: str, finite: bool, persona: str = "", extra: str = ""
) -> str:
    """The system text for a conversation with these toolsets.

    `persona` is who the agent is in its user's words; `extra` is text of the caller's, put last.
    """
    parts = [_BASE]
    if persona:
        parts.append(f"Who you are, in the words of your user:\n\n{persona}")
    if "terminal" in toolsets:
        parts.append(_TERMINAL.format(workspace=workspace))
    if "delegation" in toolsets:
        parts.append(_DELEGATION)
    if "async_delegation" in toolsets:
        parts.append(_ASYNC)
    if finite:
        parts.append(_FINITE)
    if extra:
        parts.append(extra)
    return "\n\n".join(parts)
