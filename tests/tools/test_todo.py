"""The list of steps."""

from __future__ import annotations

import pytest

from hermes.core.errors import ToolError
from hermes.core.tools import Tool
from hermes.tools.toolsets import TodoToolset
from tests.tools.place import Place, call, tools_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def todo(place: Place) -> Tool:
    return tools_of(TodoToolset(), "t", place)["todo"]


async def test_write_read_merge(todo: Tool) -> None:
    assert (await call(todo)).details["summary"]["total"] == 0
    await call(todo, todos=[{"content": "a"}, {"content": "b", "status": "in_progress"}])
    output = await call(todo, todos=[{"id": "2", "status": "completed"}, {"id": "x", "content": "c"}], merge=True)
    assert output.details == {
        "todos": [
            {"id": "1", "content": "a", "status": "pending"},
            {"id": "2", "content": "b", "status": "completed"},
            {"id": "x", "content": "c", "status": "pending"},
        ],
        "summary": {"total": 3, "pending": 2, "in_progress": 0, "completed": 1, "cancelled": 0},
    }
    assert (await call(todo)).details == output.details
    assert (await call(todo, todos=[])).details["todos"] == []


async def test_one_step_at_a_time(todo: Tool) -> None:
    await call(todo, todos=[{"content": "a"}])
    steps = [{"content": "a", "status": "in_progress"}, {"content": "b", "status": "in_progress"}]
    with pytest.raises(ToolError, match="2 items are in_progress"):
        await call(todo, todos=steps)
    with pytest.raises(ToolError, match="no content"):
        await call(todo, todos=[{"id": "z"}])
    assert (await call(todo)).details["summary"]["total"] == 1


async def test_each_task_has_its_own(place: Place) -> None:
    toolset = TodoToolset()
    await call(tools_of(toolset, "a", place)["todo"], todos=[{"content": "a"}])
    assert (await call(tools_of(toolset, "b", place)["todo"])).details["todos"] == []
