"""Functions of a program as tools."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import hermes
from hermes.api.functions import read_functions
from hermes.core.errors import UsageError
from hermes.core.messages import ToolResult, plain_text
from hermes.testing.scripted import ScriptedModel, call, reply


def area(width: float, height: float = 1.0, *, unit: str = "m") -> dict[str, Any]:
    """The area of a rectangle."""
    return {"area": width * height, "unit": unit, "main": threading.current_thread() is threading.main_thread()}


async def shout(text: str) -> str:
    return text.upper()


def broken(name: str) -> None:
    raise KeyError(name)


def answers(model: ScriptedModel) -> list[tuple[str, bool]]:
    entries = model.requests[-1].entries
    return [(plain_text(entry.content), entry.is_error) for entry in entries if isinstance(entry, ToolResult)]


def test_an_agent_calls_them_and_reads_what_they_return_or_raise(tmp_path: Path) -> None:
    calls = [
        call("area", width=2, height=3),
        call("shout", text="hi"),
        call("broken", name="x"),
        call("area", width="y"),
    ]
    model = ScriptedModel(steps=[reply(calls=calls), reply("done")])
    with hermes.AIAgent(model, tools=[area, shout, broken], memory=True, workspace=str(tmp_path)) as agent:
        assert agent.chat("go") == "done"
    shown = {tool.name: tool for tool in model.requests[0].tools}
    assert shown["area"].description == "The area of a rectangle."
    assert shown["area"].parameters["required"] == ["width"]
    found = answers(model)
    assert found[0] == ('{"area":6.0,"unit":"m","main":false}', False)
    assert found[1] == ("HI", False)
    assert "KeyError: 'x'" in found[2][0] and found[2][1]
    assert "Expected fields: width, height, unit" in found[3][0] and found[3][1]


def test_children_have_them_too(tmp_path: Path) -> None:
    model = ScriptedModel(
        scripts={
            "go": [reply(calls=[call("spawn_agent", prompt="measure")]), reply("done")],
            "measure": [reply(calls=[call("shout", text="ok")]), reply("OK it is")],
        }
    )
    with hermes.open(model=model, tools=[shout], memory=True, workspace=str(tmp_path)) as runtime:
        assert runtime.delegate("go")["summary"] == "done"
    model.assert_complete()


def _untyped(*values: int) -> None: ...


def _unknown(value: threading.Thread) -> None: ...


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ([lambda x: x], "needs a `def`"),
        ([_untyped], "cannot be given by name"),
        ([_unknown], "Give each parameter a type"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_once(tools: list[Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_functions(tools)
    with pytest.raises(UsageError, match=told):
        hermes.open(tools=tools)


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    def terminal(command: str) -> str:
        return command

    with (
        pytest.raises(UsageError, match="two tools called 'terminal'"),
        hermes.open(model=ScriptedModel(), tools=[terminal], memory=True, workspace=str(tmp_path)),
    ):
        pass
