"""How a tiny model is led: which tools it is offered, when it has to answer, what it is shown first."""

from __future__ import annotations

import json

import pytest

from hermes.core.messages import Assistant, Entry, Text, ToolCall, ToolResult, User
from hermes.core.model import ModelRequest, ToolSpec
from hermes.providers.embedded_guide import led


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=name, parameters={"type": "object", "properties": {}})


TOOLS = tuple(tool(name) for name in ("terminal", "process", "read_file", "todo", "spawn_parallel"))


def request(text: str, *more: Entry, tools: tuple[ToolSpec, ...] = TOOLS) -> ModelRequest:
    return ModelRequest(system="A long text.", entries=(User(content=(Text(text),)), *more), tools=tools)


def result(*, is_error: bool = False) -> tuple[Entry, ...]:
    call = ToolCall(id="c", name="terminal", arguments={"command": "ls"})
    return (
        Assistant(calls=(call,)),
        ToolResult(position=1, index=0, call_id="c", name="terminal", content=(Text("a"),), is_error=is_error),
    )


@pytest.mark.parametrize(
    ("text", "tools", "offered"),
    [
        ("Count the lines.", TOOLS, ["terminal"]),
        ("Use spawn_parallel for both.", TOOLS, ["spawn_parallel"]),
        ("Use `read_file` on poem.txt.", TOOLS, ["read_file"]),
        ("Look at the todo list of this process.", TOOLS, ["terminal"]),
        ("Count the lines.", TOOLS[2:4], ["read_file", "todo"]),
    ],
)
def test_it_is_offered_what_its_task_names_else_the_terminal(
    text: str, tools: tuple[ToolSpec, ...], offered: list[str]
) -> None:
    assert [one.name for one in led(request(text, tools=tools)).tools] == offered


def test_the_tools_stay_the_same_for_the_whole_conversation() -> None:
    first = led(request("List the files."))
    later = led(request("List the files.", *result(), User(content=(Text("Now with spawn_parallel."),))))
    assert later.tools == first.tools
    assert later.prefill == first.prefill
    assert later.system == first.system


def test_after_a_result_it_has_to_answer_and_after_an_error_it_may_try_again() -> None:
    assert led(request("List.")).tool_choice == "auto"
    assert led(request("List.", *result())).tool_choice == "none"
    assert led(request("List.", *result(is_error=True))).tool_choice == "auto"
    assert led(request("List.", *result(), User(content=(Text("And now?"),)))).tool_choice == "auto"


def test_only_an_answer_is_kept_from_repeating_itself() -> None:
    assert not led(request("List.")).extra
    assert led(request("List.", *result())).extra["repeat_penalty"] > 1


def test_examples_are_solved_tasks_in_the_form_of_a_reply() -> None:
    shown = led(request("Use spawn_parallel.")).prefill
    assert [message["role"] for message in shown[:4]] == ["user", "assistant", "user", "assistant"]
    replies = [json.loads(message["content"]) for message in shown if message["role"] == "assistant"]
    assert {frozenset(reply) for reply in replies} == {
        frozenset({"thought", "name", "arguments"}),
        frozenset({"thought", "answer"}),
    }


def test_without_tools_the_callers_system_text_stands() -> None:
    assert led(request("Sum up.", tools=())).system == "A long text."


def test_the_request_itself_is_not_touched() -> None:
    asked = request("Use spawn_parallel.")
    led(asked)
    assert asked == request("Use spawn_parallel.")
