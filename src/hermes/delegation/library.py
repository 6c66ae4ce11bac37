"""The agent types that a task can choose from, read when they are needed and never on the event loop."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import ToolError
from hermes.delegation.agent_types import AgentCatalog, AgentType, agent_folders, load_agents

__all__ = ["AgentLibrary"]

#: Workspaces whose types are remembered; a batch has one for each row.
_REMEMBERED = 64


class AgentLibrary:
    """Agent types of one home, by workspace. Without a home there are none. Reading holds simulated time."""

    def __init__(self, home: Path | None = None, hold: Hold = NO_HOLD) -> None:
        self._home = home
        self._hold = hold
        self._known: dict[str, AgentCatalog] = {}

    def known(self, workspace: str) -> AgentCatalog:
        """What was read for this workspace last; nothing before `read`."""
        return self._known.get(workspace, AgentCatalog())

    async def read(self, workspace: str, *, anew: bool = False) -> AgentCatalog:
        """The types for a workspace, read once, or `anew`."""
        home = self._home
        if home is None:
            return AgentCatalog()
        if workspace not in self._known or anew:
            place = Path(workspace)
            with held(self._hold):
                found = await anyio.to_thread.run_sync(lambda: load_agents(agent_folders(home, place)))
            while len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[workspace] = found
        return self._known[workspace]

    async def find(self, name: str, workspace: str) -> AgentType:
        """The type of a name, as its file is now.

        Raises:
            ToolError: there is none; lists those there are, and why a file of this name is no type.
        """
        catalog = await self.read(workspace, anew=True)
        found = catalog.types.get(name)
        if found is not None:
            return found
        reason = next((f" {note}" for note in catalog.notes if f"/{name}.md:" in note), "")
        raise ToolError(f"there is no agent type {name!r}. Agent types: {', '.join(catalog.types) or 'none'}.{reason}")
