"""How a conversation is left and found again. Hands nothing over: that is for the process that leaves."""

from __future__ import annotations

__all__ = ["EXIT_INTERRUPTED", "WAYS_OUT", "goes_on"]

#: Exit code of a process that Ctrl+C ended.
EXIT_INTERRUPTED = 130

#: What may be answered to the question how to leave while something runs.
WAYS_OUT = {
    **dict.fromkeys(("d", "detach"), "detach"),
    **dict.fromkeys(("s", "stop"), "stop"),
    **dict.fromkeys(("w", "wait"), "wait"),
}


def goes_on(session_id: str) -> str:
    """The command that returns to a session."""
    return f"hermes chat --resume {session_id}"
