"""History entries → a request's messages, the part that no wire format changes. Formats subclass it.

Decides what follows what: every call gets exactly one result and an id of its own, corrections and notices stand at the
end of tool results or become a user turn, an assistant's turn never stands first, and words that carry the user's
authority are spoilt in whatever tools bring. How any of it is written is the format's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from hermes.core.codec import encode_json
from hermes.core.markers import defused, notice_block, steer_block
from hermes.core.messages import (
    Assistant,
    Entry,
    Interrupted,
    Notice,
    Part,
    Steer,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    User,
    plain_text,
)

__all__ = [
    "NO_ANSWER",
    "NO_RESULT",
    "Rendering",
    "arguments_text",
    "defused",
    "notice_block",
    "result_text",
    "steer_block",
]

NO_RESULT = "[no result: this call did not finish]"
NO_ANSWER = "[no answer]"


def result_text(result: ToolResult) -> str:
    """The text of a result, never empty."""
    text = plain_text(result.content)
    return defused(text) if text else "[no output]"


def arguments_text(call: ToolCall) -> str:
    """The argument text to send back: as it was written where that is a JSON object, since servers parse it again."""
    if call.raw and not call.invalid and call.raw.lstrip().startswith("{"):
        return call.raw
    return encode_json(call.arguments).decode()


class Rendering(ABC):
    """Takes the entries one by one; `answer_calls` closes the last ones."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._open: dict[int, str] = {}
        self._results: dict[int, ToolResult] = {}
        self._ids: set[str] = set()

    # -- what a format gives ----------------------------------------------------------------------------------------

    @abstractmethod
    def user(self, content: Sequence[Part]) -> None:
        """Add a user turn, or join it to the one before."""

    @abstractmethod
    def fold(self, text: str) -> bool:
        """Add `text` behind tool results at the end; False where there are none."""

    @abstractmethod
    def begun(self) -> bool:
        """Whether an assistant's turn may follow."""

    @abstractmethod
    def said(self, text: str) -> None:
        """Add an assistant's turn of text alone."""

    @abstractmethod
    def assistant(self, entry: Assistant, ids: Sequence[str]) -> None:
        """Add a reply, with the ids that its calls go by."""

    @abstractmethod
    def results(self, answered: Sequence[tuple[str, ToolResult | None]]) -> None:
        """Add the results of the last reply's calls, each with its id; None where a call has none."""

    def call_id(self, given: str) -> str:
        """The id as the format allows it."""
        return given

    @property
    def waits(self) -> bool:
        """Whether calls of the last reply have no result yet."""
        return bool(self._open)

    # -- the walk ---------------------------------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Take the next entry."""
        if isinstance(entry, ToolResult):
            self._result(entry)
            return
        self.answer_calls()
        if isinstance(entry, Assistant):
            self._begin()
            ids = [self._unique(index, call) for index, call in enumerate(entry.calls)]
            self.assistant(entry, ids)
        elif isinstance(entry, User):
            self.user(entry.content)
        elif isinstance(entry, Steer):
            if not self.fold(steer_block(entry.text, self._nonce)):
                self.user(entry.content)
            elif entry.pictures:  # behind tool results there is room for text alone
                self.user((Text(notice_block("Pictures of the user's correction above:")), *entry.pictures))
        elif isinstance(entry, Notice):
            text = notice_block(defused(entry.text))
            if not self.fold(text):
                self.user((Text(text),))
        elif isinstance(entry, Interrupted):
            self._begin()
            partial = f"{entry.partial}\n" if entry.partial else ""
            self.said(f"{partial}[{entry.reason}]")
        elif isinstance(entry, Summary) and entry.text:
            self.user((Text(f"[Summary of the conversation so far]\n{defused(entry.text)}"),))

    def _begin(self) -> None:
        if not self.begun():
            self.user((Text(notice_block("Go on.")),))

    def _unique(self, index: int, call: ToolCall) -> str:
        call_id = self.call_id(call.id) or f"call_{index}"
        # Some providers number their calls anew in each turn, others give none; endpoints refuse a repeated id.
        if call_id in self._ids:
            call_id = f"{call_id}_{len(self._ids)}"
        self._ids.add(call_id)
        self._open[index] = call_id
        return call_id

    def _result(self, result: ToolResult) -> None:
        if result.index in self._open:
            # The first result of a call holds; they are written together, in the order of the calls.
            self._results.setdefault(result.index, result)
            if len(self._results) == len(self._open):
                self.answer_calls()
        else:
            self.answer_calls()
            text = f"Result of an earlier call of {result.name}:\n{result_text(result)}"
            self.user((Text(notice_block(text)),))

    def answer_calls(self) -> None:
        """Write one result for each call of the last reply."""
        if not self._open:
            return
        answered = [(call_id, self._results.get(index)) for index, call_id in self._open.items()]
        self._open, self._results = {}, {}
        self.results(answered)
