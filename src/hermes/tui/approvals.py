"""The question that waits: which task asks, for what, how to answer, how long it waits. Decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from hermes.chat.render import duration, fitted, one_line, wrapped

if TYPE_CHECKING:
    from hermes.runtime.asking import Question

__all__ = ["AskBar", "question_lines"]

#: Seconds after a question came in which a key is not taken for its answer: it was meant for something else.
GRACE = 0.7
KEYS = {"y", "s", "a", "n"}
#: The part of the screen that the words of an open question may take.
SHARE = 4


def keys_of(question: Question) -> set[str]:
    """The keys that answer a question."""
    if question.open:
        return {str(number) for number in range(1, min(len(question.choices), 9) + 1)}
    return KEYS


def question_lines(
    question: Question, *, waiting: int, left: float | None, width: int, height: int, brief: bool
) -> list[str]:
    """What the person reads. `waiting` counts the tasks with a question, `left` is the time in seconds until it counts
    as no, `brief` leaves out what can be left out on a small screen, of `width` columns and `height` lines."""
    path = " > ".join(one_line(part, 40) or "conversation" for part in question.path)
    more = f" · {waiting - 1} more wait" if waiting > 1 else ""
    over = "it goes on alone" if question.open else "counts as no"
    clock = f" · {over} in {_whole(left)}" if left is not None else ""
    head = one_line(f"? {path}{more}{clock}", width)
    if question.open:
        return [head, *_open_lines(question, width, max(1, height // SHARE))]
    lines = [
        head,
        f"  {one_line(f'wants {question.tool}: {question.what}', width - 2)}",
        f"  {one_line(question.reason, width - 2)}",
    ]
    if question.lasting:
        lines.append(f"  {one_line(f's and a cover: {question.lasting}', width - 2)}")
    keys = "  y once · s this conversation · a always · n no"
    return [lines[0], lines[1], keys] if brief else [*lines, keys]


def _open_lines(question: Question, width: int, most: int) -> list[str]:
    asked = [part for line in question.what.splitlines() for part in wrapped(line, width - 2)]
    if len(asked) > most:
        asked = [*asked[: most - 1], fitted(f"{asked[most - 1]} …", width - 2)]
    lines = [f"  {line}" for line in asked]
    lines += [f"  {number} {one_line(choice, width - 4)}" for number, choice in enumerate(question.choices, 1)]
    keys = f"1-{len(question.choices)} chooses · or " if len(question.choices) > 1 else "1 chooses · or "
    return [*lines, f"  {keys if question.choices else ''}write your answer, Enter sends it"]


def _whole(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 60 else duration(seconds)


class AskBar(Static, can_focus=True):
    """The question on the screen. A key answers it once it could be read."""

    class Answered(Message):
        """The person pressed one of its keys."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__("", markup=False, id="ask")
        self.display = False
        self._request = ""
        self._keys: set[str] = set()
        self._since = 0.0
        self.grace = GRACE

    def draw(self, question: Question | None, now: float, *, waiting: int, left: float | None, brief: bool) -> None:
        """Show the question that is open now, or nothing. `now` is seconds since the epoch, `left` seconds."""
        if question is None:
            self.display, self._request = False, ""
            return
        if question.request != self._request:
            self._request, self._since, self._keys = question.request, now, keys_of(question)
        size = self.screen.size
        lines = question_lines(
            question, waiting=waiting, left=left, width=size.width - 4, height=size.height, brief=brief
        )
        self.display = True
        self.update(Content("\n".join(lines)))

    def takes(self, key: str, now: float) -> bool:
        """Whether a key is an answer: one of its keys, and the question has stood there long enough."""
        return bool(self.display) and key in self._keys and now - self._since >= self.grace

    def on_key(self, event: events.Key) -> None:
        """Answer while the bar has the focus."""
        if event.key in self._keys:
            event.stop()
            self.post_message(self.Answered(event.key))
