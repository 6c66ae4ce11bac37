"""Names of tools as agent files write them: ours, our toolsets, and those of another program's files.

What a name allows is never widened: a tool that can only be given with a restriction we cannot keep is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hermes.core.toolsets import COMPOSITES, KNOWN_TOOLSETS

__all__ = ["ToolChoice", "read_tools"]

_TOOLSETS: Mapping[str, tuple[str, ...]] = {info.name: info.tools for info in KNOWN_TOOLSETS}
_HOME: Mapping[str, str] = {tool: info.name for info in reversed(KNOWN_TOOLSETS) for tool in info.tools}
#: Tools of files written for another program, and ours that do the same.
_FOREIGN: Mapping[str, tuple[str, ...]] = {
    "Read": ("read_file",),
    "Write": ("write_file",),
    "Edit": ("patch",),
    "MultiEdit": ("patch",),
    "Grep": ("search_files",),
    "Glob": ("search_files",),
    "LS": ("search_files",),
    "Bash": ("terminal", "process"),
    "BashOutput": ("process",),
    "KillShell": ("process",),
    "KillBash": ("process",),
    "TodoWrite": ("todo",),
    "WebSearch": ("web_search",),
    "WebFetch": ("web_extract",),
    "Task": (*_TOOLSETS["delegation"], *_TOOLSETS["async_delegation"]),
    "Agent": (*_TOOLSETS["delegation"], *_TOOLSETS["async_delegation"]),
}
_ALL = frozenset({"*", "all"})


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Toolsets to ask for and the tools of them to keep, each None for all; a sentence for each name left out."""

    toolsets: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def read_tools(
    tools: Sequence[str] | None, toolsets: Sequence[str] | None, without: Sequence[str] | None = None
) -> ToolChoice:
    """Read the three lists of an agent file; None means that the list is not there."""
    notes: list[str] = []
    kept = _tools((*(tools or ()), *(toolsets or ())), notes) if tools is not None or toolsets is not None else None
    # A use that is forbidden alone takes the whole tool along, since we cannot forbid less.
    gone = _tools([name.partition("(")[0] for name in without or ()], notes)
    if gone is None:
        return ToolChoice(toolsets=(), tools=(), notes=tuple(notes))
    if kept is None:
        rest = tuple(sorted(set(_HOME) - gone)) if gone else None
        return ToolChoice(tools=rest, notes=tuple(notes))
    kept -= gone
    wanted = tuple(name for name, names in _TOOLSETS.items() if kept.intersection(names) and _is_home(name, kept))
    whole = all(tool in kept for name in wanted for tool in _TOOLSETS[name])
    return ToolChoice(toolsets=wanted, tools=None if whole else tuple(sorted(kept)), notes=tuple(notes))


def _is_home(toolset: str, kept: set[str]) -> bool:
    """Whether a toolset is asked for: one that only shares a tool with another that has it already is not."""
    return any(_HOME[tool] == toolset for tool in _TOOLSETS[toolset] if tool in kept)


def _tools(names: Sequence[str], notes: list[str]) -> set[str] | None:
    """The tools behind names; None for all of them."""
    found: set[str] = set()
    for name in names:
        if name in _ALL:
            return None
        plain, _, limits = name.partition("(")
        if limits:
            notes.append(f"{name} was left out: a tool limited to some of its uses cannot be given here")
        elif name in COMPOSITES:
            found.update(tool for toolset in COMPOSITES[name] for tool in _TOOLSETS[toolset])
        elif name in _TOOLSETS:
            found.update(_TOOLSETS[name])
        elif name in _HOME:
            found.add(name)
        elif name in _FOREIGN:
            found.update(_FOREIGN[name])
        else:
            notes.append(f"{plain} is no tool or toolset of this program; it was left out")
    return found
