"""Questions of tasks to the person at the terminal, one at a time, each with the path of the task that asks."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from hermes.chat.render import one_line
from hermes.runtime.approval import Answer, Question

__all__ = ["Questions"]

_ANSWERS: dict[str, Answer] = {
    **dict.fromkeys(("y", "yes", "once", "да"), "once"),
    **dict.fromkeys(("s", "session", "сессия"), "session"),
    **dict.fromkeys(("a", "always", "всегда"), "always"),
    **dict.fromkeys(("n", "no", "нет"), "no"),
}


class Questions:
    """Asks by `say`; `changed` is called when a question comes or goes."""

    def __init__(self, say: Callable[[str], None], changed: Callable[[], None]) -> None:
        self._say = say
        self._changed = changed
        self._answered: anyio.Event | None = None
        self._answer: Answer = "no"

    @property
    def open(self) -> bool:
        """Whether a question waits for its answer."""
        return self._answered is not None

    async def ask(self, question: Question) -> Answer:
        """Put a question and wait for the answer; whoever calls limits the time."""
        self._answered = answered = anyio.Event()
        path = " > ".join(one_line(part, 40) or "conversation" for part in question.path)
        self._say(f"❓ {path}")
        self._say(f"   wants to run {question.tool}: {one_line(question.what, 500)}")
        self._say(f"   {one_line(question.reason, 500)}.")
        if question.lasting:
            self._say(f"   s and a cover: {one_line(question.lasting, 300)}")
        self._say("   y once · s this conversation · a always · n no")
        self._changed()
        try:
            await answered.wait()
            return self._answer
        finally:
            self._answered = None
            self._changed()

    def take(self, text: str) -> bool:
        """Read a line as the answer; False when nothing is asked or it is none."""
        answer = _ANSWERS.get(text.strip().lower())
        if self._answered is None or answer is None:
            return False
        self._answer = answer
        self._answered.set()
        return True
