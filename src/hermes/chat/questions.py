"""Questions of tasks to the person at the terminal, one at a time, each with the path of the task that asks."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from hermes.runtime.approval import Answer, Question

__all__ = ["Questions"]

_ANSWERS: dict[str, Answer] = {
    **dict.fromkeys(("y", "yes", "once", "да"), "once"),
    **dict.fromkeys(("s", "session", "сессия"), "session"),
    **dict.fromkeys(("a", "always", "всегда"), "always"),
    **dict.fromkeys(("n", "no", "нет"), "no"),
}


class Questions:
    """Shows a question by `show`; `changed` is called when one comes or goes."""

    def __init__(self, show: Callable[[Question], None], changed: Callable[[], None]) -> None:
        self._show = show
        self._changed = changed
        self._answered: anyio.Event | None = None
        self._answer: Answer = "no"
        self.current: Question | None = None

    @property
    def open(self) -> bool:
        """Whether a question waits for its answer."""
        return self._answered is not None

    async def ask(self, question: Question) -> Answer:
        """Put a question and wait for the answer; whoever calls limits the time."""
        self._answered = answered = anyio.Event()
        self.current = question
        self._show(question)
        self._changed()
        try:
            await answered.wait()
            return self._answer
        finally:
            self._answered = self.current = None
            self._changed()

    def take(self, text: str) -> bool:
        """Read a line as the answer; False when nothing is asked or it is none."""
        answer = _ANSWERS.get(text.strip().lower())
        if self._answered is None or answer is None:
            return False
        self._answer = answer
        self._answered.set()
        return True
