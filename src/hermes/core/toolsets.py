"""Toolset names: which exist, how a list of names is read, and the opt-in rule.

`all` and `*` mean every toolset that is not opt-in; an opt-in toolset (the Kanban board) is turned on only where its
name is written literally, since several agents cost more tokens. Names that are known but not in this release are left
out with a note, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from hermes.core.names import did_you_mean
from hermes.core.tools import Tool, ToolEnv, Toolset

__all__ = [
    "COMPOSITES",
    "DEFAULT_TOOLSETS",
    "KNOWN_TOOLSETS",
    "Selection",
    "ToolsetInfo",
    "ToolsetRegistry",
    "child_toolsets",
    "configured_toolsets",
]


class ToolsetInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a toolset without building it. `available` says whether this release has it."""

    name: str
    label: str
    tools: tuple[str, ...]
    opt_in: bool = False
    available: bool = False
    default_off: bool = False


def _info(
    name: str, label: str, *tools: str, opt_in: bool = False, off: bool = False, here: bool = False
) -> ToolsetInfo:
    return ToolsetInfo(name=name, label=label, tools=tools, opt_in=opt_in, default_off=off, available=here)


_KANBAN_TOOLS = tuple(
    f"kanban_{verb}"
    for verb in (
        "show",
        "list",
        "create",
        "complete",
        "block",
        "unblock",
        "heartbeat",
        "comment",
        "link",
        "request_review",
        "request_changes",
        "attach",
        "attachments",
    )
)

#: Every name users may write, in the order of `hermes tools list`.
KNOWN_TOOLSETS: tuple[ToolsetInfo, ...] = (
    _info("terminal", "Run shell commands and background processes", "terminal", "process", here=True),
    _info("file", "Read, write, patch and search files", "read_file", "write_file", "patch", "search_files", here=True),
    _info("todo", "Keep a task list", "todo", here=True),
    _info(
        "delegation",
        "Hand work to child agents and wait for them",
        "delegate_task",
        "spawn_agent",
        "spawn_parallel",
        here=True,
    ),
    _info(
        "async_delegation",
        "Hand work to child agents that run beside the conversation",
        "delegate_task_async",
        "check_task",
        "steer_task",
        "continue_task",
        "collect_task",
        "wait_tasks",
        "cancel_task",
        "list_tasks",
        here=True,
    ),
    _info("kanban", "Shared board of several named agents", *_KANBAN_TOOLS, opt_in=True, here=True),
    _info("web", "Search the web and read pages", "web_search", "web_extract", here=True),
    _info("search", "Search the web", "web_search", here=True),
    _info("code_execution", "Run Python that calls the other tools", "execute_code", here=True),
    _info("vision", "Look at pictures", "vision_analyze"),
    _info("image_gen", "Make pictures", "image_generate"),
    _info("skills", "Read and write skills", "skills_list", "skill_view", "skill_manage"),
    _info("browser", "Drive a browser", "browser_navigate"),
    _info("cronjob", "Run prompts on a schedule", "cronjob"),
    _info("memory", "Remember across sessions", "memory"),
    _info("session_search", "Search earlier sessions", "session_search"),
    _info("clarify", "Ask the user a question", "clarify", here=True),
    _info("moa", "Ask several models and merge", "mixture_of_agents"),
    _info("tts", "Speak a text", "text_to_speech"),
    _info("stt", "Transcribe speech", "speech_to_text"),
    _info("video", "Look at videos", "video_analyze", off=True),
    _info("video_gen", "Make videos", "video_generate", off=True),
    _info("x_search", "Search posts", "x_search", off=True),
    _info("context_engine", "Search project context", "context_engine"),
    _info("homeassistant", "Control a home", "homeassistant", off=True),
    _info("spotify", "Control music", "spotify", off=True),
    _info("discord", "Read and write messages", "discord", off=True),
    _info("discord_admin", "Manage a server", "discord_admin", off=True),
    _info("yuanbao", "Ask Yuanbao", "yuanbao"),
    _info("computer_use", "Use the desktop", "computer_use"),
    _info("rl", "Run training environments", "rl", off=True),
)

#: What a home without configuration turns on.
DEFAULT_TOOLSETS: tuple[str, ...] = (
    "terminal",
    "file",
    "web",
    "code_execution",
    "todo",
    "clarify",
    "delegation",
    "async_delegation",
)

#: Names that stand for several.
COMPOSITES: dict[str, tuple[str, ...]] = {
    "hermes-cli": DEFAULT_TOOLSETS,
    "coding": ("terminal", "file", "todo"),
    "debugging": ("terminal", "web", "file"),
    "safe": ("web", "vision", "image_gen"),
}

#: What a child may never have unless it is an orchestrator.
DELEGATION_TOOLSETS = frozenset({"delegation", "async_delegation"})
#: What no child may have: it has no user to ask and no memory of its own; the board is not its to change.
CHILD_BLOCKED = frozenset({"clarify", "memory", "cronjob", "kanban"})

_KNOWN = {info.name: info for info in KNOWN_TOOLSETS}


class Selection(msgspec.Struct, frozen=True):
    """Toolsets in order, and a sentence for each name that was left out."""

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


class ToolsetRegistry:
    """The toolsets that can be built here."""

    def __init__(self, toolsets: Iterable[Toolset]) -> None:
        self._toolsets = {toolset.name: toolset for toolset in toolsets}

    def add(self, toolset: Toolset) -> None:
        """Offer one more toolset from now on; one of the same name is replaced."""
        self._toolsets[toolset.name] = toolset

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all toolsets that can be built."""
        return tuple(self._toolsets)

    def expand(self, names: Iterable[str]) -> Selection:
        """Read a list of names: composites, `all` and `*` are expanded, duplicates dropped, the rest noted."""
        chosen: dict[str, None] = {}
        notes: list[str] = []
        for name in names:
            if name in ("all", "*"):
                chosen.update((key, None) for key, value in self._toolsets.items() if not value.opt_in)
            elif name in COMPOSITES:
                chosen.update((part, None) for part in COMPOSITES[name] if part in self._toolsets)
            elif name in self._toolsets:
                chosen[name] = None
            elif name in _KNOWN:
                notes.append(f"toolset '{name}' is not in this release and was left out")
            else:
                hint = did_you_mean(name, (*self._toolsets, *COMPOSITES))
                notes.append(f"unknown toolset '{name}' was left out.{hint} Known: {', '.join(self._toolsets)}")
        return Selection(tuple(chosen), tuple(notes))

    def tool_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names of the tools that these toolsets offer, in order and once each."""
        found: dict[str, None] = {}
        for name in names:
            if name in self._toolsets:
                found.update((tool, None) for tool in self._toolsets[name].tool_names)
        return tuple(found)

    def chosen(self, names: Sequence[str]) -> tuple[Toolset, ...]:
        """The toolsets of these names."""
        return tuple([self._toolsets[name] for name in names])

    def build(self, names: Sequence[str], env: ToolEnv) -> tuple[Tool, ...]:
        """Build the tools of these toolsets for one task; the first of two tools with one name wins."""
        tools: dict[str, Tool] = {}
        for name in names:
            for tool in self._toolsets[name].build(env):
                tools.setdefault(tool.name, tool)
        return tuple(tools.values())


def configured_toolsets(
    platform: Sequence[str] | None, added: Sequence[str] | None, disabled: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the names a configuration turns on.

    `platform` is the list written by `hermes tools`, which stands for itself; without one, `added` (the top-level
    `toolsets:`) adds to the default instead of replacing it, or `toolsets: [delegation]` would leave children without
    tools. `delegation` brings the asynchronous tools along. `disabled` wins over everything.
    """
    names = list(platform) if platform is not None else [*DEFAULT_TOOLSETS, *(added or ())]
    if "delegation" in names and "async_delegation" not in names:
        names.insert(names.index("delegation") + 1, "async_delegation")
    return tuple(name for name in dict.fromkeys(names) if name not in disabled)


def child_toolsets(
    requested: Sequence[str] | None, ceiling: Sequence[str], *, orchestrator: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (granted, refused) for a child: never more than its parent may give.

    None asks for all of it. Delegation goes to orchestrators only, whether asked for or not.
    """
    wanted: list[str] = []
    for name in ceiling if requested is None else requested:
        wanted.extend(ceiling if name in ("all", "*") else COMPOSITES.get(name, (name,)))
    granted: list[str] = []
    refused: list[str] = []
    for name in dict.fromkeys(wanted):
        if name in CHILD_BLOCKED or (name in DELEGATION_TOOLSETS and not orchestrator) or name not in ceiling:
            refused.append(name)
        else:
            granted.append(name)
    if orchestrator:
        granted.extend(name for name in sorted(DELEGATION_TOOLSETS, reverse=True) if name not in granted)
    asked = set(requested or ())
    return tuple(granted), tuple(name for name in refused if name in asked)
