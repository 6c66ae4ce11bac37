"""Files that a message names with `@path`: their text goes along with it, so that nobody has to ask the model to look.

A name without a file stays what it is, a word. Pictures and other data are not sent; nothing is changed or executed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable

import anyio.to_thread
import msgspec

from hermes.chat.render import one_line, size_text
from hermes.core.markers import defused

__all__ = ["Attached", "attached", "without_files"]

#: Characters of one file and of all files of a message that go along, and files that are looked at.
MOST_FILE, MOST_TOGETHER, MOST_FILES = 60_000, 200_000, 20
#: A name after `@` at the beginning of a word, bare or in quotes.
_NAMED = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|'([^'\n]+)'|(\S+))")
#: What ends a sentence and no name.
_AFTER = ".,;:!?)]}»\"'"
_BEGINNING = '\n\n<attached-file path="'


class Attached(msgspec.Struct, frozen=True):
    """A message with the files it names, and what its person is told of them."""

    text: str
    notes: tuple[str, ...] = ()


async def attached(text: str, folder: str, redact: Callable[[str], str], *, private: str, workspaces: str) -> Attached:
    """`text` with the files of `folder` that it names. Nothing under `private`, where keys are kept, is sent but from
    its `workspaces`, which hold work; other secrets that are known are replaced by `redact`."""
    if "@" not in text:
        return Attached(text)
    return await anyio.to_thread.run_sync(_attached, text, folder, redact, (private, workspaces))


def without_files(text: str) -> str:
    """What a person wrote, without the files that went along."""
    return text.partition(_BEGINNING)[0]


def _attached(text: str, folder: str, redact: Callable[[str], str], closed: tuple[str, str]) -> Attached:
    parts, sent, notes, room = [text], list[str](), list[str](), MOST_TOGETHER
    private, workspaces = closed
    named = _files(text, folder)
    for name, path in named[:MOST_FILES]:
        shown = one_line(name, 80)
        if _inside(path, private) and not _inside(path, workspaces):
            notes.append(f"! {shown} was not sent: keys are kept in {private}")
            continue
        if not _inside(path, folder):  # what others wrote may be pasted, and name anything
            notes.append(f"! {shown} was not sent: it is not in {folder}. Its name is; the tools of the model may look")
            continue
        try:
            found, size = _read(path)
        except OSError as error:
            notes.append(f"! {shown} was not sent: {error.strerror or error}")
            continue
        if found is None:
            notes.append(
                f"! {shown} was not sent: it is no text ({size_text(size)}). Its name is; the tools of the model may "
                "look at it"
            )
            continue
        if room <= 0:
            notes.append(f"! {shown} was not sent: the files before it have {MOST_TOGETHER} characters already")
            continue
        found = defused(redact(found))
        whole = size <= 4 * MOST_FILE and len(found) <= min(MOST_FILE, room)
        found = found[: min(MOST_FILE, room)]
        room -= len(found)
        cut = "" if whole else f"\n[the first {len(found)} characters of {size_text(size)}; read_file shows the rest]"
        parts.append(f'{_BEGINNING}{name}">\n{found}{cut}\n</attached-file>')
        lines = found.count("\n") + (not found.endswith("\n"))
        sent.append(f"{shown} ({lines} line{'' if lines == 1 else 's'}{'' if whole else ', its beginning'})")
    if len(named) > MOST_FILES:
        notes.append(f"! only the first {MOST_FILES} files that are named are sent, not {one_line(named[-1][0], 80)}")
    said = [f"attached: {', '.join(sent)}"] if sent else []
    return Attached("".join(parts), (*said, *notes))


def _files(text: str, folder: str) -> list[tuple[str, str]]:
    """The regular files that are named, each once, and at most one more than are sent: the name as written and the
    path."""
    found: dict[str, str] = {}
    for match in _NAMED.finditer(text):
        name = match[1] or match[2] or match[3]
        for word in (name, name.rstrip(_AFTER)):
            try:
                path = os.path.join(folder, os.path.expanduser(word)) if word else ""
                if path and stat.S_ISREG(os.stat(path).st_mode):
                    found.setdefault(path, word)
                    break
            except (OSError, ValueError):
                continue
        if len(found) > MOST_FILES:
            break
    return [(name, path) for path, name in found.items()]


def _inside(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), ""))


def _read(path: str) -> tuple[str | None, int]:
    """The beginning of a file as text, None where it is none; and its size in bytes."""
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        data = stream.read(4 * MOST_FILE)
    if b"\0" in data:
        return None, size
    try:
        return data.decode("utf-8-sig"), size
    except UnicodeDecodeError as error:
        if error.start < len(data) - 4 or size <= len(data):
            return None, size
        return data[: error.start].decode("utf-8-sig"), size  # a letter cut in two where reading ended
