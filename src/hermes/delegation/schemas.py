"""JSON schemas of the delegation tools, as models see them. `prompt` and `goal` are synonyms everywhere."""

from __future__ import annotations

from typing import Any

__all__ = ["ASYNC_SCHEMA", "DELEGATE_SCHEMA", "PARALLEL_SCHEMA", "SPAWN_SCHEMA", "TINY_PARALLEL_SCHEMA"]

_GOAL = {"type": "string", "description": "What the child has to do, complete in itself."}
_CONTEXT = {"type": "string", "description": "Background it needs; it knows nothing of this conversation."}
_TOOLSETS = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Toolsets for the child, at most yours. Default: yours without delegation.",
}
_ROLE = {"type": "string", "enum": ["leaf", "orchestrator"], "description": "orchestrator may delegate in turn."}
_TIMEOUT = {"type": "number", "description": "Seconds after which the child is stopped with what it has."}


def _item(field: str) -> dict[str, Any]:
    properties = {field: _GOAL, "context": _CONTEXT, "toolsets": _TOOLSETS, "role": _ROLE, "timeout": _TIMEOUT}
    return {"type": "object", "properties": properties, "required": [field]}


DELEGATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "goal": _GOAL,
        "context": _CONTEXT,
        "toolsets": _TOOLSETS,
        "tasks": {
            "type": "array",
            "items": _item("goal"),
            "description": "Several independent tasks; goal is then ignored.",
        },
        "role": _ROLE,
        "timeout": _TIMEOUT,
        "background": {
            "type": "boolean",
            "description": "true: return at once and get the report as a later message. Default false.",
        },
    },
}
SPAWN_SCHEMA: dict[str, Any] = _item("prompt")
PARALLEL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"tasks": {"type": "array", "items": _item("prompt"), "minItems": 1}},
    "required": ["tasks"],
}
#: For models that can follow only the simplest schema: exactly two tasks.
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
ASYNC_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "goal": _GOAL,
        "context": _CONTEXT,
        "toolsets": _TOOLSETS,
        "role": _ROLE,
        "model": {"type": "string", "description": "Model for the child. Default: the configured one, else yours."},
        "provider": {"type": "string", "description": "Provider for the child. Default: as for the model."},
        "max_iterations": {"type": "integer", "description": "Cap on the child's model calls."},
        "timeout": _TIMEOUT,
    },
    "required": ["goal"],
}
