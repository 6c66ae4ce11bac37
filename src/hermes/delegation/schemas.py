"""JSON schemas of the delegation tools, as models see them. `prompt` and `goal` are synonyms everywhere.

What a tool offers by name (agent types, routes) is listed in `delegate_task` and `delegate_task_async` alone; where
there is nothing to choose the argument is not shown. Arguments that are not shown are understood all the same.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hermes.runtime.isolation import MODES

__all__ = [
    "TINY_PARALLEL_SCHEMA",
    "WAIT_SCHEMA",
    "Offer",
    "async_schema",
    "delegate_schema",
    "parallel_schema",
    "spawn_schema",
]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What can be chosen by name here, each as one line of text; empty where there is nothing."""

    agents: str = ""
    routes: str = ""


Properties = dict[str, dict[str, Any]]

_GOAL = {"type": "string", "description": "What the child has to do, complete in itself."}
_CONTEXT = {"type": "string", "description": "Background it needs; it knows nothing of this conversation."}
_TOOLSETS = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Toolsets for the child, at most yours. Default: yours without delegation.",
}
_ROLE = {"type": "string", "enum": ["leaf", "orchestrator"], "description": "orchestrator may delegate in turn."}
_TIMEOUT = {"type": "number", "description": "Seconds after which the child is stopped with what it has."}
_SCHEMA = {"type": "object", "description": "JSON schema; the child answers with a value that fits it (output)."}
_CHECK = {"type": "string", "description": "Command run in the child's folder at its end; it has to succeed."}
_WORKSPACE = {
    "type": "string",
    "enum": list(MODES),
    "description": "The child's folder: yours, an empty one, a copy of yours, or a git worktree on its own branch.",
}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _choices(offer: Offer, *, listed: bool) -> Properties:
    """The arguments that choose by name; `listed` says what there is to choose."""
    found: Properties = {}
    if offer.agents:
        found["agent"] = _text(
            f"Agent type for the child: {offer.agents}" if listed else "Agent type, see delegate_task."
        )
    if offer.routes:
        found["model"] = _text(
            f"Model for the child by name: {offer.routes}. Default: the usual one." if listed else "As delegate_task."
        )
    return found


def _properties(field: str, offer: Offer, *, listed: bool = False) -> Properties:
    return {
        field: _GOAL,
        "context": _CONTEXT,
        "toolsets": _TOOLSETS,
        "role": _ROLE,
        "timeout": _TIMEOUT,
        **_choices(offer, listed=listed),
        "output_schema": _SCHEMA,
        "check": _CHECK,
        "workspace": _WORKSPACE,
    }


def _item(field: str, offer: Offer) -> dict[str, Any]:
    return {"type": "object", "properties": _properties(field, offer), "required": [field]}


def delegate_schema(offer: Offer) -> dict[str, Any]:
    """Of `delegate_task`."""
    properties = _properties("goal", offer, listed=True)
    properties["tasks"] = {
        "type": "array",
        "items": _item("goal", offer),
        "description": "Several independent tasks; goal is then ignored.",
    }
    properties["background"] = {
        "type": "boolean",
        "description": "true: return at once and get the report as a later message. Default false.",
    }
    return {"type": "object", "properties": properties}


def spawn_schema(offer: Offer) -> dict[str, Any]:
    """Of `spawn_agent`."""
    return _item("prompt", offer)


def parallel_schema(offer: Offer) -> dict[str, Any]:
    """Of `spawn_parallel`."""
    properties: Properties = {
        "tasks": {"type": "array", "items": _item("prompt", offer), "minItems": 1},
        "merge": {
            "type": "string",
            "enum": ["all", "first_success"],
            "description": "first_success: as soon as one completed the others are stopped. Default all.",
        },
    }
    return {"type": "object", "properties": properties, "required": ["tasks"]}


def async_schema(offer: Offer) -> dict[str, Any]:
    """Of `delegate_task_async`. `model` is always there: it may be any model of the server in use."""
    properties = _properties("goal", offer, listed=True)
    properties.setdefault("model", _text("Model for the child. Default: the configured one, else yours."))
    properties["provider"] = _text("Provider for the child. Default: as for the model.")
    properties["max_iterations"] = {"type": "integer", "description": "Cap on the child's model calls."}
    properties["max_tokens_total"] = {"type": "integer", "description": "Cap on its tokens, its own children's too."}
    properties["max_cost"] = {"type": "number", "description": "Cap on its cost in US dollars, its children's too."}
    return {"type": "object", "properties": properties, "required": ["goal"]}


#: Of `wait_tasks`.
WAIT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "task_ids": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "Tasks to wait for."},
        "mode": {"type": "string", "enum": ["all", "any"], "description": "any: until the first ends. Default all."},
        "timeout": {"type": "number", "description": "Seconds to wait at most; the tasks go on. Default: no limit."},
    },
    "required": ["task_ids"],
}
#: Of `spawn_parallel` for models that can follow only the simplest schema: exactly two tasks.
TINY_PARALLEL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tasks": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {"prompt": {"type": "string", "maxLength": 120}},
                "required": ["prompt"],
            },
        }
    },
    "required": ["tasks"],
}
