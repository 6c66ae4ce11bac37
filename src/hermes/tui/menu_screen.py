"""A short list of things to choose from, over whatever is shown. Does nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

__all__ = ["MenuScreen"]


class MenuScreen(ModalScreen[int | None]):
    """Gives the place of what was chosen, by enter, a click or its digit; None after escape."""

    DEFAULT_CSS = """
    MenuScreen { align: center middle; }
    MenuScreen > Vertical {
        width: auto; max-width: 90%; height: auto; max-height: 90%; border: round $primary; background: $surface;
        padding: 0 1;
    }
    MenuScreen Static { width: auto; text-style: bold; }
    MenuScreen OptionList { width: auto; min-width: 30; height: auto; max-height: 16; border: none; padding: 0; }
    MenuScreen:nocolor OptionList > .option-list--option-highlighted { text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", show=False)]

    def __init__(self, title: str, choices: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._choices = choices

    def compose(self) -> ComposeResult:
        """Title and choices."""
        with Vertical():
            yield Static(self._title, markup=False)
            yield OptionList(
                *[
                    Content(f"{place % 10 if place < 11 else ' '} {text}")
                    for place, text in enumerate(self._choices, 1)
                ],
                compact=True,
            )

    def on_mount(self) -> None:
        """What is under it stays in sight, whatever the program says of the background of screens."""
        self.styles.background = "black 50%"

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """That one."""
        self.dismiss(event.option_index)

    def on_key(self, event: Key) -> None:
        """A digit chooses."""
        if event.character is not None and event.character in "1234567890":
            place = (int(event.character) - 1) % 10
            if place < len(self._choices):
                event.stop()
                self.dismiss(place)

    def action_close(self) -> None:
        """None of them."""
        self.dismiss(None)
