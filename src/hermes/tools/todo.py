"""The `todo` tool: the task's own list of steps. It lives with the task and is returned whole by every call.

It is a note of the model to itself: nothing schedules or checks the steps.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hermes.core.errors import ToolError
from hermes.core.tools import CallContext, Tool, ToolOutput, json_output

__all__ = ["TodoArguments", "TodoItem", "todo_tool"]

_DESCRIPTION = (
    "Keep a list of the steps of this task. With `todos` the list is replaced, or with merge=true the items of "
    "the same id are changed and new ones added; without it the list is returned. At most one item is in_progress."
)

Status = Literal["pending", "in_progress", "completed", "cancelled"]
_STATUSES: tuple[Status, ...] = ("pending", "in_progress", "completed", "cancelled")


class TodoItem(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    content: Annotated[str, Meta(description="The step.")] = ""
    status: Annotated[Status, Meta(description="Where it stands.")] = "pending"
    id: Annotated[str, Meta(description="Short name; left out: its number in the list.")] = ""


class TodoArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `todo`."""

    todos: Annotated[list[TodoItem] | None, Meta(description="The steps, in order.")] = None
    merge: Annotated[bool, Meta(description="Change the named items only.")] = False


class _Steps:
    """The list of one task."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[str, TodoItem] | None = None

    async def run(self, arguments: TodoArguments, _context: CallContext) -> ToolOutput:
        items = self._items or {}
        if arguments.todos is not None:
            changed = dict(items) if arguments.merge else {}
            for number, item in enumerate(arguments.todos, start=len(changed) + 1):
                _put(changed, item, number)
            active = [item.id for item in changed.values() if item.status == "in_progress"]
            if len(active) > 1:
                raise ToolError(
                    f"todo: {len(active)} items are in_progress ({', '.join(active)}); leave one. Nothing was changed."
                )
            items = self._items = changed
        return json_output(_view(items), preview=f"{len(items)} steps")


def _described(arguments: dict[str, Any]) -> str:
    return f"{len(arguments['todos'])} steps" if arguments.get("todos") else "read"


def todo_tool() -> Tool:
    """Return the tool for one task, with an empty list."""
    return Tool(
        name="todo",
        description=_DESCRIPTION,
        arguments=TodoArguments,
        run=_Steps().run,
        safe_to_repeat=True,
        describe=_described,
    )


def _put(items: dict[str, TodoItem], item: TodoItem, number: int) -> None:
    name = item.id or str(number)
    known = items.get(name)
    content = item.content.strip() or (known.content if known else "")
    if not content:
        raise ToolError(f"todo: the item {name!r} has no content; the list is unchanged.")
    items[name] = TodoItem(id=name, content=content, status=item.status)


def _view(items: dict[str, TodoItem]) -> dict[str, Any]:
    counts: dict[str, int] = {status: 0 for status in _STATUSES}
    for item in items.values():
        counts[item.status] += 1
    todos = [{"id": item.id, "content": item.content, "status": item.status} for item in items.values()]
    return {"todos": todos, "summary": {"total": len(items), **counts}}
