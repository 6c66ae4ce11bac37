"""Chat Completions as the loopback provider speaks it: replies and refusals as bytes, requests as a script reads them.

It listens to nothing; `server` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.testing.faults import Status, sse
from hermes.testing.scripted import Reply, cut, stop_reason

__all__ = ["events_of", "messages_of", "parts_of", "refusal_of", "tools_of", "usage_of", "whole_of"]


def _chunk(model: str, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-test", "object": "chat.completion.chunk", "model": model, "choices": [choice]}


def usage_of(made: Reply) -> dict[str, Any]:
    """The usage report of a reply; empty where it has none."""
    usage = made.usage
    if usage is None:
        return {}
    report: dict[str, Any] = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
    return report if usage.cost_usd is None else {**report, "cost": usage.cost_usd}


def events_of(made: Reply, model: str, reasoning_field: str = "reasoning_content") -> list[dict[str, Any]]:
    """Return the events of a reply, without the end mark."""
    events = [_chunk(model, {"role": "assistant", "content": ""})]
    events += [_chunk(model, {reasoning_field: part}) for part in cut(made.thinking, made.pieces)]
    events += [_chunk(model, {"content": part}) for part in cut(made.text, made.pieces)]
    for index, item in enumerate(made.calls):
        first, *more = cut(item.text, made.pieces) or [""]
        function = {"name": item.name, "arguments": first}
        call = {"index": index, "id": item.id or f"call_{index}", "type": "function", "function": function}
        events.append(_chunk(model, {"tool_calls": [call]}))
        for part in more:
            events.append(_chunk(model, {"tool_calls": [{"index": index, "function": {"arguments": part}}]}))
    events.append(_chunk(model, {}, made.finish or stop_reason(made)))
    if made.usage is not None:
        events.append({"model": model, "choices": [], "usage": usage_of(made)})
    return events


def parts_of(made: Reply, model: str, reasoning_field: str) -> list[bytes]:
    """Return the events of a reply as bytes, the end mark last."""
    return [*(sse(event, done=False) for event in events_of(made, model, reasoning_field)), sse()]


def whole_of(made: Reply, model: str, reasoning_field: str) -> dict[str, Any]:
    """Return a reply that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": made.text}
    if made.thinking:
        message[reasoning_field] = made.thinking
    if made.calls:
        message["tool_calls"] = [
            {"id": item.id or f"call_{n}", "type": "function", "function": {"name": item.name, "arguments": item.text}}
            for n, item in enumerate(made.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": made.finish or stop_reason(made)}
    return {"object": "chat.completion", "model": model, "choices": [choice], "usage": usage_of(made)}


def refusal_of(step: Status) -> bytes:
    """Return the body of a refusal."""
    return msgspec.json.encode({"error": {"message": step.message, "code": step.code, "type": "error"}})


def messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a request."""
    return list(body.get("messages", ()))


def tools_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the tools of a request."""
    return tuple(tool["function"]["name"] for tool in body.get("tools", ()))
