"""What makes a finished rollout unfit for training. Looks at the source entries, never at the written row: there every
turn has a think block. Deletes nothing: raw rows stay in the batch files, merge sorts them."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections import Counter

import msgspec

from hermes.batch.filter_settings import FilterSettings
from hermes.batch.reasoning import reasoning_stats, split_reasoning, survives
from hermes.batch.record import Record
from hermes.batch.rollout import RolloutResult
from hermes.core.codec import encode_json
from hermes.core.errors import OperatorError
from hermes.core.messages import Assistant

__all__ = ["AMBIGUOUS_TAGS", "HALLUCINATED_TOOL", "NO_REASONING", "Filters", "Rejection", "judge"]

NO_REASONING = "no_reasoning"
HALLUCINATED_TOOL = "hallucinated_tool"
AMBIGUOUS_TAGS = "ambiguous_tags"
#: How often one call with the same arguments makes a loop; three in a row are still a model that tries again.
LOOP = 5
#: A reply this short that begins so declines; a longer one explains.
_REFUSAL = re.compile(
    r"^(?:i['’]?m sorry,? (?:but )?i (?:cannot|can['’]t)|i (?:cannot|can['’]t|won['’]t|am unable to|am not able to)\b"
    r"|as an ai\b|(?:извините|простите|к сожалению),? (?:но )?я не могу|я не могу\b|抱歉|很抱歉|对不起)",
    re.IGNORECASE,
)
REFUSAL_LENGTH = 400


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a row is not kept. `reason` is the name of a filter, `detail` a sentence."""

    reason: str
    detail: str


class Filters:
    """The filters of one pass over a run, in the order of the dataset, for the length of a `with`: `duplicate` knows
    what came before, from a file of its own, which goes with it."""

    def __init__(self, settings: FilterSettings | None = None) -> None:
        self._settings = settings or FilterSettings()
        self._seen: sqlite3.Connection | None = None

    def __enter__(self) -> Filters:
        return self

    def __exit__(self, *_: object) -> None:
        seen, self._seen = self._seen, None
        if seen is not None:
            seen.close()

    def _first(self, digest: bytes, index: int) -> int:
        """The first row with this conversation, which is the row `index` if there was none before."""
        try:
            return self._looked_up(digest, index)
        except sqlite3.OperationalError as error:
            raise OperatorError(
                f"cannot keep which conversations came before, in the folder for temporary files: {error}. Free some "
                "room there, or name another one by TMPDIR; what has ended stands, and `hermes batch merge` goes on."
            ) from error

    def _looked_up(self, digest: bytes, index: int) -> int:
        if self._seen is None:
            self._seen = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._seen.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY, row INTEGER) WITHOUT ROWID")
            self._seen.execute("BEGIN")  # one for all: nothing here is to outlive the pass
        self._seen.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (digest, index))
        found: tuple[int] = self._seen.execute("SELECT row FROM seen WHERE digest = ?", (digest,)).fetchone()
        return found[0]

    def judge(self, record: Record) -> Rejection | None:
        """Return why a finished rollout is rejected, or None if it is kept. Of several reasons the first one is named,
        and the detail holds them all."""
        found = [item for item in (self._ask(name, record) for name in self._settings.names) if item is not None]
        if not found:
            return None
        return Rejection(reason=found[0].reason, detail=" ".join(item.detail for item in found))

    def _ask(self, name: str, record: Record) -> Rejection | None:
        if name == "duplicate":
            return self._duplicate(record)
        if name == "too_long":
            return self._too_long(record.result)
        return _RULES[name](record.result)

    def _duplicate(self, record: Record) -> Rejection | None:
        said = [
            (entry.text, [(call.name, call.arguments) for call in entry.calls])
            for entry in record.result.entries
            if isinstance(entry, Assistant)
        ]
        prompt = record.source.get("prompt", record.source.get("messages"))
        digest = hashlib.sha256(encode_json([prompt, said])).digest()
        first = self._first(digest, record.head.index)
        if first == record.head.index:  # of rollouts of one row, equal answers are a result and no repetition
            return None
        return Rejection(reason="duplicate", detail=f"The same conversation as row {first}.")

    def _too_long(self, result: RolloutResult) -> Rejection | None:
        replies = [entry for entry in result.entries if isinstance(entry, Assistant)]
        tokens = replies[-1].usage.total if replies else 0
        if tokens <= self._settings.max_tokens:
            return None
        return Rejection(reason="too_long", detail=f"{tokens} tokens, more than {self._settings.max_tokens}.")


def judge(result: RolloutResult) -> Rejection | None:
    """Return what the filters that act by default say of a finished rollout."""
    found = [item for item in (_no_reasoning(result), _hallucinated(result), _ambiguous(result)) if item is not None]
    if not found:
        return None
    return Rejection(reason=found[0].reason, detail=" ".join(item.detail for item in found))


def _no_reasoning(result: RolloutResult) -> Rejection | None:
    stats = reasoning_stats(result.entries)
    if stats.has_any_reasoning:
        return None
    return Rejection(reason=NO_REASONING, detail=f"None of {stats.total_assistant_turns} replies has reasoning.")


def _hallucinated(result: RolloutResult) -> Rejection | None:
    offered = {tool.name for tool in result.tools}
    called = [call.name for entry in result.entries if isinstance(entry, Assistant) for call in entry.calls]
    unknown = list(dict.fromkeys(name for name in called if name not in offered))
    if not unknown:
        return None
    names = ", ".join(repr(name[:80]) for name in unknown[:5])
    return Rejection(reason=HALLUCINATED_TOOL, detail=f"Calls tools that were not offered: {names}.")


def _ambiguous(result: RolloutResult) -> Rejection | None:
    for entry in result.entries:
        if isinstance(entry, Assistant) and not survives(*split_reasoning(entry)):
            return Rejection(
                reason=AMBIGUOUS_TAGS,
                detail="The reasoning holds a closing think tag, so the row could not be read back.",
            )
    return None


def _last_answer(result: RolloutResult) -> str | None:
    replies = [entry for entry in result.entries if isinstance(entry, Assistant)]
    return split_reasoning(replies[-1])[1] if replies else None


def _empty(result: RolloutResult) -> Rejection | None:
    if _last_answer(result):
        return None
    return Rejection(reason="empty", detail="The last reply has no text.")


def _refused(result: RolloutResult) -> Rejection | None:
    answer = _last_answer(result) or ""
    if len(answer) > REFUSAL_LENGTH or not _REFUSAL.match(answer):
        return None
    return Rejection(reason="refused", detail=f"The last reply declines: {' '.join(answer.split())[:100]!r}.")


def _looping(result: RolloutResult) -> Rejection | None:
    calls = Counter(
        (call.name, call.raw or encode_json(call.arguments).decode())
        for entry in result.entries
        if isinstance(entry, Assistant)
        for call in entry.calls
    )
    for (name, _), count in calls.most_common(1):
        if count >= LOOP:
            return Rejection(
                reason="looping", detail=f"{name[:80]!r} was called {count} times with the same arguments."
            )
    return None


_RULES = {
    NO_REASONING: _no_reasoning,
    HALLUCINATED_TOOL: _hallucinated,
    AMBIGUOUS_TAGS: _ambiguous,
    "empty": _empty,
    "refused": _refused,
    "looping": _looping,
}
