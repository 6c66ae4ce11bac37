"""What a conversation needs of a place where lines come from and go to, and how text and notes take turns there.

Reads no key and writes to no terminal: each face brings its own `Composer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from hermes.chat.render import Cleaner, fitting, one_line, panel, printable

if TYPE_CHECKING:
    from hermes.runtime.asking import Question

__all__ = ["Composer", "Screen", "Signal", "Stage", "nobody"]


class Signal(Enum):
    """What comes instead of a line: Ctrl+C, or the end of the input."""

    INTERRUPT = "interrupt"
    END = "end"


class Composer(Protocol):
    """A source of lines that also prints them. Entered and left once.

    `on_typing` is called with whether something stands in the editor. `finished`: no further line can come.
    """

    on_typing: Callable[[bool], None]
    finished: bool

    @property
    def width(self) -> int:
        """Columns of the screen."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def read(self) -> str | Signal:
        """The next line."""

    def write(self, line: str) -> None:
        """Print a finished, safe line."""

    def partial(self, text: str) -> None:
        """Show (or take back, when empty) text that is not a whole line yet, if that can be done."""

    def refresh(self, prompt: str, status: str) -> None:
        """Show another prompt and another status."""

    def bell(self) -> None:
        """Ring."""


class Stage(Protocol):
    """Where a conversation is shown. Every text is made safe for a screen here, and secrets are replaced.

    `keys` are what only this place has: key, and what it does.
    """

    keys: Sequence[tuple[str, str]]

    @property
    def width(self) -> int:
        """Columns of the screen."""

    def note(self, text: str) -> None:
        """Show something that is not part of the answer."""

    def delta(self, text: str) -> None:
        """Show more of the answer."""

    def finish(self) -> None:
        """The answer is over."""

    def panel(self, title: str, text: str) -> None:
        """Show a text with a heading."""

    def question(self, question: Question) -> None:
        """Show what a person is asked."""

    def recall(self, asked: str, answered: str) -> None:
        """Show an exchange of a conversation that is taken up; either may be empty."""

    def opens(self, name: str) -> bool:
        """Open a place of its own for `agents`, `sessions`, `board` or `leave`; False where lines must do."""


def nobody(typing: bool) -> None:
    """Nobody is told of typing."""


class Screen:
    """Streamed text and notes, one after the other: a note waits until the line of text under way is finished."""

    def __init__(self, composer: Composer, redact: Callable[[str], str] | None = None) -> None:
        self.keys: Sequence[tuple[str, str]] = ()
        self._composer = composer
        self._redact = redact
        self._cleaner = Cleaner(redact)
        self._text = ""
        self._notes: list[str] = []

    @property
    def width(self) -> int:
        """Columns of the screen."""
        return self._composer.width

    def note(self, text: str) -> None:
        """Print something that is not part of the answer."""
        lines = self._safe(text).splitlines() or [""]
        if self._text:
            self._notes += lines
            return
        for line in lines:
            self._composer.write(line)

    def panel(self, title: str, text: str) -> None:
        """Print a text with a heading and a rule on its left."""
        # as a whole: a key may go on in the next line
        for line in panel(self._safe(title), self._safe(text), min(self.width, 100) - 1):
            self.note(line)

    def _safe(self, text: str) -> str:
        text = printable(text)
        return self._redact(text) if self._redact is not None else text

    def question(self, question: Question) -> None:
        """Print who asks for what, and how to answer."""
        path = " > ".join(one_line(part, 40) or "conversation" for part in question.path)
        self.note(f"❓ {path}")
        if question.open:
            self.note("\n".join(f"   {line}" for line in printable(question.what).splitlines()))
            for number, choice in enumerate(question.choices, 1):
                self.note(f"   {number} {one_line(choice, 200)}")
            self.note("   write the answer" + (", or its number" if question.choices else ""))
            return
        self.note(f"   wants to run {question.tool}: {one_line(question.what, 500)}")
        self.note(f"   {one_line(question.reason, 500)}.")
        if question.lasting:
            self.note(f"   s and a cover: {one_line(question.lasting, 300)}")
        self.note("   y once · s this conversation · a always · n no")

    def recall(self, asked: str, answered: str) -> None:
        """Print the beginning of both, to find one's place again."""
        if asked:
            self.note(f"you: {one_line(asked, 300)}")
        if answered:
            self.note(f"model: {one_line(answered, 600)}")

    def opens(self, name: str) -> bool:
        """There are lines alone."""
        return False

    def delta(self, text: str) -> None:
        """More of the answer. Lines longer than the screen are broken where it ends, at a space if there is one."""
        self._show(self._cleaner.feed(text))

    def _show(self, text: str) -> None:
        self._text += text
        *whole, rest = self._text.split("\n")
        for line in whole:
            self._write(line)
        width = max(20, self.width - 1)
        while (count := fitting(rest, width)) < len(rest):
            cut = rest.rfind(" ", 0, count) + 1 or count
            self._write(rest[:cut].rstrip(" "))
            rest = rest[cut:]
        self._text = rest
        self._composer.partial(rest)

    def finish(self) -> None:
        """The text is over: end its last line and print the notes that waited for it."""
        if last := self._cleaner.end():
            self._show(last)
        rest, self._text = self._text, ""
        self._composer.partial("")
        if rest:
            self._composer.write(rest)
        self._flush_notes()

    def _write(self, line: str) -> None:
        self._composer.write(line)
        self._flush_notes()

    def _flush_notes(self) -> None:
        notes, self._notes = self._notes, []
        for line in notes:
            self._composer.write(line)
