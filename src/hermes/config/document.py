"""`config.yaml` as a tree of nodes with places, so that errors name a line and edits touch only what they must.

Loaded only when there is a file: the YAML package costs start-up time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node

from hermes.core.errors import ConfigError

__all__ = ["Document", "find_pair", "parse", "parse_value"]

Path_ = tuple[str, ...]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed file: its `text`, plain `data`, top `root` node (None when empty) and the line of each path."""

    text: str
    data: dict[str, Any]
    root: Any
    lines: dict[Path_, int]


def _loader() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = False
    return yaml


def _explain(path: Path, text: str, error: MarkedYAMLError) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 1
    shown = text.splitlines()[line - 1] if 0 < line <= len(text.splitlines()) else ""
    problem = (error.problem or error.context or "cannot be read").strip().splitlines()[0]
    if "\t" in shown[: len(shown) - len(shown.lstrip())] or "'\\t'" in problem:
        problem = "a tab is used for indentation; YAML wants spaces. Replace the tab with spaces"
    elif problem.startswith("found duplicate key"):
        name = re.search(r'duplicate key "?([^"\s]+)"?', problem)
        problem = f"the key {name[1] if name else ''} stands twice. Remove one of the two"
    elif "mapping values are not allowed" in problem or "expected <block end>" in problem:
        problem = "the indentation does not fit the lines above. Keys of one section start in the same column"
    return ConfigError(f"{path}:{line}: {problem}.")


def _lines(node: Any, prefix: Path_, found: dict[Path_, int]) -> None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            name = (*prefix, str(key.value))
            found[name] = key.start_mark.line + 1
            _lines(value, name, found)


def parse(path: Path, text: str) -> Document:
    """Parse the text of a configuration file; `path` only names it in errors.

    Raises:
        ConfigError: not YAML, a key twice, several documents, or no mapping at the top; names the line.
    """
    yaml = _loader()
    try:
        root: Node | None = yaml.compose(text)
        data = _loader().load(text) if root is not None else None
    except MarkedYAMLError as error:
        raise _explain(path, text, error) from None
    except YAMLError as error:
        found = re.search(r"position (\d+)", str(error))
        line = text.count("\n", 0, int(found[1])) + 1 if found else 1
        raise ConfigError(f"{path}:{line}: a character that YAML does not allow stands here. Remove it.") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as settings ({error}).") from None
    if data is None:
        return Document(text=text, data={}, root=None, lines={})
    if not isinstance(data, dict):
        kind = "list" if isinstance(data, list) else "single value"
        raise ConfigError(f"{path}:1: a {kind} stands where settings should. Write `name: value` lines.")
    lines: dict[Path_, int] = {}
    _lines(root, (), lines)
    return Document(text=text, data=data, root=root, lines=lines)


def parse_value(text: str) -> Any:
    """Read a value as it would be read after `key: `; what is no YAML is the text itself."""
    try:
        return _loader().load(text)
    except YAMLError:
        return text


def find_pair(mapping: Any, name: str) -> tuple[Any, Any] | None:
    """The (key, value) nodes of `name` in a mapping node, or None."""
    if not isinstance(mapping, MappingNode):
        return None
    return next(((key, value) for key, value in mapping.value if str(key.value) == name), None)
