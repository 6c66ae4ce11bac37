"""What becomes of the work when its terminal goes: handed to the host, or left resumable, and what is said of it."""

from __future__ import annotations

import errno
import os
import sys
import termios
from collections.abc import Callable

import anyio

from hermes.cli.options import Sources
from hermes.cli.reaching import hand_to_host, offer_to_host, reach
from hermes.core.errors import HermesError

__all__ = ["drop_lost_terminal", "hand_over", "say_on_stderr", "terminal_lost"]

#: Seconds that are spent on handing over once a terminal is lost: whoever closed it may kill soon.
HURRY = 10.0


def terminal_lost(descriptor: int) -> bool:
    """Whether a descriptor belongs to a terminal that is gone."""
    try:
        termios.tcgetattr(descriptor)
    except termios.error as error:
        return bool(error.args and error.args[0] == errno.EIO)
    return False


def drop_lost_terminal() -> None:
    """Point what leads to a lost terminal nowhere: a message to it must not end the work."""
    for descriptor in (0, 1, 2):
        if terminal_lost(descriptor):
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


async def hand_over(sources: Sources, session_id: str, say: Callable[[str], None], *, hurry: bool = False) -> bool:
    """Hand a session that this process has let go to the host; says how to return to it. False: it stays suspended.

    `hurry`: see only that it is asked and lives.
    """
    try:
        with anyio.CancelScope(shield=True), anyio.move_on_after(HURRY if hurry else None):
            async with reach(sources) as remote:
                if hurry:
                    await offer_to_host(remote, sources, session_id)
                else:
                    await hand_to_host(remote, sources, session_id)
    except HermesError as error:
        say(f"hermes: {error}")
        return False
    say(f"it goes on in the background: hermes attach {session_id}   (hermes tasks list shows it)")
    return True


def say_on_stderr(line: str) -> None:
    """Write a line for a person."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError as error:
        if error.errno != errno.EIO:  # nobody reads any more, which is why the work is being handed over
            raise
