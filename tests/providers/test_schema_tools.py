"""Tools through a JSON schema: what is sent, and what comes back."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from hermes.core.errors import ModelError
from hermes.core.messages import Assistant, Text, ToolCall, ToolResult, User
from hermes.core.model import CallArguments, CallStarted, ModelProfile, ModelRequest, TextDelta, ThinkingDelta, ToolSpec
from hermes.providers.retrying import Retrying
from hermes.providers.schema_tools import Bounds, Example, SchemaTools, bounded_schema, compact_system, read_reply
from hermes.testing.clock import VirtualClock
from hermes.testing.scripted import ScriptedModel, broken, reply
from tests.providers.conformance import failure_of, message_of
from tests.providers.endpoints import served

TERMINAL = ToolSpec(
    name="terminal",
    description="Run a command. More text that nobody needs.",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}},
        "required": ["command"],
    },
)
PARALLEL = ToolSpec(
    name="spawn_parallel",
    description="Run tasks side by side.",
    parameters={
        "type": "object",
        "properties": {
            "tasks": {"type": "array", "items": {"$ref": "#/$defs/Job"}, "minItems": 2, "maxItems": 2},
        },
        "required": ["tasks"],
        "$defs": {"Job": {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]}},
    },
)


class Silent:
    """A model of which only name and profile are used."""

    name = "silent"

    def __init__(self, tiny: bool = True) -> None:
        self.profile = ModelProfile(window=4096, max_output=256, tiny=tiny, tool_calling="schema")

    def stream(self, request: ModelRequest) -> Any:
        raise AssertionError("not asked")


def schema_of(request: ModelRequest) -> dict[str, Any]:
    schema: dict[str, Any] = request.extra["response_format"]["json_schema"]["schema"]
    return schema


def ask(*entries: Any, tools: tuple[ToolSpec, ...] = (TERMINAL,), **more: Any) -> ModelRequest:
    return ModelRequest(system="Be useful.", entries=(User(content=(Text("go"),)), *entries), tools=tools, **more)


def test_every_string_and_list_is_bounded_and_optional_arguments_are_left_out() -> None:
    schema = bounded_schema(TERMINAL.parameters)
    assert schema["properties"] == {"command": {"type": "string", "maxLength": 200}}
    assert bounded_schema(TERMINAL.parameters, Bounds(required_only=False))["properties"].keys() == {
        "command",
        "timeout",
    }


def test_exactly_two_items_pass_through_and_references_are_resolved() -> None:
    tasks = bounded_schema(PARALLEL.parameters)["properties"]["tasks"]
    assert (tasks["minItems"], tasks["maxItems"]) == (2, 2)
    assert tasks["items"]["properties"]["goal"] == {"type": "string", "maxLength": 200}


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"child": {"$ref": "#/$defs/Node"}}}
    schema = bounded_schema(
        {"type": "object", "properties": {"root": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    )
    assert schema["properties"]["root"]["properties"]["child"] == {"type": "object"}


def test_a_tiny_model_has_to_call_first_and_may_answer_later_and_must_answer_last() -> None:
    model = SchemaTools(Silent())
    first, must = model.rewrite(ask())
    assert must and schema_of(first)["properties"]["name"]["const"] == "terminal"
    call = ToolCall(id="c", name="terminal", arguments={"command": "ls"}, raw='{"command": "ls"}')
    later, must = model.rewrite(ask(Assistant(calls=(call,))))
    assert not must and len(schema_of(later)["anyOf"]) == 2
    last, must = model.rewrite(ask(Assistant(calls=(call,)), tool_choice="none"))
    assert not must and "answer" in schema_of(last)["properties"]
    assert first.extra["temperature"] == 0.0 and first.max_tokens == 256 and first.tools == ()


def test_a_larger_model_chooses_and_required_is_kept() -> None:
    model = SchemaTools(Silent(tiny=False))
    assert "anyOf" in schema_of(model.rewrite(ask())[0])
    required, must = model.rewrite(ask(tool_choice="required"))
    assert must and "anyOf" not in schema_of(required)


def test_calls_and_results_become_text_and_outputs_are_cut() -> None:
    call = ToolCall(id="c", name="terminal", arguments={"command": "ls"}, raw='{"command": "ls"}')
    result = ToolResult(position=1, index=0, call_id="c", name="terminal", content=(Text("x" * 9_000),))
    sent, _ = SchemaTools(Silent()).rewrite(ask(Assistant(calls=(call,), thinking="look"), result))
    assert isinstance(sent.entries[1], Assistant) and sent.entries[1].calls == ()
    assert sent.entries[1].text == '{"thought":"look","name":"terminal","arguments":{"command":"ls"}}'
    assert isinstance(sent.entries[2], User)
    text = sent.entries[2].content[0]
    assert isinstance(text, Text) and 1_500 < len(text.text) < 1_600 and "9000" in text.text


def test_the_system_text_stays_below_its_bound_with_a_hundred_tools() -> None:
    tools = [ToolSpec(name=f"tool_{n}", description="word " * 80, parameters=TERMINAL.parameters) for n in range(100)]
    text = compact_system("s" * 9_000, tools, Bounds(), answer=True)
    assert len(text) <= 2_000 and "tool_0" in text and "JSON" in text


def test_the_system_text_is_one_for_all_turns_of_a_segment() -> None:
    model = SchemaTools(Silent())
    call = ToolCall(id="c", name="terminal", arguments={}, raw="{}")
    assert model.rewrite(ask())[0].system == model.rewrite(ask(Assistant(calls=(call,))))[0].system


def test_examples_are_shown_only_with_their_tool() -> None:
    example = Example(prompt="list", thought="ls lists", tool="terminal", arguments={"command": "ls"})
    model = SchemaTools(Silent(), examples=[example])
    assert [item["role"] for item in model.rewrite(ask())[0].prefill] == ["user", "assistant"]
    assert model.rewrite(ask(tools=(PARALLEL,)))[0].prefill == ()


def test_a_reply_becomes_reasoning_and_a_call() -> None:
    deltas = read_reply('{"thought": "why", "name": "terminal", "arguments": {"command": "ls"}}')
    assert deltas == [ThinkingDelta("why"), CallStarted(0, "", "terminal"), CallArguments(0, '{"command":"ls"}')]
    assert read_reply('{"thought": "t", "answer": "42"}') == [ThinkingDelta("t"), TextDelta("42")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain prose", [TextDelta("plain prose")]),
        ('{"thought": "t", "answer": "half \\n of', [ThinkingDelta("t"), TextDelta("half \n of")]),
        ('{"thought": "t', [ThinkingDelta("t")]),
        ("", []),
        ("[1]", [TextDelta("[1]")]),
    ],
)
def test_replies_that_are_no_complete_json(text: str, expected: list[Any]) -> None:
    assert read_reply(text) == expected


def test_half_a_call_is_never_a_whole_one() -> None:
    deltas = read_reply('{"thought": "t", "name": "terminal", "arguments": {"command": "rm -r')
    assert deltas[-1] == CallArguments(0, '{"command": "rm -r')


def test_what_the_schema_allows_is_what_is_read() -> None:
    sent, _ = SchemaTools(Silent()).rewrite(ask(tools=(TERMINAL, PARALLEL)))
    validator = jsonschema.Draft202012Validator(schema_of(sent))
    two = [{"goal": "a"}, {"goal": "b"}]
    assert validator.is_valid({"thought": "t", "name": "spawn_parallel", "arguments": {"tasks": two}})
    assert not validator.is_valid({"thought": "t", "name": "spawn_parallel", "arguments": {"tasks": two[:1]}})
    assert not validator.is_valid({"thought": "t", "answer": "first turn"})


@pytest.mark.anyio
async def test_over_an_endpoint_without_tools() -> None:
    steps = [
        reply('{"thought": "look", "name": "terminal", "arguments": {"command": "ls"}}', pieces=5),
        reply('{"thought": "seen", "answer": "two files"}'),
        reply("prose"),
    ]
    profile = ModelProfile(window=4_096, max_output=256, tiny=True, tool_calling="schema")
    async with served(steps, profile=profile) as (chat, server):
        model = SchemaTools(chat)
        first = await message_of(model, ask())
        result = ToolResult(position=1, index=0, call_id="c", name="terminal", content=(Text("a b"),))
        second = await message_of(model, ask(first, result))
        refused = await failure_of(model, ask())
    assert first.stop == "tool_calls" and first.thinking == "look"
    assert [(call.name, call.arguments) for call in first.calls] == [("terminal", {"command": "ls"})]
    assert (second.text, second.thinking, second.stop, second.usage.total) == ("two files", "seen", "stop", 15)
    assert refused.reason == "malformed_response" and refused.retryable
    sent = server.requests[1]
    assert [message["role"] for message in sent.messages] == ["system", "user", "assistant", "user"]
    assert "tools" not in sent.body and sent.body["response_format"]["type"] == "json_schema"
    assert (sent.body["max_tokens"], sent.body["temperature"]) == (256, 0.0)


@pytest.mark.anyio
async def test_a_restart_drops_the_half_reply(virtual_clock: VirtualClock) -> None:
    lost = broken(ModelError("x", reason="timeout", retryable=True), text='{"thought": "half')
    profile = ModelProfile(tiny=True, tool_calling="schema")
    model = SchemaTools(Retrying(ScriptedModel("m", [lost, reply('{"thought": "t", "answer": "a"}')], profile)))
    message = await message_of(model, ask(tool_choice="none"))
    assert (message.text, message.thinking) == ("a", "t")
