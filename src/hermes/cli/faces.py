"""Which face a conversation gets: the full screen, an editor line, or plain lines; and why not the first.

It looks at the terminal and loads no face.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from typing import Literal

import msgspec

from hermes.core.errors import UsageError

__all__ = ["SCREEN", "Chosen", "chosen_face", "screen_lacks"]

#: The module of the full screen; an installation may do without it.
SCREEN = "hermes.tui.face"
_BARE = frozenset({"", "dumb", "unknown", "emacs"})

Face = Literal["screen", "editor", "lines"]


class Chosen(msgspec.Struct, frozen=True):
    """A face, and a sentence for a person who may have expected another one."""

    face: Face
    note: str = ""


def screen_lacks(environ: Mapping[str, str], *, terminal: bool, encoding: str) -> str:
    """What the full screen needs and this place does not have; empty where nothing is missing."""
    if importlib.util.find_spec("hermes.tui") is None:
        return "this installation has no full screen"
    if not terminal:
        return "stdin, stdout and stderr are not all a terminal"
    if environ.get("TERM", "") in _BARE:
        return f"the terminal cannot be drawn on (TERM={environ.get('TERM', '') or 'not set'})"
    if encoding.lower().replace("-", "").replace("_", "") != "utf8":
        return f"the terminal's encoding is {encoding}, not UTF-8 (set LANG, for example C.UTF-8)"
    return ""


def chosen_face(wanted: str | None, environ: Mapping[str, str], usual: str = "") -> Chosen:
    """`wanted` is what the command line says: `tui`, `cli`, or None; `usual` is the setting, or empty.

    Without a wish it is what the terminal can do, and not the full screen where CI or NO_COLOR is set.

    Raises:
        UsageError: the full screen is wanted and cannot be had.
    """
    terminals = [stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)]
    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    lacks = screen_lacks(environ, terminal=all(terminals), encoding=encoding)
    if wanted == "tui":
        if lacks:
            raise UsageError(f"--tui: {lacks}. --cli converses line by line.")
        return Chosen("screen")
    free = not environ.get("CI") and "NO_COLOR" not in environ
    if wanted is None and not lacks and (usual == "tui" or (not usual and free)):
        return Chosen("screen")
    if not (terminals[0] and terminals[1]) or environ.get("TERM", "") in _BARE:
        return Chosen("lines")
    said = lacks if wanted is None and (usual == "tui" or (not usual and "encoding" in lacks)) else ""
    return Chosen("editor", f"line by line: {said}" if said else "")
