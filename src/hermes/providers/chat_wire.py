"""Chat Completions on the wire: typed chunks in, deltas out.

Endpoints differ in where they put reasoning, how they number parallel calls and what they call a finish; all of that is
settled here, without any I/O. Only the fields in use are decoded; unknown ones are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hermes.core.codec import encode_json
from hermes.core.messages import StopReason, Usage
from hermes.core.model import CallArguments, CallStarted, Delta, TextDelta, ThinkingDelta

__all__ = ["CHUNKS", "CallFolder", "Chunk", "ReasoningDetails", "ThinkSplitter", "stop_of", "usage_of"]


class WireFunction(msgspec.Struct):
    """Name and (a piece of) the argument text; some servers send the arguments as an object."""

    name: str | None = None
    arguments: Any = None


class WireCall(msgspec.Struct):
    """A piece of one call. `index` and `id` are missing on some servers."""

    index: int | str | None = None
    id: str | int | None = None
    function: WireFunction | None = None


class WireMessage(msgspec.Struct):
    """A delta of a streamed choice, or the message of a whole one."""

    content: str | list[Any] | None = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_details: Any = None
    refusal: str | None = None
    tool_calls: list[WireCall] | None = None
    function_call: WireFunction | None = None


class WireChoice(msgspec.Struct):
    """One choice; only the first is asked for."""

    delta: WireMessage | None = None
    message: WireMessage | None = None
    finish_reason: Any = None
    native_finish_reason: Any = None


class Chunk(msgspec.Struct):
    """One event of a stream, or a whole answer that is not streamed."""

    choices: list[WireChoice] | None = None
    usage: dict[str, Any] | None = None
    model: str | None = None
    error: Any = None
    message: Any = None


#: Reads one event.
CHUNKS = msgspec.json.Decoder(Chunk, strict=False)


_STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
}
_BROKEN = ("malformed", "unexpected_tool_call", "invalid_tool_call", "error", "abort", "network_error")


def stop_of(finish: str, native: str = "") -> StopReason | None:
    """Return the stop reason of a provider's finish word; None where the reply is broken and must not be used.

    An unknown word counts as an ordinary stop.
    """
    known = _STOPS.get(finish)
    if known is not None and (not native or native == finish):
        return known
    for word in (finish.lower(), native.lower()):
        if any(mark in word for mark in _BROKEN):
            return None
    return _STOPS.get(finish.lower(), "stop")


def _number(value: Any) -> int:
    if type(value) is int:  # nearly every one
        return value if value > 0 else 0
    return int(value) if isinstance(value, (int, float)) and value >= 0 else 0


def usage_of(raw: dict[str, Any]) -> Usage:
    """Read the usage report of any of the usual servers; `cost` is in US dollars where the endpoint names it."""
    get = raw.get
    prompt, completion = get("prompt_tokens_details"), get("completion_tokens_details")
    prompt = prompt if isinstance(prompt, dict) else {}
    completion = completion if isinstance(completion, dict) else {}
    cached = (
        prompt.get("cached_tokens")
        or get("prompt_cache_hit_tokens")
        or get("cached_tokens")
        or get("cache_read_input_tokens")
    )
    cost = get("cost")
    return Usage(
        input=_number(get("prompt_tokens") if "prompt_tokens" in raw else get("input_tokens")),
        output=_number(get("completion_tokens") if "completion_tokens" in raw else get("output_tokens")),
        cached=_number(cached),
        cache_write=_number(prompt.get("cache_write_tokens") or get("cache_creation_input_tokens")),
        reasoning=_number(completion.get("reasoning_tokens", get("reasoning_tokens"))),
        cost_usd=float(cost) if isinstance(cost, (int, float)) else None,
    )


class ThinkSplitter:
    """Takes `<think>…</think>` at the start of the content out of it, wherever the chunks cut."""

    _OPEN = ("<think>", "<thinking>")

    def __init__(self) -> None:
        self._held = ""
        self._end = ""
        self._state = "start"

    def feed(self, text: str) -> list[Delta]:
        """Return the deltas that are certain after `text`."""
        if self._state == "text":
            return [TextDelta(text)] if text else []
        self._held += text
        if self._state == "start":
            begun = self._held.lstrip()
            for mark in self._OPEN:
                if begun.startswith(mark):
                    self._state, self._end, self._held = "thinking", mark.replace("<", "</"), begun[len(mark) :]
                    break
                if mark.startswith(begun):  # may still become the mark
                    return []
            else:
                self._state, held, self._held = "text", self._held, ""
                return [TextDelta(held)]
        if self._state == "thinking":
            return self._thinking()
        begun, self._held = self._held.lstrip(), ""  # "after": blank lines between reasoning and answer
        if not begun:
            return []
        self._state = "text"
        return [TextDelta(begun)]

    def _thinking(self) -> list[Delta]:
        at = self._held.find(self._end)
        if at >= 0:
            thought, rest = self._held[:at], self._held[at + len(self._end) :]
            self._state, self._held = "after", ""
            return [*([ThinkingDelta(thought)] if thought else []), *self.feed(rest)]
        # The end mark may be cut: what could be its beginning is held back.
        keep = next((n for n in range(len(self._end) - 1, 0, -1) if self._held.endswith(self._end[:n])), 0)
        thought, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return [ThinkingDelta(thought)] if thought else []

    def close(self) -> list[Delta]:
        """Return what was held back."""
        held, self._held = self._held, ""
        if not held or self._state == "after":
            return []
        return [ThinkingDelta(held)] if self._state == "thinking" else [TextDelta(held)]


class _OpenCall:
    def __init__(self, number: int) -> None:
        self.number = number
        self.id = ""
        self.name = ""
        self.arguments = ""

    @property
    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON value."""
        try:
            msgspec.json.decode(self.arguments)
        except msgspec.DecodeError:
            return False
        return True


class CallFolder:
    """Sorts the pieces of parallel calls, by index where one is sent, else by id, else by order."""

    def __init__(self) -> None:
        self._calls: list[_OpenCall] = []
        self._by_index: dict[str, _OpenCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def nameless(self) -> bool:
        """Whether a call came without a name."""
        for call in self._calls:
            if not call.name:
                return True
        return False

    def feed(self, piece: WireCall) -> Iterator[Delta]:
        """Yield the deltas of one piece."""
        function = piece.function if piece.function is not None else WireFunction()
        call_id, name = "" if piece.id is None else str(piece.id), function.name or ""
        arguments = function.arguments
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            arguments = encode_json(arguments).decode()
        call = self._find(piece.index, call_id, name, arguments)
        if (call_id and not call.id) or (name and name != call.name):
            # A name may come in pieces, but some servers repeat the whole name with each piece of the arguments.
            call.id = call.id or call_id
            call.name = name if not call.name or name.startswith(call.name) else call.name + name
            yield CallStarted(call.number, call.id, call.name)
        if arguments:
            call.arguments += arguments
            yield CallArguments(call.number, arguments)

    def _find(self, index: int | str | None, call_id: str, name: str, arguments: str) -> _OpenCall:
        key = "" if index is None else str(index)
        known = self._by_index.get(key) if key else (self._calls[-1] if self._calls else None)
        if not key and call_id and not name:
            known = next((call for call in reversed(self._calls) if call.id == call_id), known)
        if known is None or self._is_another(known, call_id, name, arguments):
            known = _OpenCall(len(self._calls))
            self._calls.append(known)
            if key:
                self._by_index[key] = known
        return known

    @staticmethod
    def _is_another(known: _OpenCall, call_id: str, name: str, arguments: str) -> bool:
        """Whether a named piece begins a new call although its index (or its place) is taken."""
        if not name or not known.name:
            return False
        if call_id and known.id and call_id != known.id:
            return True
        return bool(known.arguments) and known.complete and (not arguments or arguments.lstrip().startswith("{"))


class ReasoningDetails:
    """Collects `reasoning_details` (text, summaries, signatures) as the endpoint wants them back."""

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []

    def feed(self, details: Any) -> str:
        """Add the details of one chunk; return their readable text."""
        text = ""
        for item in details if isinstance(details, list) else ():
            if not isinstance(item, dict):
                continue
            text += next((part for key in ("text", "summary") if isinstance(part := item.get(key), str)), "")
            last = self._items[-1] if self._items else None
            if last is not None and last.get("index") == item.get("index") and last.get("type") == item.get("type"):
                for key, value in item.items():
                    joined = key in ("text", "summary", "data") and isinstance(value, str)
                    last[key] = (last.get(key) or "") + value if joined else (value or last.get(key))
            else:
                self._items.append(dict(item))
        return text

    @property
    def data(self) -> dict[str, Any] | None:
        """What to keep on the message, None without details."""
        return {"reasoning_details": self._items} if self._items else None


def content_deltas(content: list[Any]) -> tuple[str, str]:
    """Return (reasoning, text) of content that is a list of parts."""
    thought, text = "", ""
    for part in content:
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict) and part.get("type") == "thinking":
            inner = part.get("thinking")
            thought += inner if isinstance(inner, str) else content_deltas(inner or [])[1]
        elif isinstance(part, dict):
            text += str(part.get("text") or "")
    return thought, text
