"""The question that waits: which task asks, for what, how to answer, how long it waits. Decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from hermes.chat.render import duration, one_line

if TYPE_CHECKING:
    from hermes.runtime.approval import Question

__all__ = ["AskBar", "question_lines"]

#: Seconds after a question came in which a key is not taken for its answer: it was meant for something else.
GRACE = 0.7
KEYS = {"y", "s", "a", "n"}


def question_lines(question: Question, *, waiting: int, left: float | None, width: int, brief: bool) -> list[str]:
    """What the person reads. `waiting` counts the tasks with a question, `left` is the time in seconds until it counts
    as no, `brief` leaves out what can be left out on a small screen."""
    path = " > ".join(one_line(part, 40) or "conversation" for part in question.path)
    more = f" · {waiting - 1} more wait" if waiting > 1 else ""
    clock = f" · counts as no in {_whole(left)}" if left is not None else ""
    lines = [
        one_line(f"? {path}{more}{clock}", width),
        f"  {one_line(f'wants {question.tool}: {question.what}', width - 2)}",
        f"  {one_line(question.reason, width - 2)}",
    ]
    if question.lasting:
        lines.append(f"  {one_line(f's and a cover: {question.lasting}', width - 2)}")
    keys = "  y once · s this conversation · a always · n no"
    return [lines[0], lines[1], keys] if brief else [*lines, keys]


def _whole(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 60 else duration(seconds)


class AskBar(Static, can_focus=True):
    """The question on the screen. A key answers it once it could be read."""

    class Answered(Message):
        """The person pressed y, s, a or n."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__("", markup=False, id="ask")
        self.display = False
        self._request = ""
        self._since = 0.0

    def draw(self, question: Question | None, now: float, *, waiting: int, left: float | None, brief: bool) -> None:
        """Show the question that is open now, or nothing. `now` is seconds since the epoch, `left` seconds."""
        if question is None:
            self.display, self._request = False, ""
            return
        if question.request != self._request:
            self._request, self._since = question.request, now
        lines = question_lines(question, waiting=waiting, left=left, width=self.screen.size.width - 4, brief=brief)
        self.display = True
        self.update(Content("\n".join(lines)))

    def takes(self, key: str, now: float) -> bool:
        """Whether a key is an answer: one of the four, and the question has stood there long enough."""
        return bool(self.display) and key in KEYS and now - self._since >= GRACE

    def on_key(self, event: events.Key) -> None:
        """Answer while the bar has the focus."""
        if event.key in KEYS:
            event.stop()
            self.post_message(self.Answered(event.key))
