"""Calling a person who looks elsewhere: the terminal's title and bell, and a word on whatever screen is open.

It only signals; what is asked and answered is shown elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.chat.render import one_line

if TYPE_CHECKING:
    from hermes.tui.app import HermesApp

__all__ = ["Attention"]

#: Keep the title that the terminal has, and give it back.
_KEEP, _GIVE_BACK = "\x1b[22;2t", "\x1b[23;2t"


class Attention:
    """Follows one program; `look` is called some times a second."""

    def __init__(self, app: HermesApp) -> None:
        self._app = app
        self._title = ""
        self._request = ""
        self._worked = False

    def look(self) -> None:
        """Signal what changed since the last look."""
        if not self._app.begun:
            return
        chat = self._app.chat
        question = chat.questions.current
        if question is not None and question.request != self._request:
            self._ask(one_line(question.path[-1] if question.path else "", 40) or "the conversation")
        self._request = question.request if question is not None else ""
        self._worked = self._worked or chat.turn_runs
        if question is not None:
            state = "needs you"
        elif chat.turn_runs:
            state = "working"
        else:
            state = "done" if self._worked else "ready"
        self._show(f"hermes · {state}")

    def _ask(self, who: str) -> None:
        if self._app.assembly.settings.display.bell_on_question:
            self._app.bell()
        if not self._app.at_conversation:
            self._app.notify(f"{who} asks you something: Esc goes back to the conversation", severity="warning")

    def _show(self, title: str) -> None:
        if title == self._title or not self._app.assembly.settings.display.terminal_title:
            return
        self._app.write_out(("" if self._title else _KEEP) + f"\x1b]2;{title}\x07")
        self._title = title

    def close(self) -> None:
        """Give the terminal its title back."""
        if self._title:
            self._app.write_out(_GIVE_BACK)
