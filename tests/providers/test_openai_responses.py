"""The OpenAI Responses format against a real server on loopback: what it sends, and what it reads."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.core.messages import Assistant, Text, ToolResult, User
from hermes.core.model import ModelRequest, ThinkingDelta
from hermes.providers.openai_responses import OpenAIResponses
from hermes.providers.profiles import profile_of
from hermes.testing.faults import Raw, Status
from hermes.testing.scripted import call, reply
from hermes.testing.server import Request
from hermes.testing.server_responses import event, events_of, sealed
from tests.providers.conformance import TERMINAL, ask, deltas_of, failure_of, message_of
from tests.providers.endpoints import served

pytestmark = pytest.mark.anyio


def gpt(script: Any, **options: Any) -> Any:
    options.setdefault("name", "gpt-5")
    return served(script, adapter=OpenAIResponses, profile=profile_of(options["name"]), **options)


def stream(*events: dict[str, Any]) -> Raw:
    return Raw(parts=(b"".join(event(value) for value in events),))


async def test_what_is_sent() -> None:
    async with gpt([reply("x")]) as (model, server):
        await message_of(model, ask(max_tokens=99, reasoning_effort="max", tool_choice="required", extra={"seed": 7}))
    sent = server.requests[0]
    assert sent.path == "/v1/responses"
    assert sent.body["instructions"] == "Be useful."
    content = [{"type": "input_text", "text": "go"}]
    assert sent.body["input"] == [{"type": "message", "role": "user", "content": content}]
    tool = {"type": "function", "name": "terminal", "description": TERMINAL.description, "strict": False}
    assert sent.body["tools"] == [{**tool, "parameters": TERMINAL.parameters}]
    assert (sent.body["max_output_tokens"], sent.body["tool_choice"], sent.body["seed"]) == (99, "required", 7)
    assert sent.body["reasoning"] == {"effort": "xhigh", "summary": "auto"}
    assert (sent.body["store"], sent.body["include"]) == (False, ["reasoning.encrypted_content"])


async def test_a_model_that_does_not_think_is_not_asked_for_its_reasoning() -> None:
    async with gpt([reply("x")], name="gpt-4o") as (model, server):
        await message_of(model, ask())
    assert "reasoning" not in server.requests[0].body and "include" not in server.requests[0].body


async def test_encrypted_reasoning_goes_back_before_the_calls() -> None:
    steps = [reply("look", thinking="hm", calls=[call("terminal", call_id="t1", command="ls")]), reply("done")]
    async with gpt(steps) as (model, server):
        first = await message_of(model, ask())
        answer = ToolResult(position=1, index=0, call_id="t1", name="terminal", content=(Text("a.txt"),))
        entries = (User(content=(Text("go"),)), first, answer)
        await message_of(model, ModelRequest(system="s", entries=entries, tools=(TERMINAL,)))
    _, reasoning, message, made, output = server.requests[1].body["input"]
    assert reasoning == {
        "type": "reasoning",
        "id": "rs_0",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": sealed("hm"),
    }
    assert message["content"] == [{"type": "output_text", "text": "look"}]
    assert (made["call_id"], made["name"], made["arguments"]) == ("t1", "terminal", '{"command":"ls"}')
    assert output == {"type": "function_call_output", "call_id": "t1", "output": "a.txt"}


async def test_reasoning_that_nobody_can_decrypt_any_more_is_left_out() -> None:
    def script(request: Request) -> Any:
        if "encrypted_content" in str(request.body["input"]):
            return Status(
                status=400, message="The encrypted content could not be verified.", code="invalid_encrypted_content"
            )
        return reply("done")

    async with gpt([reply("a", thinking="hm")]) as (model, _):
        first = await message_of(model, ask())
    async with gpt(script) as (model, server):
        plan = first.provider_data["responses"]["plan"]
        moved = Assistant(text="a", provider_data={"responses": {"host": model.origin().host, "plan": plan}})
        entries = (User(content=(Text("go"),)), moved, User(content=(Text("on"),)))
        assert (await message_of(model, ModelRequest(system="", entries=entries))).text == "done"
    assert server.count == 2 and "include" in server.requests[1].body


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("Your organization must be verified to generate reasoning summaries.", "summary"),
        ("Encrypted content is not supported with this model.", "include"),
    ],
)
async def test_what_an_account_or_a_model_has_not_is_left_out(message: str, part: str) -> None:
    def script(request: Request) -> Any:
        return Status(status=400, message=message) if part in str(request.body) else reply("ok")

    async with gpt(script) as (model, server):
        for _ in range(2):
            assert (await message_of(model, ask(reasoning_effort="low"))).text == "ok"
    assert [part in str(request.body) for request in server.requests] == [True, False, False]
    assert server.requests[-1].body["reasoning"]["effort"] == "low"


async def test_sampling_is_sent_and_a_seed_that_the_format_has_not_is_refused() -> None:
    async with gpt([reply("ok")]) as (model, server):
        await message_of(model, ask(temperature=0.5, top_p=0.9))
        error = await failure_of(model, ask(seed=7))
    assert (server.requests[0].body["temperature"], server.requests[0].body["top_p"]) == (0.5, 0.9)
    assert server.count == 1 and error.permanent and "takes no seed" in str(error)


async def test_parts_of_a_summary_are_paragraphs() -> None:
    part = {"type": "response.reasoning_summary_part.added", "output_index": 0}
    text = {"type": "response.reasoning_summary_text.delta", "output_index": 0}
    end = {"type": "response.completed", "response": {"status": "completed"}}
    async with gpt([stream(part, {**text, "delta": "a"}, part, {**text, "delta": "b"}, end)]) as (model, _):
        deltas = await deltas_of(model, ask())
    assert "".join(delta.text for delta in deltas if isinstance(delta, ThinkingDelta)) == "a\n\nb"


async def test_items_that_come_only_whole_are_taken() -> None:
    *_, end = events_of(reply("hi", thinking="hm", calls=[call("terminal", call_id="t1", command="ls")]), "m")
    async with gpt([stream(end)]) as (model, _):
        message = await message_of(model, ask())
    assert (message.text, message.thinking, message.calls[0].arguments) == ("hi", "hm", {"command": "ls"})


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "oops"}}, "server_error"),
        ({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}}, "rate_limit"),
        ({"status": "failed", "error": {"code": "insufficient_quota", "message": "no money"}}, "billing"),
        ({"status": "failed", "error": {"code": "context_length_exceeded", "message": "long"}}, "context_overflow"),
        ({"status": "failed"}, "server_error"),
        ({"status": "cancelled"}, "server_error"),
        ({"status": "incomplete", "incomplete_details": {"reason": "odd"}}, "malformed_response"),
    ],
)
async def test_a_response_that_failed_is_an_error(response: dict[str, Any], reason: str) -> None:
    kind = f"response.{response['status']}"
    async with gpt(
        [stream({"type": "response.failed" if kind == "response.cancelled" else kind, "response": response})]
    ) as (model, _):
        error = await failure_of(model, ask())
    assert error.reason == reason, str(error)


async def test_an_error_event_is_an_error() -> None:
    async with gpt([stream({"type": "error", "code": "server_error", "message": "oops"})]) as (model, _):
        error = await failure_of(model, ask())
    assert error.reason == "server_error" and "oops" in str(error)


async def test_a_reply_stopped_by_the_filter_says_so() -> None:
    async with gpt([reply("half", finish="content_filter")]) as (model, _):
        message = await message_of(model, ask())
    assert (message.stop, message.finish) == ("content_filter", "content_filter")


async def test_a_refusal_is_the_answer() -> None:
    refusal = {"type": "response.refusal.delta", "output_index": 0, "delta": "I will not."}
    end = {"type": "response.completed", "response": {"status": "completed"}}
    async with gpt([stream(refusal, end)]) as (model, _):
        message = await message_of(model, ask())
    assert (message.text, message.stop) == ("I will not.", "stop")


@pytest.mark.fault("B104")
async def test_a_call_without_a_name_is_never_a_success() -> None:
    async with gpt([reply(calls=[call("")])]) as (model, _):
        assert (await failure_of(model, ask())).reason == "malformed_response"


async def test_a_schema_is_asked_for_in_its_own_words() -> None:
    extra = {"response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": {"type": "object"}}}}
    async with gpt([reply("{}")]) as (model, server):
        await message_of(model, ask(extra=extra))
    wanted = {"type": "json_schema", "strict": False, "name": "reply", "schema": {"type": "object"}}
    assert server.requests[0].body["text"] == {"format": wanted}
