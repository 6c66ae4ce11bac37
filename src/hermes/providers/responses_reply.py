"""One reply of the OpenAI Responses format: events to deltas. It does no I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hermes.core.messages import StopReason, Usage
from hermes.core.model import (
    CallArguments,
    CallStarted,
    Delta,
    ModelProfile,
    ProviderData,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from hermes.providers.classify import Origin, error_of
from hermes.providers.event_reply import EventReply
from hermes.providers.kept import Kept
from hermes.providers.render_responses import WIRE

__all__ = ["ResponsesReply"]

_INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}


class _Item(msgspec.Struct):
    """An item of the output. Text stands in `content`, readable reasoning in `summary` or `content`."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    summary: list[dict[str, Any]] | None = None
    content: list[dict[str, Any]] | None = None
    encrypted_content: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    model: str | None = None
    output: list[_Item] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None
    incomplete_details: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    delta: Any = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    message: str | None = None
    code: Any = None


_event = msgspec.json.Decoder(_Event, strict=False)
_response = msgspec.json.Decoder(_Response, strict=False)


class _Open:
    """An item that arrives: what of it has come as pieces."""

    def __init__(self, item: _Item, call: int = -1) -> None:
        self.item = item
        self.call = call
        self.text = False
        self.thinking = False
        self.arguments = False


class ResponsesReply(EventReply):
    """A reply of OpenAI Responses."""

    def __init__(self, origin: Origin, profile: ModelProfile, wall_clock: Callable[[], float]) -> None:
        super().__init__(origin, profile, wall_clock)
        self._kept = Kept(WIRE, origin.host)
        self._items: dict[int, _Open] = {}
        self._calls = 0
        self._nameless = False
        self._response = _Response()
        self._done: set[int] = set()

    def read_event(self, name: str, data: bytes, deltas: list[Delta]) -> None:
        """Add the deltas of one event to `deltas`."""
        event = self.decoded(_event, data)
        self._event(event, event.type or name, deltas)

    def read_object(self, body: bytes) -> list[Delta]:
        """Return the deltas of a whole answer."""
        response = self.decoded(_response, body)
        deltas: list[Delta] = []
        self._end(response, deltas)
        return deltas

    def _event(self, event: _Event, kind: str, deltas: list[Delta]) -> None:
        text = event.delta if isinstance(event.delta, str) else ""
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._text(self._item(event.output_index), text, deltas)
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            opened = self._item(event.output_index)
            opened.thinking = True
            deltas.append(ThinkingDelta(text))
        elif kind == "response.reasoning_summary_part.added":
            if self._item(event.output_index).thinking:
                deltas.append(ThinkingDelta("\n\n"))
        elif kind == "response.function_call_arguments.delta":
            opened = self._item(event.output_index)
            if opened.call < 0:
                raise self.malformed("sent arguments of a call that never began")
            opened.arguments = True
            deltas.append(CallArguments(opened.call, text))
        elif kind == "response.output_item.added" and event.item is not None:
            self._added(event.output_index, event.item, deltas)
        elif kind == "response.output_item.done" and event.item is not None:
            self._item_done(event.output_index, event.item, deltas)
        elif kind in ("response.completed", "response.incomplete", "response.failed", "response.done"):
            self._end(event.response or _Response(status=kind.removeprefix("response.")), deltas)
        elif kind == "error" or event.error is not None:
            raise self.reported(event.error or {"message": event.message, "code": event.code})

    def _item(self, index: int) -> _Open:
        return self._items.setdefault(index, _Open(_Item()))

    def _text(self, opened: _Open, text: str, deltas: list[Delta]) -> None:
        if text:
            opened.text = True
            self._kept.text(text)
            deltas.append(TextDelta(text))

    def _added(self, index: int, item: _Item, deltas: list[Delta]) -> None:
        if item.type == "function_call":
            self._items[index] = _Open(item, self._calls)
            self._calls += 1
            self._nameless = self._nameless or not item.name
            self._kept.call(self._items[index].call)
            deltas.append(CallStarted(self._items[index].call, item.call_id or item.id or "", item.name or ""))
        else:
            self._items[index] = _Open(item)

    def _item_done(self, index: int, item: _Item, deltas: list[Delta]) -> None:
        """Take a complete item: what of it did not come in pieces comes now."""
        if index in self._done:
            return
        self._done.add(index)
        if index not in self._items:
            self._added(index, item, deltas)
        opened = self._items[index]
        if item.type == "function_call":
            if item.arguments and not opened.arguments:
                deltas.append(CallArguments(opened.call, item.arguments))
        elif item.type == "message":
            if not opened.text:
                parts = (part.get("text") or part.get("refusal") or "" for part in item.content or ())
                self._text(opened, "".join(parts), deltas)
        elif item.type == "reasoning":
            parts = (str(part.get("text") or "") for part in item.summary or item.content or ())
            thinking = "" if opened.thinking else "\n\n".join(parts)
            if thinking:
                deltas.append(ThinkingDelta(thinking))
            if item.encrypted_content:
                self._kept.reasoning(_reasoning(item))

    def _end(self, response: _Response, deltas: list[Delta]) -> None:
        if response.error is not None:
            raise self.reported(response.error)
        if response.status in ("failed", "cancelled"):
            raise self.reported(f"the response is {response.status}")
        if response.status is None and response.output is None:
            raise self.malformed("answered without any response")
        self._response = response
        self._model = response.model or ""
        for index, item in enumerate(response.output or ()):
            self._item_done(index, item, deltas)
        deltas += self.stop()

    def stop(self) -> list[Delta]:
        """Return what stands at the end of a reply."""
        if self._stopped:
            return []
        if self._nameless:
            raise self.malformed("broke its reply off (a call without a name)")
        self._stopped = self.finished = True
        reason, finish = self._reason()
        deltas: list[Delta] = []
        if self._kept.data is not None:
            deltas.append(ProviderData(self._kept.data))
        if self._response.usage:
            deltas.append(self.report(_usage_of(self._response.usage)))
        return [*deltas, Stop(reason, finish, self._model or self.origin.model)]

    def _reason(self) -> tuple[StopReason, str]:
        details = self._response.incomplete_details or {}
        word = str(details.get("reason") or "")
        if self._response.status == "incomplete":
            if word not in _INCOMPLETE:
                what = f"{self.origin.host} left the reply of {self.origin.model} incomplete"
                raise error_of(self.origin, "malformed_response", what, word)
            return _INCOMPLETE[word], word
        return ("tool_calls" if self._calls else "stop"), self._response.status or "completed"


def _reasoning(item: _Item) -> dict[str, Any]:
    kept: dict[str, Any] = {"type": "reasoning", "summary": item.summary or []}
    if item.id:
        kept["id"] = item.id
    return {**kept, "encrypted_content": item.encrypted_content}


def _usage_of(raw: dict[str, Any]) -> Usage:
    def count(source: Any, name: str) -> int:
        value = source.get(name) if isinstance(source, dict) else None
        return int(value) if isinstance(value, (int, float)) and value > 0 else 0

    cost = raw.get("cost")
    return Usage(
        input=count(raw, "input_tokens"),
        output=count(raw, "output_tokens"),
        cached=count(raw.get("input_tokens_details"), "cached_tokens"),
        reasoning=count(raw.get("output_tokens_details"), "reasoning_tokens"),
        cost_usd=float(cost) if isinstance(cost, (int, float)) else None,
    )
