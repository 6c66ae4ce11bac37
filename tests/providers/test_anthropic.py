"""The Anthropic Messages format against a real server on loopback: what it sends, and what it reads."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.core.messages import Assistant, Entry, Text, ToolResult, User
from hermes.core.model import ModelProfile, ModelRequest
from hermes.providers.anthropic import AnthropicMessages
from hermes.providers.endpoint import Endpoint
from hermes.providers.http import HttpSession
from hermes.providers.profiles import profile_of
from hermes.testing import faults
from hermes.testing.faults import Raw, Status
from hermes.testing.scripted import Usage, call, reply
from hermes.testing.server import Request
from hermes.testing.server_anthropic import event, events_of, signed
from tests.providers.conformance import TERMINAL, ask, failure_of, message_of
from tests.providers.endpoints import KEY, served

pytestmark = pytest.mark.anyio

MARK = {"type": "ephemeral"}


def claude(script: Any, **options: Any) -> Any:
    options.setdefault("name", "claude-sonnet-4-5")
    return served(script, adapter=AnthropicMessages, profile=profile_of(options["name"]), **options)


def conversation(*entries: Entry, **more: Any) -> ModelRequest:
    return ModelRequest(system="Be useful.", entries=entries, tools=(TERMINAL,), **more)


def said(text: str) -> User:
    return User(content=(Text(text),))


async def test_what_is_sent() -> None:
    async with claude([reply("x")]) as (model, server):
        await message_of(model, ask(max_tokens=99, temperature=0.5, extra={"metadata": {"user_id": "u"}}))
    sent = server.requests[0]
    assert sent.path == "/v1/messages"
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert sent.body["system"] == [{"type": "text", "text": "Be useful.", "cache_control": MARK}]
    tool = {"name": "terminal", "description": TERMINAL.description, "input_schema": TERMINAL.parameters}
    assert sent.body["tools"] == [{**tool, "cache_control": MARK}]
    assert sent.body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": MARK}]}
    ]
    assert (sent.body["max_tokens"], sent.body["temperature"]) == (99, 0.5)
    assert sent.body["metadata"] == {"user_id": "u"} and sent.body["stream"] is True
    assert "tool_choice" not in sent.body and "thinking" not in sent.body


async def test_the_length_of_a_reply_is_always_said() -> None:
    async with claude([reply("x")]) as (model, server):
        await message_of(model, ask())
    assert server.requests[0].body["max_tokens"] == 64_000


async def test_at_most_four_marks_and_the_last_two_turns_have_them() -> None:
    history = [said("a"), Assistant(text="b"), said("c"), Assistant(text="d"), said("e")]
    async with claude([reply("x")]) as (model, server):
        await message_of(model, conversation(*history))
    body = server.requests[0].body
    marked = [[("cache_control" in block) for block in message["content"]] for message in body["messages"]]
    assert marked == [[False], [False], [True], [False], [True]]
    assert str(body).count("cache_control") == 4


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        ("required", True, {"type": "any"}),
        ("none", True, {"type": "none"}),
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
    ],
)
async def test_the_choice_of_tools(choice: str, parallel: bool, sent: dict[str, Any]) -> None:
    profile = ModelProfile(parallel_calls=parallel)
    async with served([reply("x")], adapter=AnthropicMessages, profile=profile) as (model, server):
        await message_of(model, ask(tool_choice=choice))
    assert server.requests[0].body["tool_choice"] == sent


@pytest.mark.parametrize(
    ("effort", "max_tokens", "thinking"),
    [
        ("none", None, {"type": "disabled"}),
        ("minimal", None, {"type": "enabled", "budget_tokens": 1_024}),
        ("high", None, {"type": "enabled", "budget_tokens": 16_384}),
        ("ultra", None, {"type": "enabled", "budget_tokens": 48_000}),
        ("high", 4_000, {"type": "enabled", "budget_tokens": 3_000}),
        ("high", 1_000, None),
    ],
)
async def test_thinking_has_tokens_within_the_reply(effort: str, max_tokens: int | None, thinking: Any) -> None:
    async with claude([reply("x")]) as (model, server):
        await message_of(model, ask(reasoning_effort=effort, max_tokens=max_tokens))
    assert server.requests[0].body.get("thinking") == thinking


async def test_sampling_that_cannot_be_had_is_refused_by_name() -> None:
    async with claude([reply("x"), reply("x")]) as (model, server):
        await message_of(model, ask(temperature=0.5, top_p=0.9, reasoning_effort="none"))
        await message_of(model, ask(temperature=1, reasoning_effort="high"))
        thinking = await failure_of(model, ask(temperature=0.5, reasoning_effort="high"))
        seeded = await failure_of(model, ask(seed=7))
    assert (server.requests[0].body["temperature"], server.requests[0].body["top_p"]) == (0.5, 0.9)
    assert server.count == 2 and "takes no temperature" in str(thinking) and "takes no seed" in str(seeded)


@pytest.mark.parametrize(
    ("name", "effort", "level"),
    [
        ("claude-opus-4-6", "minimal", "low"),
        ("claude-opus-4-6", "xhigh", "high"),
        ("claude-opus-4.7", "xhigh", "xhigh"),
        ("claude-sonnet-5", "ultra", "max"),
    ],
)
async def test_later_models_decide_themselves_how_long_they_think(name: str, effort: str, level: str) -> None:
    async with claude([reply("x")], name=name) as (model, server):
        await message_of(model, ask(reasoning_effort=effort))
    body = server.requests[0].body
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": level}


async def test_the_other_way_of_thinking_is_taken_where_the_server_names_it() -> None:
    def script(request: Request) -> Any:
        if request.body["thinking"]["type"] == "enabled":
            message = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".'
            return Status(status=400, message=message)
        return reply("x")

    async with claude(script, name="some-future-model") as (model, server):
        for _ in range(2):
            assert (await message_of(model, ask(reasoning_effort="high"))).text == "x"
    assert [request.body["thinking"]["type"] for request in server.requests] == ["enabled", "adaptive", "adaptive"]


async def test_thinking_goes_back_with_its_signature_before_the_calls() -> None:
    steps = [reply("look", thinking="hm", calls=[call("terminal", call_id="t1", command="ls")]), reply("done")]
    async with claude(steps) as (model, server):
        first = await message_of(model, ask(reasoning_effort="low"))
        answer = ToolResult(position=1, index=0, call_id="t1", name="terminal", content=(Text("a.txt"),))
        await message_of(model, conversation(said("go"), first, answer, reasoning_effort="low"))
    _, assistant, results = server.requests[1].body["messages"]
    assert assistant["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": signed("hm")},
        {"type": "text", "text": "look"},
        {"type": "tool_use", "id": "t1", "name": "terminal", "input": {"command": "ls"}},
    ]
    assert results["content"][0]["tool_use_id"] == "t1"
    assert server.requests[1].body["thinking"]["type"] == "enabled"


async def test_calls_that_were_made_without_thinking_are_answered_without() -> None:
    """The calls may come from another model, or from a time when thinking was off."""
    async with claude([reply("done")]) as (model, server):
        made = Assistant(calls=(await _call(),))
        answer = ToolResult(position=1, index=0, call_id="t1", name="terminal", content=(Text("a.txt"),))
        await message_of(model, conversation(said("go"), made, answer, reasoning_effort="low"))
    assert "thinking" not in server.requests[0].body


async def _call() -> Any:
    async with claude([reply(calls=[call("terminal", call_id="t1", command="ls")])]) as (model, _):
        return (await message_of(model, ask())).calls[0]


async def test_thinking_that_nobody_can_read_any_more_is_left_out() -> None:
    def script(request: Request) -> Any:
        if "signature" in str(request.body["messages"]):
            return Status(status=400, message="messages.1.content.0: Invalid `signature` in `thinking` block")
        return reply("done")

    async with claude([reply("a", thinking="hm")]) as (model, _):
        first = await message_of(model, ask())
    async with claude(script) as (model, server):
        host = model.origin().host
        plan = first.provider_data["anthropic"]["plan"]
        moved = Assistant(text="a", provider_data={"anthropic": {"host": host, "plan": plan}})
        assert (await message_of(model, conversation(said("go"), moved, said("on")))).text == "done"
    assert server.count == 2


async def test_redacted_thinking_is_kept_and_unsigned_thinking_is_not() -> None:
    blocks = [{"type": "redacted_thinking", "data": "xyz"}, {"type": "thinking", "thinking": "cut"}]
    head, *_ = events_of(reply("x"), "m")
    events = [head]
    for index, block in enumerate(blocks):
        events += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    events += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    async with claude([Raw(parts=(b"".join(event(value) for value in events),))]) as (model, _):
        message = await message_of(model, ask())
    assert message.thinking == "cut"
    assert message.provider_data["anthropic"]["plan"] == [{"reasoning": blocks[0]}]


async def test_tokens_of_the_cache_count_as_prompt_and_have_their_price() -> None:
    usage = Usage(input=1_000_000, output=0, cached=400_000, cache_write=200_000)
    async with claude([reply("x", usage=usage)]) as (model, _):
        found = (await message_of(model, ask())).usage
    assert (found.input, found.cached, found.cache_write) == (1_000_000, 400_000, 200_000)
    assert found.cost_usd == pytest.approx(0.4 * 3.0 + 0.4 * 0.3 + 0.2 * 3.75)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
    ],
)
async def test_stop_reasons(finish: str, stop: str) -> None:
    async with claude([reply("x", finish=finish)]) as (model, _):
        message = await message_of(model, ask())
    assert (message.stop, message.finish) == (stop, finish)


async def test_an_overloaded_server_may_say_so_within_the_reply() -> None:
    begun, *_ = events_of(reply("x"), "m")
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with claude([Raw(parts=(event(begun) + event(error),))]) as (model, _):
        failed = await failure_of(model, ask())
    assert (failed.reason, failed.retryable) == ("overloaded", True)


async def test_the_time_of_the_limit_that_is_used_up_is_waited_for() -> None:
    headers = {
        "anthropic-ratelimit-requests-remaining": "10",
        "anthropic-ratelimit-requests-reset": "2023-11-14T23:59:59Z",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:14:00Z",  # 40 s after the test's clock
    }
    async with claude([Status(status=429, message="slow down", headers=headers), faults.rate_limited("17")]) as (
        model,
        _,
    ):
        assert (await failure_of(model, ask())).retry_after == pytest.approx(40.0)
        assert (await failure_of(model, ask())).retry_after == 17.0


async def test_arguments_of_a_call_that_never_began_are_an_error() -> None:
    begun, *_ = events_of(reply("x"), "m")
    stray = {"type": "content_block_delta", "index": 4, "delta": {"type": "input_json_delta", "partial_json": "{"}}
    async with claude([Raw(parts=(event(begun) + event(stray),))]) as (model, _):
        assert (await failure_of(model, ask())).reason == "malformed_response"


@pytest.mark.fault("B104")
async def test_a_call_without_a_name_is_never_a_success() -> None:
    async with claude([reply(calls=[call("")])]) as (model, _):
        assert (await failure_of(model, ask())).reason == "malformed_response"


async def test_marks_are_left_out_where_the_server_does_not_know_them() -> None:
    def script(request: Request) -> Any:
        if "cache_control" in str(request.body):
            return Status(status=400, message="system.0.cache_control: Extra inputs are not permitted")
        return reply("x")

    async with claude(script) as (model, server):
        for _ in range(2):
            assert (await message_of(model, ask())).text == "x"
    assert server.count == 3


async def test_a_schema_is_asked_for_in_its_own_words() -> None:
    schema = {"type": "object"}
    extra = {"response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}}
    async with claude([reply("{}")]) as (model, server):
        await message_of(model, ask(extra=extra))
    body = server.requests[0].body
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert "response_format" not in body


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        ("https://api.example.com/anthropic", "https://api.example.com/anthropic/v1/messages"),
        ("https://api.example.com/v1/messages", "https://api.example.com/v1/messages"),
    ],
)
async def test_addresses(base: str, url: str) -> None:
    model = AnthropicMessages("m", Endpoint(base_url=base), ModelProfile(), HttpSession())
    assert model.reply_url() == url
    assert model.models_url() == url.replace("/messages", "/models?limit=1000")
