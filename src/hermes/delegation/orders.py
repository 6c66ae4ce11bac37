"""Reading what a model wrote: the several spellings of a list of tasks, each checked, each refusal a sentence."""

from __future__ import annotations

from typing import Any

import msgspec

from hermes.core.errors import ToolError
from hermes.delegation.policy import ChildOrder
from hermes.runtime.isolation import MODES, WorkspaceMode, read_mode

__all__ = ["read_names", "read_order", "read_orders"]

#: Fields of the whole call that count for each task that does not say otherwise.
_INHERITED = (
    "context", "toolsets", "timeout", "agent", "model", "route", "provider", "role", "output_schema", "check",
    "workspace",
)  # fmt: skip


def read_orders(tasks: Any, single: dict[str, Any]) -> list[ChildOrder]:
    """Read a batch (`tasks`, a list or a JSON string of one) or a single task from the top-level arguments.

    Raises:
        ToolError: neither goal nor tasks, empty tasks, an item that is no object or has no goal.
    """
    if tasks is None:
        return [read_order(single, "")]
    if isinstance(tasks, str):
        try:
            tasks = msgspec.json.decode(tasks)
        except msgspec.DecodeError as error:
            raise ToolError(
                f"tasks could not be parsed as JSON: {error}. Send a list of objects with a goal."
            ) from None
    if not isinstance(tasks, list):
        raise ToolError(f"tasks must be a list of objects with a goal, not {type(tasks).__name__}.")
    if not tasks:
        raise ToolError("tasks is empty. Send at least one object with a goal.")
    inherited = {key: value for key, value in single.items() if key in _INHERITED and value}
    return [read_order(item, f"task {index}", inherited) for index, item in enumerate(tasks)]


def read_order(item: Any, where: str, inherited: dict[str, Any] | None = None) -> ChildOrder:
    """Read one task; `prompt` and `goal` are the same thing.

    Raises:
        ToolError: with the field that is wrong.
    """
    prefix = f"{where}: " if where else ""
    if isinstance(item, str) and where:
        item = {"goal": item}
    if not isinstance(item, dict):
        raise ToolError(f"{prefix}expected an object with a goal, got {type(item).__name__}.")
    item = {**(inherited or {}), **{key: value for key, value in item.items() if value is not None}}
    goal = item.get("goal") or item.get("prompt") or ""
    if not isinstance(goal, str) or not goal.strip():
        raise ToolError(f"{prefix}goal is required: say in full what the child has to do (it knows nothing else).")
    for unsupported in ("acp_command", "skill"):
        if item.get(unsupported):
            raise ToolError(f"{prefix}{unsupported} is not supported in this release; leave it out.")
    try:
        return ChildOrder(
            goal=goal,
            context=_text(item, "context"),
            toolsets=_names(item.get("toolsets")),
            role=_text(item, "role"),
            agent=_text(item, "agent"),
            model=_text(item, "model"),
            route=_text(item, "route"),
            provider=_text(item, "provider"),
            timeout=_number(item.get("timeout"), "timeout", "seconds"),
            max_iterations=_whole(item.get("max_iterations"), "max_iterations"),
            max_tokens_total=_whole(item.get("max_tokens_total"), "max_tokens_total"),
            max_cost=_number(item.get("max_cost"), "max_cost", "US dollars"),
            output_schema=item.get("output_schema"),
            check=_text(item, "check").strip(),
            workspace=_mode(item.get("workspace")),
        )
    except (TypeError, ValueError) as error:
        raise ToolError(f"{prefix}{error}") from None


def read_names(value: Any, field: str) -> list[str]:
    """Read a list of names: a list, its JSON text, or names separated by commas.

    Raises:
        ToolError: it is none, or empty.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ToolError(f"{field} could not be parsed as JSON: {error}. Send a list of ids.") from None
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name.strip() for name in value):
        raise ToolError(f"{field} must be a list with at least one id.")
    return [name.strip() for name in value]


def _text(item: dict[str, Any], field: str) -> str:
    value = item.get(field) or ""
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value).decode()
    return str(value)


def _names(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise TypeError("toolsets must be a list of names.")


def _mode(value: Any) -> WorkspaceMode | None:
    found = read_mode(value)
    if value is not None and found is None:
        raise ValueError(f"workspace is one of {', '.join(MODES)}, not {str(value)[:40]!r}.")
    return found


def _number(value: Any, field: str, unit: str) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not number > 0:
        raise ValueError(f"{field} must be a positive number of {unit}, not {value}.")
    return number


def _whole(value: Any, field: str) -> int | None:
    if value is None:
        return None
    number = int(value)
    if number < 1:
        raise ValueError(f"{field} must be at least 1, not {value}.")
    return number
