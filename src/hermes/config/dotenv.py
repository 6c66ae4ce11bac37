"""The `.env` file: `NAME=value` lines, read and edited one line at a time.

Values are not expanded, commands are not run, and nothing is put into the process's environment: whoever needs a value
asks for it, so that no command and no child inherits a key by accident.
"""

from __future__ import annotations

import re
from pathlib import Path

from hermes.config.files import read_text, write_file
from hermes.core.errors import UsageError

__all__ = ["parse_dotenv", "read_dotenv", "set_variable", "unset_variable"]

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def _value(raw: str) -> str:
    if raw[:1] == "'" and raw.find("'", 1) > 0:
        return raw[1 : raw.index("'", 1)]
    if raw[:1] == '"':
        closed = re.match(r'"((?:[^"\\]|\\.)*)"', raw)
        if closed:
            return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), closed[1])
    return re.split(r"\s#", raw, maxsplit=1)[0].strip() if not raw.startswith("#") else ""


def parse_dotenv(text: str) -> dict[str, str]:
    """Parse the text of a `.env` file. Lines that are no assignment are passed over; the last of two wins."""
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    return {match[1]: _value(match[2]) for match in found if match}


def read_dotenv(path: Path) -> dict[str, str]:
    """Read a `.env` file; a missing one is empty.

    Raises:
        ConfigError: it is not UTF-8.
        OperatorError: it cannot be read.
    """
    text = read_text(path)
    return parse_dotenv(text) if text is not None else {}


def _quote(value: str) -> str:
    if not value or re.fullmatch(r"[A-Za-z0-9_./:@%+,=?&~-]+", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _without(lines: list[str], name: str) -> tuple[list[str], int | None]:
    kept: list[str] = []
    place = None
    for line in lines:
        match = _LINE.fullmatch(line.rstrip("\r\n"))
        if match and match[1] == name:
            place = len(kept) if place is None else place
        else:
            kept.append(line)
    return kept, place


def set_variable(path: Path, name: str, value: str) -> None:
    """Set a variable; all other lines stay as they are. The file gets mode 0600.

    Raises:
        UsageError: the name is no variable's name, or the value has a line break.
        OperatorError: the file cannot be written.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"{name!r} is no name of a variable: use letters, digits and '_'.")
    if re.search(r"[\r\n\0]", value):
        raise UsageError(f"the value of {name} has a line break in it; a .env file cannot hold that.")
    lines = (read_text(path) or "").splitlines(keepends=True)
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    kept, place = _without(lines, name)
    if place is None:
        if kept and not kept[-1].endswith(("\n", "\r")):
            kept[-1] += newline
        place = len(kept)
    kept.insert(place, f"{name}={_quote(value)}{newline}")
    write_file(path, "".join(kept), mode=0o600)


def unset_variable(path: Path, name: str) -> bool:
    """Remove a variable; False if it was not there."""
    lines = (read_text(path) or "").splitlines(keepends=True)
    kept, place = _without(lines, name)
    if place is None:
        return False
    write_file(path, "".join(kept), mode=0o600)
    return True
