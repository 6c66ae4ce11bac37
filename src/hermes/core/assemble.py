"""Folding deltas into a message: the only place that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import intern
from typing import Any

import msgspec

from hermes.core.codec import scrub_surrogates
from hermes.core.errors import ModelError
from hermes.core.messages import NOTHING, Assistant, ToolCall, Usage
from hermes.core.model import (
    CallArguments,
    CallStarted,
    Delta,
    ProviderData,
    Restarted,
    Stop,
    TextDelta,
    ThinkingDelta,
    UsageReport,
)

__all__ = ["Assembler", "parse_arguments"]


def parse_arguments(raw: str) -> tuple[dict[str, Any], str]:
    """Parse the argument text of a call: (arguments, "") or ({}, why not).

    A bare list is accepted as `{"tasks": [...]}`, the form `spawn_parallel` is written in. An empty text
    is an empty object, as several servers send it.
    """
    text = raw.strip()
    if not text:
        return {}, ""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return {}, f"the arguments are not valid JSON ({error})"
    if isinstance(value, str):  # some models encode the object twice
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return {}, "the arguments are a JSON string, not an object"
    if isinstance(value, list):
        return {"tasks": value}, ""
    if not isinstance(value, dict):
        return {}, f"the arguments are a JSON {type(value).__name__}, not an object"
    return value, ""


class Assembler:
    """Collects the deltas of one reply. `push` each delta, then `finish`."""

    __slots__ = ("_calls", "_data", "_stop", "_text", "_thinking", "_usage", "attempts", "lost")

    def __init__(self) -> None:
        self.lost = NOTHING
        self.attempts = 1
        self._reset()

    def _reset(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: dict[int, tuple[str, str, list[str]]] = {}
        self._usage: Usage | None = None
        self._data: Any = None
        self._stop: Stop | None = None

    def push(self, delta: Delta) -> None:
        """Fold one delta in. A `Restarted` drops what came before it and keeps its cost in `lost`."""
        fold = _FOLDS.get(type(delta))
        if fold is not None:
            fold(self, delta)

    def _add_text(self, delta: TextDelta) -> None:
        self._text.append(delta.text)

    def _add_thinking(self, delta: ThinkingDelta) -> None:
        self._thinking.append(delta.text)

    def _begin_call(self, delta: CallStarted) -> None:
        known = self._calls.get(delta.index)
        self._calls[delta.index] = (delta.id, delta.name, known[2] if known else [])

    def _add_arguments(self, delta: CallArguments) -> None:
        self._calls.setdefault(delta.index, ("", "", []))[2].append(delta.text)

    def _report(self, delta: UsageReport) -> None:
        self._usage = delta.usage

    def _keep(self, delta: ProviderData) -> None:
        self._data = delta.data

    def _end(self, delta: Stop) -> None:
        self._stop = delta

    def _restart(self, delta: Restarted) -> None:
        self.lost = self.lost + delta.usage
        self.attempts = max(self.attempts, delta.attempt)
        self._reset()

    @property
    def text(self) -> str:
        """The visible text so far."""
        return "".join(self._text)

    @property
    def thinking(self) -> str:
        """The reasoning so far."""
        return "".join(self._thinking)

    @property
    def reported(self) -> Usage | None:
        """What the provider has counted so far, None where it said nothing."""
        return self._usage

    @property
    def started(self) -> bool:
        """Whether anything came that a restart would have to drop."""
        return bool(self._text or self._thinking or self._calls)

    def finish(self, *, model: str, at: float, estimate: Usage) -> Assistant:
        """Return the message. `estimate` stands in where the provider reported no usage.

        Raises:
            ModelError: the stream ended without a stop.
        """
        if self._stop is None:
            raise ModelError(
                f"the reply of {model} ended before it was complete", reason="malformed_response", retryable=True
            )
        # Words that each reply of each task repeats are one string for all of them.
        calls = []
        for index in sorted(self._calls):
            call_id, name, parts = self._calls[index]
            raw = scrub_surrogates("".join(parts))
            arguments, invalid = parse_arguments(raw)
            call_id = call_id or f"call_{index}"
            calls.append(ToolCall(id=call_id, name=intern(name), arguments=arguments, raw=raw, invalid=invalid))
        return Assistant(
            text=scrub_surrogates(self.text),
            thinking=scrub_surrogates(self.thinking),
            calls=tuple(calls),
            stop="tool_calls" if calls else self._stop.reason,
            finish=intern(self._stop.finish),
            usage=self._usage if self._usage is not None else estimate,
            model=intern(self._stop.model or model),
            provider_data=self._data,
            at=at,
        )


# By type and not by a chain of checks: every delta of a thousand children passes here.
_FOLDS: Mapping[type[Any], Callable[[Assembler, Any], None]] = {
    TextDelta: Assembler._add_text,
    ThinkingDelta: Assembler._add_thinking,
    CallStarted: Assembler._begin_call,
    CallArguments: Assembler._add_arguments,
    UsageReport: Assembler._report,
    ProviderData: Assembler._keep,
    Stop: Assembler._end,
    Restarted: Assembler._restart,
}
