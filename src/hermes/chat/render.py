"""Text from models and tools made safe and short for a screen. Knows no command and writes nothing itself."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime

from hermes.core.codec import scrub_surrogates
from hermes.core.messages import Usage

__all__ = [
    "Cleaner",
    "aligned",
    "columns",
    "cost",
    "duration",
    "escaped",
    "fitted",
    "fitting",
    "one_line",
    "panel",
    "printable",
    "quantity",
    "rows",
    "size_text",
    "usage_text",
    "when",
    "wrapped",
]

#: Columns below which a second cell stands under the first, not beside it.
_NARROW = 24

#: Complete escape sequences: operating-system commands, control sequences, two-letter ones.
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b.?"
)
#: What could still move the cursor, turn the direction of writing, or hide text: C0 without tab and line feed, C1,
#: bidirectional marks, invisible fillers, interlinear and tag characters.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """Return `text` without anything that acts on a terminal; lines and tabs stay, a lone CR ends a line."""
    text = scrub_surrogates(text).replace("\r\n", "\n").replace("\r", "\n")
    return _HARMFUL.sub("", _ESCAPES.sub("", text))


def escaped(text: str) -> str:
    """Return JSON with everything that acts on a terminal written as `\\uXXXX`, which means the same to a reader."""
    return _HARMFUL.sub(lambda found: json.dumps(found.group())[1:-1], text)


#: The beginning of an escape sequence whose end has not come yet.
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*)?\Z|\r\Z")
#: Longest beginning that is waited for.
_PATIENCE = 256


#: A word or a block of a key is waited for to this length; what was shown and may begin a key of several words.
_LONGEST_WORD, _LONGEST_BLOCK, _BEFORE = 4_000, 16_000, 80


class Cleaner:
    """`printable` for text that comes in pieces: a sequence cut in two is still taken out whole.

    `redact` replaces secrets; a word is then shown when it is whole, since half a key is not recognised.
    """

    def __init__(self, redact: Callable[[str], str] | None = None) -> None:
        self._redact = redact
        self._held = ""
        self._waiting = ""
        self._shown = ""

    def feed(self, text: str) -> str:
        """Return what may be shown so far."""
        text = self._held + text
        found = _UNFINISHED.search(text[-_PATIENCE:])
        self._held = found.group() if found else ""
        text = printable(text[: len(text) - len(self._held)])
        if self._redact is None:
            return text
        self._waiting += text
        return self._ready(self._redact, self._complete())

    def end(self) -> str:
        """Return what is left at the end of a text."""
        held, self._held = printable(self._held), ""
        if self._redact is None:
            return held
        self._waiting += held
        ready = self._ready(self._redact, len(self._waiting))
        self._shown = ""
        return ready

    def _complete(self) -> int:
        """How much of what waits is whole."""
        waiting = self._waiting
        opened = waiting.rfind("-----BEGIN")
        if opened >= 0 and "-----END" not in waiting[opened:] and len(waiting) - opened < _LONGEST_BLOCK:
            waiting = waiting[:opened]
        end = max(waiting.rfind(" "), waiting.rfind("\n"), waiting.rfind("\t")) + 1
        return len(waiting) if len(waiting) - end > _LONGEST_WORD else end

    def _ready(self, redact: Callable[[str], str], count: int) -> str:
        ready, self._waiting = self._waiting[:count], self._waiting[count:]
        if not ready:
            return ""
        before, both = redact(self._shown), redact(self._shown + ready)
        self._shown = (self._shown + ready)[-_BEFORE:]
        return both[len(before) :] if both.startswith(before) else redact(ready)


def one_line(text: str, limit: int = 80) -> str:
    """Return `text` on one safe line of at most `limit` columns; a cut one ends with `…`."""
    return fitted(" ".join(printable(text).split()), limit)


def fitted(line: str, width: int) -> str:
    """A laid out line in at most `width` columns; a cut one ends with `…`."""
    if width < 2:
        return line if columns(line) <= width else "…"[:width]
    return line if fitting(line, width) == len(line) else line[: fitting(line, width - 1)].rstrip() + "…"


def duration(seconds: float) -> str:
    """Seconds as people write them: `4.2s`, `3m 05s`, `2h 10m`."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    return f"{minutes // 60}h {minutes % 60:02d}m"


def quantity(number: int) -> str:
    """A number of tokens: `950`, `12.3k`, `4.5M`."""
    if number < 1_000:
        return str(number)
    return f"{number / 1_000:.1f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def cost(usage: Usage) -> str:
    """Money, where there is a price and it is known: `$0.0123`, else nothing."""
    return f"${usage.cost_usd:.4f}" if usage.cost_usd else ""


def usage_text(usage: Usage) -> str:
    """Tokens and money of a usage: `1.2k in, 300 out, $0.0040`."""
    parts = [f"{quantity(usage.input)} in", f"{quantity(usage.output)} out", cost(usage)]
    return ", ".join(part for part in parts if part)


def panel(title: str, text: str, width: int = 80) -> list[str]:
    """Lines of a text with a heading and a rule on its left."""
    head = f"╭─ {title} "
    lines = printable(text).splitlines() or ["(no text)"]
    return [head + "─" * max(2, width - columns(head)), *(f"│ {line}" for line in lines), "╰" + "─" * (width - 1)]


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def fitting(text: str, width: int) -> int:
    """How many letters of `text` fit into `width` columns, at least one."""
    if text.isascii():
        return max(1, min(width, len(text))) if text else 0
    used = 0
    for count, letter in enumerate(text):
        used += columns(letter)
        if used > width:
            return max(1, count)
    return len(text)


def aligned(rows: Sequence[tuple[str, str]], indent: str = "  ", width: int = 0) -> list[str]:
    """Two columns, the first as wide as its longest cell. What does not fit into `width` columns of the screen (0: any
    number does) goes on under its own beginning, or under the first cell where too little room is left beside it."""
    first = max((columns(left) for left, _ in rows), default=0)
    room = width - first - len(indent) - 2
    if 0 < width and room < _NARROW and any(columns(right) > room for _, right in rows):
        lead = indent * 2
        return [
            line
            for left, right in rows
            for line in (f"{indent}{left}", *(lead + part for part in _broken(right, width - len(lead)) if part))
        ]
    lines: list[str] = []
    for left, right in rows:
        begin, *rest = _broken(right, room) if width else [right]
        lines.append(f"{indent}{left}{' ' * (first - columns(left))}  {begin}".rstrip())
        lines += [f"{indent}{' ' * first}  {part}" for part in rest]
    return lines


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken at spaces, and where a word is longer, inside of it."""
    lines: list[str] = []
    for line in _broken(text, width):
        while (count := fitting(line, width)) < len(line):
            lines.append(line[:count])
            line = line[count:]
        lines.append(line)
    return lines


def _broken(text: str, room: int) -> list[str]:
    """Lines of at most `room` columns, broken at spaces; a longer word stays whole, to be copied."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and columns(lines[-1]) + 1 + columns(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def when(seconds: float) -> str:
    """A time (seconds since the epoch) as local date and minute."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def size_text(size: int) -> str:
    """Bytes as `950 B`, `12.3 KB`, `4.5 MB`, `1.2 GB`."""
    if size < 1_000:
        return f"{size} B"
    amount = float(size)
    for unit in ("KB", "MB"):
        amount /= 1_000
        if amount < 1_000:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1_000:.1f} GB"


def rows(table: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Lay out rows in aligned columns; the last column is as long as it likes."""
    if not table:
        return ""
    # what models, servers and files wrote must not act on the terminal
    table = [[printable(cell).replace("\n", " ") for cell in row] for row in table]
    widths = [max(columns(row[column]) for row in table) for column in range(len(table[0]) - 1)]
    lines = []
    for row in table:
        cells = [cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=False)]
        lines.append((indent + "  ".join([*cells, row[-1]])).rstrip())
    return "\n".join(lines)
