"""The tools of one task, looked up by name.

A thousand children have twenty tools each and call two of them: where toolsets are alike for all tasks, a toolset is
built for a task when one of its tools is first called. What a model is told of them is known without that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hermes.core.model import ToolSpec
from hermes.core.tools import Tool, ToolEnv, Toolset

__all__ = ["Kit", "LateKit", "Plan"]


class Kit:
    """Tools that were built together. Of two with one name the first is meant."""

    __slots__ = ("_tools",)

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them."""
        return tuple([tool.name for tool in self._tools])

    def named(self, name: str) -> Tool | None:
        """A tool by its name. There are few, and a table of them would be larger than all else that a task holds."""
        for tool in self._tools:
            if tool.name == name:
                return tool
        return None

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)


class Plan:
    """What all tasks with the same toolsets are offered: found once, by building them for the first of these tasks.
    `owners` are the toolsets of the tools by their names, `unsafe` the names of those that must not be called twice."""

    __slots__ = ("offered", "owners", "toolsets", "unsafe")

    def __init__(
        self,
        toolsets: tuple[Toolset, ...],
        owners: Mapping[str, Toolset],
        *,
        offered: tuple[ToolSpec, ...],
        unsafe: frozenset[str],
    ) -> None:
        self.toolsets = toolsets
        self.owners = owners
        self.offered = offered
        self.unsafe = unsafe


class LateKit(Kit):
    """Tools of toolsets that are alike for all tasks, each toolset built when one of its tools is looked up."""

    __slots__ = ("_env", "_plan")

    def __init__(self, plan: Plan, env: ToolEnv) -> None:
        super().__init__(())
        self._plan = plan
        self._env = env

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them."""
        return tuple(self._plan.owners)

    def named(self, name: str) -> Tool | None:
        """A tool by its name."""
        found = super().named(name)
        owners = self._plan.owners
        if found is None and name in owners:
            owner = owners[name]
            self._tools += tuple([tool for tool in owner.build(self._env) if owners.get(tool.name) is owner])
            found = super().named(name)
        return found

    def __iter__(self) -> Iterator[Tool]:
        for name in self._plan.owners:
            tool = self.named(name)
            if tool is not None:
                yield tool
