"""Changing one setting of `config.yaml` and not a byte beside it.

The value is cut out and put in by its place in the text; the result is parsed again and must be the old data with that
one change, else nothing is written. Comments, order, quotes and keys of other programs therefore survive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from hermes.config.document import Document, find_pair, parse, parse_value
from hermes.config.files import locked, read_text, write_file
from hermes.core.errors import ConfigError

__all__ = ["set_value", "split_key", "unset_value"]


def split_key(key: str) -> tuple[str, ...]:
    r"""Split a dotted key; a backslash keeps a dot literal (`models.gpt-4\.1.thinking`).

    Raises:
        ConfigError: a part is empty.
    """
    parts = tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", key))
    if not all(parts):
        raise ConfigError(f"{key!r} is no key: a part of it is empty. Write it as section.name.")
    return parts


def set_value(path: Path, key: Sequence[str], value: Any, *, lock: Path | None) -> None:
    """Set the value at `key` (its parts) in the file, which is made if there is none. `value` is plain data.

    `lock` is None where the caller holds it already.

    Raises:
        ConfigError: the file cannot be parsed, or the key runs through a value that is no section.
        OperatorError: the file cannot be written.
        TryLater: another process changes it and does not come to an end.
    """
    with locked(lock) if lock is not None else nullcontext():
        document = parse(path, read_text(path) or "")
        data = _unshared(document.data)
        _put(path, data, key, value)
        _store(path, _spliced(document, key, value), data)


def unset_value(path: Path, key: Sequence[str], *, lock: Path | None) -> bool:
    """Remove the value at `key`; False if it was not there. Raises as `set_value`."""
    with locked(lock) if lock is not None else nullcontext():
        document = parse(path, read_text(path) or "")
        data = _unshared(document.data)
        inner: Any = data
        for part in key[:-1]:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or key[-1] not in inner:
            return False
        del inner[key[-1]]
        _store(path, _removed(document, key), data)
        return True


def _put(path: Path, data: dict[str, Any], key: Sequence[str], value: Any) -> None:
    for depth, part in enumerate(key[:-1]):
        inner = data.get(part)
        if inner is None:
            inner = data[part] = {}
        if not isinstance(inner, dict):
            name = ".".join(key[: depth + 1])
            raise ConfigError(
                f"{path}: {name} is a single value, so {'.'.join(key)} cannot be set. Unset {name} first."
            )
        data = inner
    data[key[-1]] = value


def _store(path: Path, text: str, data: dict[str, Any]) -> None:
    if _bare(parse(path, text).data) != _bare(data):
        raise ConfigError(
            f"{path}: this setting cannot be changed without rewriting other lines (anchors or an unusual layout). "
            "Change it in an editor."
        )
    write_file(path, text, mode=0o600)


def _unshared(value: Any) -> Any:
    """A copy in which no part stands twice: an anchor and its alias are one object in parsed data."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _bare(value: Any) -> Any:
    """`value` with empty sections as None: removing the last key of a section leaves its empty line."""
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items()} or None
    return value


def render(value: Any) -> str:
    """Write a value on one line as YAML."""
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z0-9_./~$][A-Za-z0-9_./@+~$ :-]*", value) and not re.search(r": |:$| $", value)
        reference = re.fullmatch(r"\$\{[A-Za-z_]\w*\}", value)
        word = value.lower() in {"yes", "no", "on", "off", "y", "n", "~", "null"}
        same = not word and parse_value(value) == value and isinstance(parse_value(value), str)
        return value if (plain or reference) and same else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{render(str(key))}: {render(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_item(item) for item in value) + "]"
    return json.dumps(value)


def _item(value: Any) -> str:
    text = render(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) and re.search(r"[,\[\]{}]", text) else text


def _block(key: Sequence[str], value: Any, indent: int, newline: str) -> str:
    lines = []
    for depth, part in enumerate(key):
        tail = f" {render(value)}" if depth == len(key) - 1 else ""
        lines.append(f"{' ' * (indent + 2 * depth)}{render(part)}:{tail}{newline}")
    return "".join(lines)


def _end(node: Node) -> int:
    """Where the text of `node` ends: the end mark of a block stands behind the comments that follow it."""
    if isinstance(node, MappingNode) and not node.flow_style:
        return _end(node.value[-1][1])
    if isinstance(node, SequenceNode) and not node.flow_style:
        return _end(node.value[-1])
    return int(node.end_mark.index)


def _line_end(text: str, index: int) -> int:
    if index and text[index - 1] == "\n":
        return index
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value == "" and node.style is None


def _spliced(document: Document, key: Sequence[str], value: Any) -> str:
    text, newline = document.text, "\r\n" if "\r\n" in document.text else "\n"
    node = document.root
    if node is None:
        return _with_line(text, len(text), _block(key, value, 0, newline), newline)
    for depth, part in enumerate(key):
        pair = find_pair(node, part)
        if pair is None:
            return _added(text, node, key[depth:], value, newline)
        if depth == len(key) - 1:
            return _replaced(text, pair, value, newline, _item if node.flow_style else render)
        if _is_null(pair[1]):
            indent = pair[0].start_mark.column + 2
            return _with_line(
                text, _line_end(text, _end(pair[0])), _block(key[depth + 1 :], value, indent, newline), newline
            )
        node = pair[1]
    raise AssertionError("a key has at least one part")


def _with_line(text: str, index: int, lines: str, newline: str) -> str:
    head = text[:index]
    if head and not head.endswith("\n"):
        head += newline
    return head + lines + text[index:]


def _added(text: str, node: MappingNode, key: Sequence[str], value: Any, newline: str) -> str:
    if node.flow_style:
        inner = value
        for part in reversed(key[1:]):
            inner = {part: inner}
        close = node.end_mark.index - 1
        head = text[:close].rstrip()
        comma = ", " if node.value and not head.endswith(",") else ""
        return f"{head}{comma}{render(key[0])}: {_item(inner)}{text[close:]}"
    last = node.value[-1][1]
    place = _line_end(text, int(node.value[-1][0].end_mark.index) if _is_null(last) else _end(last))
    return _with_line(text, place, _block(key, value, node.value[0][0].start_mark.column, newline), newline)


def _replaced(text: str, pair: tuple[Node, Node], value: Any, newline: str, write: Callable[[Any], str]) -> str:
    key, node = pair
    if _is_null(node):
        colon = text.index(":", key.end_mark.index) + 1
        return f"{text[:colon]} {write(value)}{text[colon:]}"
    if isinstance(node, SequenceNode) and not node.flow_style and isinstance(value, (list, tuple)):
        edited = _edited_list(text, node, list(value), newline)
        if edited is not None:
            return edited
    start, end = int(node.start_mark.index), _end(node)
    if isinstance(node, (MappingNode, SequenceNode)) and not node.flow_style:
        start = text.index(":", key.end_mark.index) + 1
        return f"{text[:start]} {write(value)}{text[end:]}"
    tail = newline if text[end - 1] == "\n" else ""
    return text[:start] + write(value) + tail + text[end:]


def _edited_list(text: str, node: SequenceNode, value: list[Any], newline: str) -> str | None:
    """Drop and append items of a block list of words, keeping the lines of the others; None if that is not enough."""
    old = [item.value if isinstance(item, ScalarNode) else None for item in node.value]
    kept = [item for item in old if item in value]
    if not kept or None in old or not all(isinstance(item, str) for item in value) or kept != value[: len(kept)]:
        return None
    place = _line_end(text, _end(node.value[-1]))
    first = _line_start(text, int(node.value[0].start_mark.index))
    lead = text[first : node.value[0].start_mark.index]
    if lead.strip() != "-":
        return None
    text = _with_line(text, place, "".join(f"{lead}{_item(item)}{newline}" for item in value[len(kept) :]), newline)
    for item in reversed(node.value):
        if item.value not in value:
            start = _line_start(text, int(item.start_mark.index))
            text = text[:start] + text[_line_end(text, _end(item)) :]
    return text


def _removed(document: Document, key: Sequence[str]) -> str:
    text = document.text
    node = document.root
    for part in key[:-1]:
        found = find_pair(node, part)
        node = found[1] if found else None
    pair = find_pair(node, key[-1])
    if pair is None or not isinstance(node, MappingNode):
        raise ConfigError(f"{'.'.join(key)} comes from an anchor. Remove it in an editor.")
    if node.flow_style:
        index = node.value.index(pair)
        start = int(pair[0].start_mark.index)
        end = int(pair[1].end_mark.index)
        if index + 1 < len(node.value):
            end = int(node.value[index + 1][0].start_mark.index)
        elif index:
            start = int(node.value[index - 1][1].end_mark.index)
        return text[:start] + text[end:]
    start = _line_start(text, int(pair[0].start_mark.index))
    end = _line_end(text, int(pair[0].end_mark.index) if _is_null(pair[1]) else _end(pair[1]))
    return text[:start] + text[end:]
