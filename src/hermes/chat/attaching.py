"""Files that a message names with `@path`: their text goes along with it, so that nobody has to ask the model to look.

Pictures go along as pictures where the model looks at them. A name without a file stays what it is, a word; other data
is not sent, and nothing is changed or executed.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Callable, Sequence

import anyio.to_thread
import msgspec

from hermes.chat.render import one_line, size_text
from hermes.core.errors import UsageError
from hermes.core.markers import defused
from hermes.core.messages import Content, Image, Text

__all__ = ["Attached", "Sight", "attached", "pictures_of", "without_files"]

#: Characters of one file and of all files of a message that go along, and files that are looked at.
MOST_FILE, MOST_TOGETHER, MOST_FILES = 60_000, 200_000, 20
#: Bytes of one picture, which providers take up to 5 MB of as text, and of all pictures of a message.
MOST_PICTURE, MOST_PICTURES = 3_750_000, 12_000_000
#: How the kinds of pictures begin that every format takes.
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif", b"GIF89a": "image/gif",
}  # fmt: skip
#: A dot of a name, where the dots of a key stand between sections.
_LITERAL = "\\."
#: A name after `@` at the beginning of a word, bare or in quotes.
_NAMED = re.compile(r"(?<!\S)@(?:\"([^\"\n]+)\"|'([^'\n]+)'|(\S+))")
#: What ends a sentence and no name.
_AFTER = ".,;:!?)]}»\"'"
_BEGINNING = '\n\n<attached-file path="'


class Attached(msgspec.Struct, frozen=True):
    """A message with the files it names, and what its person is told of them."""

    text: str
    notes: tuple[str, ...] = ()
    pictures: tuple[Image, ...] = ()

    @property
    def content(self) -> Content:
        """The whole message: what was written, its files, its pictures."""
        said = without_files(self.text)
        return (*(Text(part) for part in (said, self.text[len(said) :]) if part), *self.pictures)


class Sight(msgspec.Struct, frozen=True):
    """Whether the model of this name looks at pictures; None where that is not known."""

    model: str = ""
    images: bool | None = None

    @property
    def refusal(self) -> str:
        """Why no picture goes to it, empty where one may."""
        if self.images:
            return ""
        name = self.model or "this model"
        if self.images is False:
            return f"{name} looks at no pictures"
        key = f"models.{name.replace('.', _LITERAL)}.images"
        return f"whether {name} looks at pictures is not known; if it does: hermes config set '{key}' true"


async def attached(
    text: str, folder: str, redact: Callable[[str], str], *, private: str, workspaces: str, sight: Sight | None = None
) -> Attached:
    """`text` with the files of `folder` that it names, pictures by what `sight` says of the model. Nothing under
    `private`, where keys are kept, is sent but from its `workspaces`, which hold work; other secrets that are known are
    replaced by `redact`."""
    if "@" not in text:
        return Attached(text)
    return await anyio.to_thread.run_sync(_attached, text, folder, redact, (private, workspaces), sight or Sight())


def pictures_of(paths: Sequence[str], sight: Sight) -> tuple[Image, ...]:
    """The pictures that these files hold, in their order, for a model of which `sight` is known.

    Raises:
        UsageError: one cannot be read, is no picture or too large, or the model looks at none.
    """
    message = _Message("", str, sight)
    for path in paths:
        shown = one_line(path, 200)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise UsageError(f"--image {shown}: it is no file. Name a picture.")
            kind = _picture(path)
            if not kind:
                raise UsageError(f"--image {shown}: it is no PNG, JPEG, GIF or WebP picture.")
            message.show(shown, path, kind)
        except OSError as error:
            raise UsageError(f"--image {shown}: {error.strerror or error}.") from None
        if message.notes:
            raise UsageError(f"--image: {message.notes[0].removeprefix('! ')}")
    return tuple(message.pictures)


def without_files(text: str) -> str:
    """What a person wrote, without the files that went along."""
    return text.partition(_BEGINNING)[0]


def _attached(text: str, folder: str, redact: Callable[[str], str], closed: tuple[str, str], sight: Sight) -> Attached:
    message = _Message(text, redact, sight)
    named = _files(text, folder)
    for name, path in named[:MOST_FILES]:
        shown = one_line(name, 80)
        if _inside(path, closed[0]) and not _inside(path, closed[1]):
            message.left_out(shown, f"keys are kept in {closed[0]}")
        elif not _inside(path, folder):  # what others wrote may be pasted, and name anything
            message.left_out(shown, f"it is not in {folder}. Its name is; the tools of the model may look")
        else:
            try:
                kind = _picture(path)
                message.show(shown, path, kind) if kind else message.quote(shown, name, path)
            except OSError as error:
                message.left_out(shown, error.strerror or str(error))
    if len(named) > MOST_FILES:
        message.notes.append(
            f"! only the first {MOST_FILES} files that are named are sent, not {one_line(named[-1][0], 80)}"
        )
    said = [f"attached: {', '.join(message.sent)}"] if message.sent else []
    return Attached("".join(message.parts), (*said, *message.notes), tuple(message.pictures))


class _Message:
    """A message that files join, and what is said of each."""

    def __init__(self, text: str, redact: Callable[[str], str], sight: Sight) -> None:
        self.parts, self.sent, self.notes = [text], list[str](), list[str]()
        self.pictures: list[Image] = []
        self._redact, self._sight = redact, sight
        self._room, self._sight_room = MOST_TOGETHER, MOST_PICTURES

    def left_out(self, shown: str, why: str) -> None:
        self.notes.append(f"! {shown} was not sent: {why}")

    def quote(self, shown: str, name: str, path: str) -> None:
        """Let the text of a file go along."""
        found, size = _read(path)
        if found is None:
            why = f"it is no text ({size_text(size)}). Its name is; the tools of the model may look at it"
            self.left_out(shown, why)
            return
        if self._room <= 0:
            self.left_out(shown, f"the files before it have {MOST_TOGETHER} characters already")
            return
        found = defused(self._redact(found))
        most = min(MOST_FILE, self._room)
        whole = size <= 4 * MOST_FILE and len(found) <= most
        found = found[:most]
        self._room -= len(found)
        cut = "" if whole else f"\n[the first {len(found)} characters of {size_text(size)}; read_file shows the rest]"
        self.parts.append(f'{_BEGINNING}{name}">\n{found}{cut}\n</attached-file>')
        lines = found.count("\n") + (not found.endswith("\n"))
        self.sent.append(f"{shown} ({lines} line{'' if lines == 1 else 's'}{'' if whole else ', its beginning'})")

    def show(self, shown: str, path: str, kind: str) -> None:
        """Let a picture go along."""
        size = os.stat(path).st_size
        if why := self._sight.refusal:
            self.left_out(shown, why)
        elif size > MOST_PICTURE:
            self.left_out(shown, f"it has {size_text(size)}, and a picture may have {size_text(MOST_PICTURE)}")
        elif size > self._sight_room:
            self.left_out(shown, f"the pictures of one message may have {size_text(MOST_PICTURES)} together")
        else:
            with open(path, "rb") as stream:
                data = stream.read(MOST_PICTURE)
            self._sight_room -= len(data)
            self.pictures.append(Image(media_type=kind, data=base64.b64encode(data).decode("ascii")))
            self.sent.append(f"{shown} (picture, {size_text(len(data))})")


def _picture(path: str) -> str:
    """The kind of a picture by how it begins, empty for another file."""
    with open(path, "rb") as stream:
        head = stream.read(16)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for beginning, kind in _PICTURES.items() if head.startswith(beginning)), "")


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
