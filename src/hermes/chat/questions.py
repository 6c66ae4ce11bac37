"""Questions of tasks to the person at the terminal, one at a time, each with the path of the task that asks."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from hermes.chat.render import printable
from hermes.runtime.asking import Answer, Question

__all__ = ["Questions"]

_ANSWERS: dict[str, Answer] = {
    **dict.fromkeys(("y", "yes", "once", "да"), "once"),
    **dict.fromkeys(("s", "session", "сессия"), "session"),
    **dict.fromkeys(("a", "always", "всегда"), "always"),
    **dict.fromkeys(("n", "no", "нет"), "no"),
}


class Questions:
    """Shows a question by `show`, without secrets that `redact` knows; `changed` is called when one comes or goes."""

    def __init__(
        self, show: Callable[[Question], None], changed: Callable[[], None], redact: Callable[[str], str]
    ) -> None:
        self._show = show
        self._changed = changed
        self._redact = redact
        self._answered: anyio.Event | None = None
        self._answer = ""
        self.current: Question | None = None

    @property
    def open(self) -> bool:
        """Whether a question waits for its answer."""
        return self._answered is not None

    @property
    def prompt(self) -> str:
        """What stands before the line in which it is answered; empty where nothing is asked."""
        if self.current is None:
            return ""
        return "answer> " if self.current.open else "allow? y/n/a> "

    async def ask(self, question: Question) -> str:
        """Put a question and wait for the answer, empty for none; whoever calls limits the time."""
        self._answered = answered = anyio.Event()
        self._answer = ""
        self.current = self._shown(question)
        self._show(self.current)
        self._changed()
        try:
            await answered.wait()
            return self._answer
        finally:
            self._answered = self.current = None
            self._changed()

    def _shown(self, question: Question) -> Question:
        def safe(text: str) -> str:
            return self._redact(printable(text))  # what is between the letters of a key hides it from no reader

        return msgspec.structs.replace(
            question,
            what=safe(question.what),
            reason=safe(question.reason),
            path=tuple(safe(part) for part in question.path),
            lasting=safe(question.lasting),
            choices=tuple(safe(choice) for choice in question.choices),
        )

    def take(self, text: str, *, command: bool = False) -> bool:
        """Read a line as the answer; False when nothing is asked or it is none, as a `command` is to an open one."""
        if self._answered is None or self.current is None or self._answered.is_set():
            return False
        if self.current.open:
            answer = "" if command else self._meant(text.strip())
        else:
            answer = _ANSWERS.get(text.strip().lower(), "")
        if not answer:
            return False
        self._answer = answer
        self._answered.set()
        return True

    def dismiss(self) -> None:
        """Nobody will answer any more."""
        if self._answered is not None and not self._answered.is_set():
            self._answer = ""
            self._answered.set()

    def _meant(self, text: str) -> str:
        """The choice that a number names, else the text itself."""
        choices = self.current.choices if self.current is not None else ()
        numbers = {str(number): choice for number, choice in enumerate(choices, 1)}
        return numbers.get(text, text)
