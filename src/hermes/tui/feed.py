"""What happens, put in order for the transcript: a queue that the bus and the chat fill and the screen empties.

Filling never waits and never draws; the screen takes what is there at most ten times a second. What nobody could read
any more is counted and left out. Knows no widget.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from hermes.chat.render import Cleaner, cost, one_line, printable
from hermes.chat.stream import Narrator
from hermes.core.codec import encode_json
from hermes.core.events import (
    ApprovalAnswered,
    ApprovalAsked,
    EntryAdded,
    Envelope,
    StreamRestarted,
    TaskEnded,
    TaskQueued,
    ThinkingDeltaEvent,
    ToolAbandoned,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from hermes.core.messages import Assistant, ToolCall, ToolResult, plain_text
from hermes.core.views import TreeView

if TYPE_CHECKING:
    from hermes.runtime.asking import Question

__all__ = [
    "Answer",
    "AnswerOver",
    "AnswerVoid",
    "CallBegan",
    "CallEnded",
    "CallOutput",
    "ChildEnded",
    "Feed",
    "Item",
    "Noted",
    "Said",
    "Shown",
    "Thought",
]

#: Characters of one answer, and items, that wait for the screen; of more the older are left out.
MOST_TEXT, MOST_ITEMS = 100_000, 600
#: The keys of the full screen that /help names; docs/tui.md has all.
KEYS = (
    ("Esc", "closes what is open, else stops the turn; never a task"),
    ("Ctrl+T or F6, F2, F3", "tasks, earlier conversations, the board"),
    ("Ctrl+B or F4", "the turn goes on beside; its answer is shown where you are"),
    ("Shift+Enter, Ctrl+J", "another line; so does a \\ before Enter"),
    ("Ctrl+G", "the text in your own editor"),
    ("Ctrl+O, F7, F8", "opens calls, thoughts and reports; the newest report; folds the living tasks"),
    ("Page up, page down", "through what was said"),
    ("Ctrl+Q", "leaves, as /quit does"),
)
#: What inside tmux is said in place of the line above: that key is tmux's own.
IN_TMUX = (
    "F4",
    "the turn goes on beside; its answer is shown where you are (Ctrl+B is tmux's own key: press it twice)",
)
#: Characters of a call's arguments and of its result that can be unfolded.
MOST_DETAIL = 8_000
#: Characters beyond a cut in which a secret that begins before it ends: the longest are blocks of keys.
MARGIN = 16_000

CallKey = tuple[str, int, int]


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Said(_Item, frozen=True):
    """A line that the person wrote."""

    text: str


class Noted(_Item, frozen=True):
    """Something that is not part of the answer."""

    text: str


class Answer(_Item, frozen=True):
    """More of the answer, in Markdown."""

    text: str


class AnswerOver(_Item, frozen=True):
    """The answer is complete."""


class AnswerVoid(_Item, frozen=True):
    """What was shown of the answer does not count: it begins anew."""


class Thought(_Item, frozen=True):
    """More reasoning."""

    text: str


class CallBegan(_Item, frozen=True):
    """The conversation calls a tool."""

    key: CallKey
    name: str
    preview: str
    arguments: str = ""


class CallOutput(_Item, frozen=True):
    """The whole text that a call brought, or the newest of it."""

    key: CallKey
    text: str


class CallEnded(_Item, frozen=True):
    """A call was answered, after `seconds`."""

    key: CallKey
    failed: bool
    seconds: float
    preview: str


class ChildEnded(_Item, frozen=True):
    """A task under the conversation ended: one line, and its report."""

    task_id: str
    line: str
    report: str


class Shown(_Item, frozen=True):
    """A text with a heading."""

    title: str
    text: str


Item = (
    Said | Noted | Answer | AnswerOver | AnswerVoid | Thought | CallBegan | CallOutput | CallEnded | ChildEnded | Shown
)


class Feed:
    """The queue of one conversation; also the `Stage` that its chat speaks to."""

    def __init__(
        self, redact: Callable[[str], str], session_id: Callable[[], str], environ: Mapping[str, str] = os.environ
    ) -> None:
        """`redact` and an empty tree serve until there is a conversation to `follow`."""
        self.width = 80
        self.in_tmux = bool(environ.get("TMUX"))
        self.keys: Sequence[tuple[str, str]] = [
            IN_TMUX if self.in_tmux and key.startswith("Ctrl+B") else (key, what) for key, what in KEYS
        ]
        self.left_out = 0
        self.opener: Callable[[str], bool] = lambda name: False
        self.asked: dict[str, float] = {}  # since when a question waits, by its request; seconds since the epoch
        self._redact = redact
        self._session_id = session_id
        self._items: deque[Item] = deque()
        self._calls: dict[tuple[str, int], tuple[ToolCall, ...]] = {}
        self.follow(TreeView(), redact)

    def follow(self, tree: TreeView, redact: Callable[[str], str]) -> None:
        """Tell of the tasks of this tree from now on."""
        self._tree, self._redact = tree, redact
        self._cleaner, self._thoughts = Cleaner(redact), Cleaner(redact)
        self._narrator = Narrator(tree, self.note, session_id=self._session_id, progress="off")

    def take(self, most: int) -> list[Item]:
        """Return and forget the oldest items, at most `most`."""
        if len(self._items) > MOST_ITEMS:
            self._thin_out()
        return [self._items.popleft() for _ in range(min(most, len(self._items)))]

    def _thin_out(self) -> None:
        kept = [item for item in self._items if isinstance(item, (Said, Answer, AnswerOver, AnswerVoid, Shown))]
        gone = len(self._items) - len(kept)
        rest = [item for item in self._items if not isinstance(item, (Said, Answer, AnswerOver, AnswerVoid, Shown))]
        newest = rest[-MOST_ITEMS // 4 :]
        self.left_out += gone - len(newest)
        places = {id(item) for item in newest}
        self._items = deque(
            item
            for item in self._items
            if id(item) in places or isinstance(item, (Said, Answer, AnswerOver, AnswerVoid, Shown))
        )
        self._items.appendleft(Noted(text=f"… {gone - len(newest)} lines came faster than they could be shown"))

    # -- what the chat says -----------------------------------------------------------------------------------------

    def said(self, text: str) -> None:
        """The person wrote something."""
        self._items.append(Said(text=self._safe(text)))

    def note(self, text: str) -> None:
        """Something that is not part of the answer."""
        self._add_note(self._safe(text))

    def _add_note(self, text: str) -> None:
        last = self._items[-1] if self._items else None
        if isinstance(last, Noted) and len(last.text) < 4_000:
            self._items[-1] = Noted(text=f"{last.text}\n{text}")
        else:
            self._items.append(Noted(text=text))

    def delta(self, text: str) -> None:
        """More of the answer."""
        self._answer(self._cleaner.feed(text))

    def _answer(self, text: str) -> None:
        if not text:
            return
        self._end_thought()
        last = self._items[-1] if self._items else None
        if not isinstance(last, Answer):
            self._items.append(Answer(text=text))
            return
        text = last.text + text
        if len(text) > MOST_TEXT:
            gone = len(text) - MOST_TEXT // 2
            text = f"\n\n… {gone} characters came faster than they could be shown …\n\n{text[gone:]}"
        self._items[-1] = Answer(text=text)

    def finish(self) -> None:
        """The answer is over."""
        self._end_thought()
        self._answer(self._cleaner.end())
        if not self._items or not isinstance(self._items[-1], AnswerOver):
            self._items.append(AnswerOver())

    def panel(self, title: str, text: str) -> None:
        """A text with a heading."""
        self._items.append(Shown(title=self._safe(title), text=self._safe(text)))

    def question(self, question: Question) -> None:
        """Nothing: the open question has a place of its own on the screen."""

    def recall(self, asked: str, answered: str) -> None:
        """An exchange of a conversation that is taken up."""
        if asked:
            self.said(asked)
        if answered:
            self._items += [Answer(text=self._safe(answered)[-MOST_TEXT:]), AnswerOver()]

    def opens(self, name: str) -> bool:
        """Open a screen, where there is one."""
        return self.opener(name)

    def redacted(self, text: str) -> str:
        """The text without the secrets that are known."""
        return self._redact(text)

    def _safe(self, text: str) -> str:
        return self._redact(printable(text))

    def _beginning(self, text: str, most: int) -> str:
        """The first `most` characters. A secret that the cut would halve is hidden first: half of one is not known."""
        return self._safe(text[: most + MARGIN])[:most]

    # -- what the bus says ------------------------------------------------------------------------------------------

    def tell(self, envelope: Envelope) -> None:
        """Take one event in."""
        event = envelope.event
        if isinstance(event, ApprovalAsked):
            self.asked[event.request] = envelope.at
        elif isinstance(event, ApprovalAnswered):
            self.asked.pop(event.request, None)
        if envelope.session_id != self._session_id():
            return
        view = self._tree.tasks[envelope.task_id]
        if view.kind == "main":
            if isinstance(event, ThinkingDeltaEvent):
                self._thought(self._thoughts.feed(event.text))
                return
            if isinstance(event, StreamRestarted):
                self._items.append(AnswerVoid())
                return
            if isinstance(event, (ToolStarted, ToolProgress, ToolEnded, ToolAbandoned, EntryAdded)):
                self._call(envelope.task_id, event)
                return
        elif isinstance(event, (TaskEnded, TaskQueued)):
            if isinstance(event, TaskEnded) and view.kind != "background":
                self._child_ended(envelope.task_id, event)
            return
        self._narrator.tell(envelope)

    def _thought(self, text: str) -> None:
        if not text:
            return
        last = self._items[-1] if self._items else None
        if isinstance(last, Thought):
            self._items[-1] = Thought(text=(last.text + text)[-MOST_TEXT:])
        else:
            self._items.append(Thought(text=text))

    def _end_thought(self) -> None:
        if rest := self._thoughts.end():
            self._thought(rest)

    def _call(self, task_id: str, event: ToolStarted | ToolProgress | ToolEnded | ToolAbandoned | EntryAdded) -> None:
        if isinstance(event, EntryAdded):
            entry = event.entry
            if isinstance(entry, Assistant):
                self._calls = {(task_id, event.position): entry.calls}
            elif isinstance(entry, ToolResult):
                text = self._beginning(plain_text(entry.content), MOST_DETAIL)
                self._items.append(CallOutput(key=(task_id, entry.position, entry.index), text=text))
            return
        key = (task_id, event.position, event.index)
        if isinstance(event, ToolStarted):
            preview = one_line(self._redact(event.preview), 300)
            self._items.append(
                CallBegan(key=key, name=one_line(event.name, 60), preview=preview, arguments=self._arguments(key))
            )
        elif isinstance(event, ToolProgress):
            self._progress(CallOutput(key=key, text=self._safe(event.text[-MOST_DETAIL - MARGIN :])[-MOST_DETAIL:]))
        elif isinstance(event, ToolEnded):
            preview = one_line(self._redact(event.preview), 300)
            self._items.append(CallEnded(key=key, failed=event.is_error, seconds=event.duration, preview=preview))
        else:
            self._add_note(f"! {one_line(event.name)} was left behind; {event.still_running} such calls may still run")

    def _progress(self, item: CallOutput) -> None:
        last = self._items[-1] if self._items else None
        if isinstance(last, CallOutput) and last.key == item.key:
            self._items[-1] = item  # the newest is enough
        else:
            self._items.append(item)

    def _arguments(self, key: CallKey) -> str:
        calls = self._calls.get((key[0], key[1]), ())
        if key[2] >= len(calls):
            return ""
        call = calls[key[2]]
        lines = []
        for name, value in call.arguments.items():
            lines.append(f"{name}: {value if isinstance(value, str) else encode_json(value).decode()}")
        return self._beginning("\n".join(lines), MOST_DETAIL)

    def _child_ended(self, task_id: str, event: TaskEnded) -> None:
        line: list[str] = []
        narrator = Narrator(self._tree, line.append, session_id=self._session_id, progress="off")
        view = self._tree.tasks[task_id]
        narrator.life(view, event)
        money = cost(self._tree.subtree_usage(task_id))
        report = "\n\n".join(part for part in (event.summary, event.error) if part) or "(no text)"
        self._items.append(
            ChildEnded(
                task_id=task_id,
                line=self._safe(" ".join([*line, money]).rstrip()),
                report=self._beginning(report, 50_000),
            )
        )
