"""The editor at the bottom: several lines, what was sent before, large pastes folded, choices while one types.

It sends text to whoever listens and knows no command. What is pasted is made safe; a draft is kept by the screen.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from hermes.chat.completing import Completion
from hermes.chat.render import printable

__all__ = ["Choices", "Prompt"]

#: From so many lines or characters on a paste stands folded in the editor.
LONG_LINES, LONG_TEXT = 12, 1_500
#: Lines that were sent and can be had back.
MOST_HISTORY = 500
_FOLDED = re.compile(r"\[pasted #(\d+): [^\]]*\]")


class Choices(OptionList, can_focus=False):
    """What could be inserted, above the editor."""

    def __init__(self) -> None:
        super().__init__(id="choices", markup=False, compact=True)
        self.display = False
        self.completion = Completion()
        self.moved = False

    def move(self, down: bool) -> None:
        """Highlight the next choice, or the one before."""
        self.moved = True
        if down:
            self.action_cursor_down()
        else:
            self.action_cursor_up()

    def offer(self, completion: Completion) -> None:
        """Show choices; none hides the list."""
        self.completion = completion
        self.moved = False
        self.display = bool(completion.choices)
        self.clear_options()
        if completion.choices:
            width = max(len(choice.text) for choice in completion.choices)
            self.add_options(
                Option(Content(f"{choice.text.rstrip():{width}} {choice.about}".rstrip()))
                for choice in completion.choices
            )
            self.highlighted = 0


class Prompt(TextArea):
    """The editor."""

    #: Keys with a meaning of their own. They are handled in their turn with the letters before them: a binding with
    #: priority would overtake letters that still wait.
    _KEYS: ClassVar[dict[str, str]] = {
        "enter": "action_send",
        "tab": "action_accept",
        "up": "action_up",
        "down": "action_down",
        "ctrl+u": "action_clear",
        "ctrl+g": "action_edit",
        **dict.fromkeys(("shift+enter", "ctrl+j", "alt+enter", "ctrl+enter"), "action_newline"),
    }

    class Sent(Message):
        """A whole input; `shown` is what stood in the editor, `text` has the pastes in it."""

        def __init__(self, text: str, shown: str) -> None:
            super().__init__()
            self.text = text
            self.shown = shown

    class Edited(Message):
        """The person wants another editor."""

    class Pressed(Message):
        """Tab with nothing to insert: the person wants to go elsewhere."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(
            id="prompt",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Ask, or / for commands, @ for a path, ! for a command of your own",
        )
        self.answers: Callable[[str], bool] = lambda key: False  # takes a key that answers an open question
        self._choices = choices
        self._pastes: dict[int, str] = {}
        self._history: list[str] = []
        self._place: int | None = None
        self._unsent = ""

    # -- sending ----------------------------------------------------------------------------------------------------

    @property
    def whole(self) -> str:
        """The text with the pastes in it."""
        return _FOLDED.sub(lambda found: self._pastes.get(int(found[1]), found[0]), self.text)

    def remember(self, lines: list[str]) -> None:
        """Put lines of an earlier time before what was sent."""
        self._history = (lines + self._history)[-MOST_HISTORY:]

    def remember_last(self, text: str) -> None:
        """Put a text where the newest line that was sent stands."""
        self._history.append(text)

    def put(self, text: str) -> None:
        """Replace what stands there; the cursor goes to its end."""
        self.text = text
        self.move_cursor(self.document.end)

    def action_send(self) -> None:
        """Send, insert the choice, or go on in the next line after a backslash."""
        if self._insert_choice(sending=True):
            return
        if self.text.endswith("\\") and self.cursor_location == self.document.end:
            self.put(self.text[:-1] + "\n")
            return
        text, shown = self.whole, self.text
        if not text.strip():
            return
        if not self._history or self._history[-1] != shown:
            self._history.append(shown)
            del self._history[:-MOST_HISTORY]
        self._place = None
        self.text = ""
        self.post_message(self.Sent(text, shown))

    def action_newline(self) -> None:
        """Begin another line."""
        self.insert("\n")

    def action_edit(self) -> None:
        """Ask for another editor."""
        self.post_message(self.Edited())

    def action_clear(self) -> None:
        """Empty the editor."""
        self.text = ""

    # -- choices ----------------------------------------------------------------------------------------------------

    def action_accept(self) -> None:
        """Insert the choice."""
        if not self._insert_choice():
            self.post_message(self.Pressed())

    def _insert_choice(self, *, sending: bool = False) -> bool:
        choices = self._choices
        if not choices.display or choices.highlighted is None:
            return False
        if sending and not choices.moved:  # Enter sends what was typed, unless a choice was made
            choices.offer(Completion())
            return False
        row, column = self.cursor_location
        text = choices.completion.choices[choices.highlighted].text
        start = choices.completion.start
        choices.offer(Completion())
        self.replace(text, (row, start), (row, column))
        return True

    def close_choices(self) -> bool:
        """Hide the choices; False where none were shown."""
        shown = self._choices.display
        self._choices.offer(Completion())
        return bool(shown)

    # -- what was sent before ---------------------------------------------------------------------------------------

    def action_up(self) -> None:
        """Choice above, line above, or what was sent before."""
        if self._choices.display:
            self._choices.move(down=False)
        elif self.cursor_location[0] > 0:
            self.action_cursor_up()
        elif self._history and self._place != 0:
            if self._place is None:
                self._unsent, self._place = self.text, len(self._history)
            self._place -= 1
            self.put(self._history[self._place])

    def action_down(self) -> None:
        """Choice below, line below, or what was sent after."""
        if self._choices.display:
            self._choices.move(down=True)
        elif self.cursor_location[0] < self.document.line_count - 1:
            self.action_cursor_down()
        elif self._place is not None:
            self._place += 1
            last = self._place >= len(self._history)
            self.put(self._unsent if last else self._history[self._place])
            self._place = None if last else self._place

    async def _on_key(self, event: events.Key) -> None:
        own = self._KEYS.get(event.key)
        if own is None and (self.text or not self.answers(event.key)):
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        if own is not None:
            getattr(self, own)()

    # -- pasting ----------------------------------------------------------------------------------------------------

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = printable(event.text)
        path = _dropped_file(text)
        if path:
            row, column = self.cursor_location
            joined = column and not self.document.get_line(row)[column - 1].isspace()
            text = (" " if joined else "") + (f'@"{path}" ' if " " in path else f"@{path} ")
        elif text.count("\n") >= LONG_LINES or len(text) > LONG_TEXT:
            number = len(self._pastes) + 1
            self._pastes[number] = text
            size = f"{text.count(chr(10)) + 1} lines" if "\n" in text else f"{len(text)} characters"
            text = f"[pasted #{number}: {size}]"
        self.insert(text)


def _dropped_file(text: str) -> str:
    """The path of a file that was dropped on the terminal, or copied by a file manager; empty for other text."""
    word = text.strip()
    if "\n" in word or len(word) > 4_000 or not word.lstrip("'\"").startswith(("/", "file://")):
        return ""
    try:
        parts = shlex.split(word)
    except ValueError:
        return ""
    path = parts[0].removeprefix("file://") if len(parts) == 1 else ""
    return path if path and os.path.isfile(path) else ""
