"""Markdown on the screen: whole texts, and answers that still grow. Loaded after the first picture: it takes long."""

from __future__ import annotations

from textual.widgets import Markdown

__all__ = ["AnswerPart", "Markdown", "rendered"]

#: Characters of one part of an answer before the next one is begun.
LONG = 12_000


def rendered(text: str, classes: str) -> Markdown:
    """A text as it is meant. Its links open nothing."""
    return Markdown(text, open_links=False, classes=classes)


class AnswerPart(Markdown):
    """A part of an answer that still grows."""

    def __init__(self) -> None:
        super().__init__("", open_links=False, classes="answer")
        self.length = 0
        self.fences = 0

    async def add(self, text: str) -> None:
        """Show more of it."""
        self.length += len(text)
        self.fences += text.count("```")
        await self.append(text)

    def cut(self, text: str) -> int | None:
        """Where in `text` the next block begins: at a paragraph, at a line of a very long one, or nowhere yet. Code is
        not cut in two unless it has no end."""
        if self.length <= LONG or (self.fences % 2 and self.length <= 8 * LONG):
            return None
        if "\n\n" in text:
            return text.index("\n\n") + 2
        if self.length > 2 * LONG and "\n" in text:
            return text.index("\n") + 1
        return 0 if self.length > 8 * LONG else None
