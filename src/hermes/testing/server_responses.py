"""OpenAI Responses as the loopback provider speaks it: replies and refusals as bytes, requests as a script reads them.

Reasoning is sent as a summary and, where it was asked for, encrypted: `sealed(text)`. It listens to nothing; `server`
does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.testing.faults import Status
from hermes.testing.scripted import Call, Reply, cut

__all__ = ["event", "events_of", "messages_of", "parts_of", "refusal_of", "sealed", "tools_of", "whole_of"]

_REASONS = {"length": "max_output_tokens"}


def sealed(thinking: str) -> str:
    """The encrypted form of a piece of reasoning."""
    return "enc_" + hashlib.sha256(thinking.encode()).hexdigest()[:16]


def _reasoning(made: Reply) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": made.thinking}]
    return {"type": "reasoning", "id": "rs_0", "summary": summary, "encrypted_content": sealed(made.thinking)}


def _message(made: Reply) -> dict[str, Any]:
    content = [{"type": "output_text", "text": made.text, "annotations": []}]
    return {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": content}


def _call(number: int, item: Call) -> dict[str, Any]:
    head = {"type": "function_call", "id": f"fc_{number}", "call_id": item.id or f"call_{number}"}
    return {**head, "name": item.name, "arguments": item.text, "status": "completed"}


def _output(made: Reply) -> list[dict[str, Any]]:
    items = [_reasoning(made)] if made.thinking else []
    items += [_message(made)] if made.text else []
    return items + [_call(number, item) for number, item in enumerate(made.calls)]


def whole_of(made: Reply, model: str, reasoning_field: str) -> dict[str, Any]:
    """Return a reply that is not streamed."""
    cut_off = made.finish in ("length", "content_filter")
    response: dict[str, Any] = {
        "id": "resp_test",
        "object": "response",
        "status": "incomplete" if cut_off else "completed",
        "model": model,
        "output": _output(made),
        "incomplete_details": {"reason": _REASONS.get(made.finish, made.finish)} if cut_off else None,
    }
    if made.usage is not None:
        response["usage"] = {
            "input_tokens": made.usage.input,
            "input_tokens_details": {"cached_tokens": made.usage.cached},
            "output_tokens": made.usage.output,
            "output_tokens_details": {"reasoning_tokens": made.usage.reasoning},
            "total_tokens": made.usage.total,
        }
    return response


def events_of(made: Reply, model: str) -> list[dict[str, Any]]:
    """Return the events of a reply, its end included."""
    final = whole_of(made, model, "")
    begun = {**final, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(final["output"]):
        kind = item["type"]
        begin = {**item, "status": "in_progress"}
        if kind == "reasoning":
            begin = {"type": kind, "id": item["id"], "summary": []}
        elif kind == "message":
            begin["content"] = []
        else:
            begin["arguments"] = ""
        events.append({"type": "response.output_item.added", "output_index": index, "item": begin})
        if kind == "reasoning":
            events.append({"type": "response.reasoning_summary_part.added", "output_index": index, "summary_index": 0})
            name, text = "response.reasoning_summary_text.delta", made.thinking
        elif kind == "message":
            name, text = "response.output_text.delta", made.text
        else:
            name, text = "response.function_call_arguments.delta", item["arguments"]
        events += [{"type": name, "output_index": index, "delta": part} for part in cut(text, made.pieces)]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{final['status']}", "response": final})
    return [{**value, "sequence_number": number} for number, value in enumerate(events)]


def event(value: Mapping[str, Any]) -> bytes:
    """Encode one event."""
    return b"event: " + str(value["type"]).encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


def parts_of(made: Reply, model: str, reasoning_field: str) -> list[bytes]:
    """Return the events of a reply as bytes, its end last."""
    return [event(value) for value in events_of(made, model)]


def refusal_of(step: Status) -> bytes:
    """Return the body of a refusal."""
    error = {"message": step.message, "code": step.code, "type": "invalid_request_error", "param": None}
    return msgspec.json.encode({"error": error})


def messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the input of a request, the system text first; results and calls have the roles of Chat Completions."""
    system = body.get("instructions")
    found: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for item in body.get("input", ()):
        kind = item.get("type", "message")
        again = bool(found) and found[-1]["role"] == "assistant"
        if kind == "function_call":
            if not again:
                found.append({"role": "assistant", "content": []})
            found[-1].setdefault("tool_calls", []).append(item)
        elif kind == "message" and again and item["role"] == "assistant":
            found[-1]["content"] += item["content"]
        elif kind == "message":
            found.append({"role": item["role"], "content": list(item["content"])})
        elif kind == "function_call_output":
            found.append({"role": "tool", "content": item["output"]})
    return found


def tools_of(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the tools of a request."""
    return tuple(tool["name"] for tool in body.get("tools", ()))
