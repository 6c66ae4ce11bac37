"""A line that asks for one text and then goes away again: a correction, a search, a file name. Knows no verb."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

__all__ = ["PromptLine"]


class PromptLine(Horizontal):
    """Hidden until `ask`. Enter gives the text, escape gives nothing; the keys go back to who had them."""

    DEFAULT_CSS = """
    PromptLine { display: none; height: 1; background: $surface; }
    PromptLine.asking { display: block; }
    PromptLine > Static { width: auto; text-style: bold; color: $accent; }
    PromptLine > Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
    PromptLine > Input:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False, priority=True)]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  the name Textual uses
        super().__init__(id=id)
        self._given: Callable[[str], None] | None = None
        self._typed: Callable[[str], None] | None = None
        self._empty = False
        self._back: Widget | None = None

    def compose(self) -> ComposeResult:
        """The question and the text."""
        yield Static("", markup=False)
        yield Input(compact=True, select_on_focus=False)

    def ask(
        self,
        question: str,
        given: Callable[[str], None],
        *,
        text: str = "",
        typed: Callable[[str], None] | None = None,
        empty: bool = False,
    ) -> None:
        """Ask for a text, `text` standing there already. `typed` is told of each change, and of "" when it is given
        up; an empty answer counts only with `empty`."""
        self._given, self._typed, self._empty = given, typed, empty
        self._back = self.screen.focused
        self.query_one(Static).update(question)
        field = self.query_one(Input)
        field.value = text
        field.cursor_position = len(text)
        self.add_class("asking")
        field.focus()

    @property
    def asking(self) -> bool:
        """Whether a text is being asked for."""
        return self.has_class("asking")

    def on_input_changed(self, event: Input.Changed) -> None:
        """More was typed."""
        event.stop()
        if self._typed is not None and self.asking:
            self._typed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """That is the text."""
        event.stop()
        given, text = self._given, event.value.strip()
        self._leave()
        if given is not None and (text or self._empty):
            given(text)

    def action_give_up(self) -> None:
        """There is no text."""
        typed = self._typed
        self._leave()
        if typed is not None:
            typed("")

    def _leave(self) -> None:
        self._given = self._typed = None
        self.remove_class("asking")
        if self._back is not None:
            self._back.focus()
