"""Anthropic Messages as the loopback provider speaks it: replies and refusals as bytes, requests as scripts read them.

Thinking carries a signature, which is `signed(text)`. It listens to nothing; `server` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.testing.faults import Status
from hermes.testing.scripted import Reply, cut

__all__ = ["event", "events_of", "messages_of", "parts_of", "refusal_of", "signed", "tools_of", "whole_of"]

_STOPS = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use", "stop": "end_turn"}
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def signed(thinking: str) -> str:
    """The signature of a piece of thinking."""
    return "sig_" + hashlib.sha256(thinking.encode()).hexdigest()[:16]


def _stop(made: Reply) -> str:
    if made.finish:
        return _STOPS.get(made.finish, made.finish)
    return "tool_use" if made.calls else "end_turn"


def _usage(made: Reply) -> dict[str, Any]:
    usage = made.usage
    if usage is None:
        return {}
    return {
        "input_tokens": usage.input - usage.cached - usage.cache_write,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": usage.output,
    }


def _block(index: int, begin: Mapping[str, Any], deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": begin},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def events_of(made: Reply, model: str) -> list[dict[str, Any]]:
    """Return the events of a reply, its end included."""
    usage = _usage(made)
    message: dict[str, Any] = {"id": "msg_test", "type": "message", "role": "assistant", "model": model, "content": []}
    if usage:
        message["usage"] = {**usage, "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    index = 0
    if made.thinking:
        parts = [{"type": "thinking_delta", "thinking": part} for part in cut(made.thinking, made.pieces)]
        end = {"type": "signature_delta", "signature": signed(made.thinking)}
        events += _block(index, {"type": "thinking", "thinking": "", "signature": ""}, [*parts, end])
        index += 1
    if made.text:
        texts = [{"type": "text_delta", "text": part} for part in cut(made.text, made.pieces)]
        events += _block(index, {"type": "text", "text": ""}, texts)
        index += 1
    for number, item in enumerate(made.calls):
        begin = {"type": "tool_use", "id": item.id or f"call_{number}", "name": item.name, "input": {}}
        pieces = ["", *cut(item.text, made.pieces)]
        events += _block(index + number, begin, [{"type": "input_json_delta", "partial_json": part} for part in pieces])
    end_usage = {"output_tokens": usage["output_tokens"]} if usage else None
    delta = {"stop_reason": _stop(made), "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": end_usage})
    return [*events, {"type": "message_stop"}]


def event(value: Mapping[str, Any]) -> bytes:
    """Encode one event."""
    return b"event: " + str(value["type"]).encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


def parts_of(made: Reply, model: str, reasoning_field: str) -> list[bytes]:
    """Return the events of a reply as bytes, its end last."""
    return [event(value) for value in events_of(made, model)]


def whole_of(made: Reply, model: str, reasoning_field: str) -> dict[str, Any]:
    """Return a reply that is not streamed."""
    content: list[dict[str, Any]] = []
    if made.thinking:
        content.append({"type": "thinking", "thinking": made.thinking, "signature": signed(made.thinking)})
    if made.text:
        content.append({"type": "text", "text": made.text})
    for number, item in enumerate(made.calls):
        made_input = item.arguments if item.raw is None else {}
        content.append(
            {"type": "tool_use", "id": item.id or f"call_{number}", "name": item.name, "input": dict(made_input)}
        )
    head = {"id": "msg_test", "type": "message", "role": "assistant", "model": model}
    return {**head, "content": content, "stop_reason": _stop(made), "usage": _usage(made)}


def refusal_of(step: Status) -> bytes:
    """Return the body of a refusal."""
    error = {"type": _KINDS.get(step.status, "api_error"), "message": step.message}
    return msgspec.json.encode({"type": "error", "error": error, "request_id": "req_test"})


def messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a request, the system text first; content as it came."""
    system = body.get("system")
    return [*([{"role": "system", "content": system}] if system else []), *body.get("messages", ())]


def tools_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the tools of a request."""
    return tuple(tool["name"] for tool in body.get("tools", ()))
