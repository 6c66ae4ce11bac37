"""Named agent types in files: a Markdown file whose front matter says what a child is and whose body is its prompt.

They stand in `<home>/agents/`, in `.hermes/agents/` of the project and, where the fields agree, in `.claude/agents/`. A
file can narrow what a child may do and never widen it: rights are cut to the parent's wherever a child is made. A file
that cannot be used becomes a note with its line; nothing here fails because of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hermes.core.errors import ConfigError
from hermes.delegation.tool_names import read_tools
from hermes.runtime.isolation import MODES, WorkspaceMode, read_mode

__all__ = ["AgentCatalog", "AgentType", "agent_folders", "load_agents", "read_agent"]

#: A file of more bytes is no prompt, and a folder of more files is no folder of agents.
MAX_BYTES, MAX_FILES = 256 * 1024, 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FRONT = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_LIST_FIELDS = ("tools", "toolsets", "disallowedTools")
#: Fields of other programs that mean nothing here and change no right.
_FOREIGN = frozenset(
    "color permissionMode skills hooks mcpServers background effort memory version author license "
    "metadata tags initialPrompt temperature mode".split()
)
_OURS = frozenset(
    "name description model route provider tools toolsets disallowedTools role timeout max_iterations max_turns "
    "maxTurns isolation workspace".split()
)


class AgentType(msgspec.Struct, frozen=True, kw_only=True):
    """One agent type. `toolsets` None: as the parent gives; `tools` None: all of these. `timeout` is seconds."""

    name: str
    description: str
    prompt: str
    model: str = ""
    provider: str = ""
    toolsets: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    role: str = ""
    timeout: float | None = None
    max_iterations: int | None = None
    workspace: WorkspaceMode | None = None
    path: str = ""
    source: str = "home"


class AgentCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """The types that can be used, by name, and a sentence for each file or field that could not."""

    types: Mapping[str, AgentType] = {}
    notes: tuple[str, ...] = ()

    def listing(self, limit: int = 1_200) -> str:
        """Names with their one line, in at most `limit` characters; the rest by number."""
        lines: list[str] = []
        used = 0
        for number, agent in enumerate(self.types.values()):
            line = f"{agent.name}: {agent.description[:100]}" if agent.description else agent.name
            if used + len(line) > limit:
                lines.append(f"and {len(self.types) - number} more")
                break
            lines.append(line)
            used += len(line) + 2
        return "; ".join(lines)


def agent_folders(home: Path, workspace: Path | None) -> list[tuple[str, Path]]:
    """(source, folder) in the order of preference: the project's own, those it has for other programs, the home's.

    The project is `workspace` and what encloses it up to the root of its repository.
    """
    folders: list[tuple[str, Path]] = []
    for project in _projects(workspace) if workspace is not None else ():
        folders.append(("project", project / ".hermes" / "agents"))
        folders.append(("project", project / ".claude" / "agents"))
    folders.append(("home", home / "agents"))
    return list({path: (source, path) for source, path in reversed(folders)}.values())[::-1]


def _projects(workspace: Path) -> list[Path]:
    enclosing = [workspace, *workspace.parents]
    root = next((number for number, path in enumerate(enclosing) if (path / ".git").exists()), 0)
    return enclosing[: root + 1]


def load_agents(folders: Sequence[tuple[str, Path]]) -> AgentCatalog:
    """Read every `*.md` of the folders; of two with one name the first wins. Blocking; never fails for a bad file."""
    types: dict[str, AgentType] = {}
    notes: list[str] = []
    for source, folder in folders:
        try:
            paths = sorted(path for path in folder.glob("*.md") if path.is_file())
        except OSError as error:
            notes.append(f"{folder}: the folder cannot be read ({error.strerror}); its agent types are left out")
            continue
        if len(paths) > MAX_FILES:
            notes.append(f"{folder}: only the first {MAX_FILES} of {len(paths)} files are read")
        here: set[str] = set()
        for path in paths[:MAX_FILES]:
            try:
                agent, remarks = read_agent(path, source)
            except ConfigError as error:
                notes.append(f"{error} This agent type is left out.")
                continue
            notes.extend(remarks)
            if agent.name in here:
                notes.append(
                    f"{path}:1: the name {agent.name} stands in two files of this folder; this one is left out"
                )
            here.add(agent.name)
            types.setdefault(agent.name, agent)
    return AgentCatalog(types=dict(sorted(types.items())), notes=tuple(notes))


def read_agent(path: Path, source: str = "home") -> tuple[AgentType, tuple[str, ...]]:
    """Read one file: the type, and notes about fields that have no effect.

    Raises:
        ConfigError: it cannot be used; names file and line.
    """
    text = _text(path)
    found = _FRONT.match(text)
    if found is None:
        raise ConfigError(f"{path}:1: no front matter. Begin with a line `---`, the fields, and a second `---`.")
    fields, lines = _fields(path, found[1])
    notes: list[str] = []
    reader = _Reader(path, fields, lines)
    unknown = [name for name in fields if name not in _OURS and name not in _FOREIGN]
    notes.extend(f"{reader.place(name)}: {name} is no field of an agent type; it has no effect" for name in unknown)
    name = reader.text("name") or path.stem
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{reader.place('name')}: {name[:80]!r} is no name. Use up to 64 letters, digits, dots, dashes."
        )
    prompt = text[found.end() :].strip()
    tools = read_tools(reader.names("tools"), reader.names("toolsets"), reader.names("disallowedTools"))
    notes.extend(f"{reader.place('tools')}: {note}" for note in tools.notes)
    role = reader.text("role")
    if role not in ("", "leaf", "orchestrator"):
        raise ConfigError(f"{reader.place('role')}: role is leaf or orchestrator, not {role[:40]!r}.")
    turns = next((field for field in ("max_iterations", "max_turns", "maxTurns") if field in fields), "max_iterations")
    model = reader.text("model")
    agent = AgentType(
        name=name,
        description=_one_line(reader.text("description") or next(iter(prompt.splitlines()), "")),
        prompt=prompt,
        model=reader.text("route") or ("" if model == "inherit" else model),
        provider=reader.text("provider"),
        toolsets=tools.toolsets,
        tools=tools.tools,
        role=role,
        timeout=reader.number("timeout"),
        max_iterations=reader.whole(turns),
        workspace=reader.workspace(),
        path=str(path),
        source=source,
    )
    return agent, tuple(notes)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}:1: cannot be read ({error.strerror}).") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}:1: {len(data)} bytes are too many for an agent type; at most {MAX_BYTES} are read.")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 (byte {error.start}). Save it as UTF-8.") from None


def _fields(path: Path, front: str) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    # edge: the YAML package takes a tenth of a second to import, which a home without agent types need not pay
    from hermes.config.document import parse

    try:
        # one line more, so that lines are those of the file
        document = parse(path, "\n" + front)
    except ConfigError as error:
        plain = _plain_fields(front)
        if plain is None:
            raise ConfigError(f"{error}") from None
        return plain, {(name,): number for number, name in enumerate(plain, 2)}
    return {str(key): value for key, value in document.data.items()}, document.lines


def _plain_fields(front: str) -> dict[str, Any] | None:
    """Fields of a front matter that is no YAML but plain `key: text` lines, as other programs write descriptions with
    colons and quotes in them; None where it is not that either."""
    fields: dict[str, Any] = {}
    for line in front.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = re.match(r"([A-Za-z_][\w-]*):[ \t]+(\S.*)\Z", line)
        if found is None or found[1] in fields or found[2][0] in "[{&*!|>%@`\"'":
            return None
        fields[found[1]] = found[2].strip()
    return fields


class _Reader:
    """Reads fields with errors that name their line."""

    def __init__(self, path: Path, fields: Mapping[str, Any], lines: Mapping[tuple[str, ...], int]) -> None:
        self._path = path
        self._fields = fields
        self._lines = lines

    def place(self, name: str) -> str:
        return f"{self._path}:{self._lines.get((name,), 1)}"

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if value is None:
            return ""
        if isinstance(value, (dict, list)):
            raise ConfigError(f"{self.place(name)}: {name} has to be a text.")
        return str(value).strip()

    def names(self, name: str) -> tuple[str, ...] | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            value = re.split(r",(?![^(]*\))", value)  # a comma inside parentheses belongs to one name
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{self.place(name)}: {name} has to be a list of names.")
        return tuple(item.strip() for item in value if item.strip())

    def workspace(self) -> WorkspaceMode | None:
        """`workspace`, or the same under the name `isolation`."""
        name = "workspace" if "workspace" in self._fields else "isolation"
        value = self.text(name)
        found = read_mode(value)
        if value and found is None:
            raise ConfigError(f"{self.place(name)}: {name} is one of {', '.join(MODES)}, not {value[:40]!r}.")
        return found

    def number(self, name: str) -> float | None:
        value = self._fields.get(name)
        if value is None:
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = 0.0
        if not 0 < number < float("inf") or isinstance(value, bool):
            raise ConfigError(f"{self.place(name)}: {name} has to be a positive number, not {value!r}.")
        return number

    def whole(self, name: str) -> int | None:
        number = self.number(name)
        if number is not None and (number != int(number) or number < 1):
            raise ConfigError(f"{self.place(name)}: {name} has to be a whole number of at least 1, not {number:g}.")
        return None if number is None else int(number)


def _one_line(text: str, limit: int = 300) -> str:
    line = " ".join(text.replace("\\n", " ").split())
    return "".join(letter for letter in line if letter.isprintable())[:limit]
