"""The boards as a runtime uses them: which root, which profile, which seat. Opens none before a tool asks for it.

The database's library takes longer to load than the rest of the program together, so it is loaded only for a task that
has the toolset.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import anyio

from hermes.compose.parts import Parts
from hermes.core.tools import Tool, ToolEnv
from hermes.core.toolsets import KNOWN_TOOLSETS
from hermes.kanban.home import open_boards
from hermes.kanban.seat import seat_from

if TYPE_CHECKING:
    from hermes.kanban.access import Access

__all__ = ["BoardToolset", "board_password"]


class BoardToolset:
    """The toolset `kanban` of a runtime, which loads the board's code for the first task that has it. `aclose` it.

    Raises:
        UsageError: half of a worker's variables are there.
    """

    name = "kanban"
    label = "Shared board of several named agents"
    opt_in = True
    tool_names = next(info.tools for info in KNOWN_TOOLSETS if info.name == "kanban")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._environ = dict(parts.environ or os.environ)
        self._seat = parts.seat or seat_from(self._environ)
        self._access: Access | None = None

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """The tools of one task."""
        # edge: SQLAlchemy loads in a tenth of a second, which only those pay who use a board
        from hermes.kanban.access import Access
        from hermes.kanban.toolset import KanbanToolset

        if self._access is None:
            loaded = self._parts.loaded
            self._access = Access(
                lambda: open_boards(loaded.home, loaded.settings, self._environ),
                author=loaded.home.profile,
                seat=self._seat,
                hold=self._parts.hold,
            )
        return KanbanToolset(self._access).build(env)

    async def aclose(self) -> None:
        """Close the boards that were opened."""
        if self._access is not None:
            with anyio.CancelScope(shield=True):
                await self._access.close()


def board_password(url: str) -> str:
    """The password within the address of a database, empty without one."""
    try:
        return unquote(urlsplit(url).password or "")
    except ValueError:  # no address: whoever opens it says so
        return ""
