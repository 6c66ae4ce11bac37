"""The question how to leave while something runs: let it go on, stop it, wait for it, or stay. It only asks."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

__all__ = ["LeaveScreen"]


class LeaveScreen(ModalScreen[str]):
    """Answers `detach`, `stop`, `wait`, or an empty word for staying."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "answer('detach')", show=False),
        Binding("s", "answer('stop')", show=False),
        Binding("w", "answer('wait')", show=False),
        Binding("escape,q,n", "answer('')", show=False),
        Binding("ctrl+c", "answer('detach')", show=False, priority=True),
    ]

    def __init__(self, running: list[str]) -> None:
        """`running` are lines that say what runs."""
        super().__init__()
        self._going = running

    def compose(self) -> ComposeResult:
        """One box."""
        lines = [
            "Something runs:",
            *self._going,
            "",
            "d  detach: it goes on in the background",
            "s  stop it; what it has so far is kept",
            "w  wait until it has ended, then leave",
            "Esc  stay",
        ]
        yield Static(Content("\n".join(lines)), markup=False)

    def action_answer(self, word: str) -> None:
        """Close with the answer."""
        self.dismiss(word)
