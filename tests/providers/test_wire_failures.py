"""What goes wrong at an endpoint has one class, whichever wire format it speaks."""

from __future__ import annotations

import re
from typing import Any

import anyio
import msgspec
import pytest

from hermes.core.errors import ModelError
from hermes.core.messages import Assistant, Text, ToolResult, User
from hermes.core.model import ModelRequest
from hermes.providers.anthropic import AnthropicMessages
from hermes.providers.http_model import HttpModel
from hermes.providers.openai_chat import OpenAIChat
from hermes.providers.openai_responses import OpenAIResponses
from hermes.testing import faults, server_anthropic, server_chat, server_responses
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Disconnect, Raw, Stall, Status, pieces_of, sse
from hermes.testing.scripted import call, reply
from hermes.testing.server import Request, Wire
from tests.providers.conformance import ask, deltas_of, failure_of, message_of
from tests.providers.endpoints import ADAPTERS, KEY, served

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("adapter", ADAPTERS)]

_FORMS: dict[type[HttpModel], Wire] = {
    OpenAIChat: server_chat,
    AnthropicMessages: server_anthropic,
    OpenAIResponses: server_responses,
}


@pytest.mark.parametrize(
    ("step", "reason", "retryable", "permanent"),
    [
        (faults.bad_key(), "auth", False, True),
        (faults.forbidden(), "auth", False, True),
        (Status(status=401, message="The API key has expired"), "auth_permanent", False, True),
        (Status(status=400, message="API key expired. Please renew the API key."), "auth_permanent", False, True),
        (Status(status=400, message="API key not valid. Please pass a valid API key."), "auth", False, True),
        (faults.no_credit(), "billing", False, True),
        (Status(status=400, message="Your credit balance is too low to access the API."), "billing", False, True),
        (faults.rate_limited(), "rate_limit", True, False),
        (faults.overloaded(529), "overloaded", True, False),
        (faults.overloaded(503), "overloaded", True, False),
        (faults.server_error(), "server_error", True, False),
        (faults.too_long(), "context_overflow", False, False),
        (Status(status=413, message="Request exceeds the maximum size"), "payload_too_large", False, False),
        (Status(status=400, message="messages: at least one is required"), "format_error", False, False),
        (faults.html(), "malformed_response", True, False),
        (faults.html(502), "server_error", True, False),
        (Raw(parts=(b"",)), "timeout", True, False),
        (Raw(parts=(b"{}",), content_type="application/json"), "malformed_response", True, False),
        (Raw(parts=(b"data: [1]\n\n",)), "malformed_response", True, False),
        (Raw(parts=(b"data: null\n\n",)), "malformed_response", True, False),
        (Disconnect(), "timeout", True, False),
        (Disconnect(reset=True), "timeout", True, False),
        (Disconnect(reply=reply("half a reply", pieces=4), events=4), "timeout", True, False),
        (Disconnect(reply=reply("half a reply", pieces=4), events=4, reset=True), "timeout", True, False),
    ],
)
async def test_failures_have_their_class(
    adapter: type[HttpModel], step: Any, reason: str, retryable: bool, permanent: bool
) -> None:
    async with served([step], adapter=adapter) as (model, server):
        error = await failure_of(model, ask())
    assert (error.reason, error.retryable, error.permanent) == (reason, retryable, permanent), str(error)
    assert "127.0.0.1" in str(error) and KEY not in str(error)
    assert server.count == 1


async def test_a_key_of_another_provider_is_recognised(adapter: type[HttpModel]) -> None:
    secret = "sk-or-0123456789abcdef"
    async with served([faults.bad_key()], adapter=adapter, endpoint={"api_key": secret}) as (model, _):
        error = await failure_of(model, ask())
    assert "has the form of one of OpenRouter; 127.0.0.1" in str(error) and secret not in str(error)


async def test_invalid_utf8_is_replaced_in_text_and_arguments(adapter: type[HttpModel]) -> None:
    made = reply("aXXb", calls=[call("terminal", command="echo YY")])
    body = b"".join(_FORMS[adapter].parts_of(made, "m", "reasoning"))
    broken = Raw(parts=(body.replace(b"XX", b"\xff\xfe").replace(b"YY", b"\xff"),))
    async with served([broken], adapter=adapter) as (model, _):
        message = await message_of(model, ask())
    assert message.text == "a\ufffd\ufffdb"
    assert message.calls[0].arguments == {"command": "echo \ufffd"} and not message.calls[0].invalid


@pytest.mark.parametrize("ids", [("same", "same"), ("", "")])
async def test_calls_with_repeated_or_missing_ids_keep_their_results_apart(
    adapter: type[HttpModel], ids: tuple[str, str]
) -> None:
    calls = [call("terminal", call_id=name, command=f"echo {number}") for number, name in enumerate(ids)]
    body = b"".join(_FORMS[adapter].parts_of(reply(calls=calls), "m", "reasoning"))
    if not ids[0]:
        body = re.sub(rb'"((?:call_)?id)":"[^"]*"', rb'"\1":""', body)
    async with served([Raw(parts=(body,)), reply("ok")], adapter=adapter) as (model, server):
        made = await message_of(model, ask())
        results = [
            ToolResult(
                position=1,
                index=n,
                call_id=one.id,
                name=one.name,
                content=(Text(f"result {one.arguments['command']}"),),
            )
            for n, one in enumerate(made.calls)
        ]
        request = ask()
        request = msgspec.structs.replace(request, entries=(*request.entries, made, *results))
        assert (await message_of(model, request)).text == "ok"
    assert [one.arguments["command"] for one in made.calls] == ["echo 0", "echo 1"]
    asked, answered = _ids(server.requests[-1].body)
    assert len(set(asked)) == 2 and "" not in asked and asked == answered


def _ids(body: Any) -> tuple[list[str], list[str]]:
    """The ids of calls and those of results, in order, whichever format a request has."""
    calls: list[str] = []
    results: list[str] = []

    def walk(value: Any) -> None:
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(item)
        if not isinstance(value, dict):
            return
        kind = value.get("type")
        if kind in ("function", "tool_use") and "id" in value:
            calls.append(value["id"])
        elif kind == "function_call":
            calls.append(value["call_id"])
        elif kind == "function_call_output":
            results.append(value["call_id"])
        elif "tool_call_id" in value or kind == "tool_result":
            results.append(value.get("tool_call_id") or value["tool_use_id"])

    walk(body)
    return calls, results


async def test_the_key_goes_along_and_no_other_header(adapter: type[HttpModel]) -> None:
    async with served([reply("x")], adapter=adapter, endpoint={"headers": {"X-Title": "t"}}) as (model, server):
        await message_of(model, ask())
    sent = server.requests[0]
    assert sent.key == KEY and sent.headers["x-title"] == "t"
    assert ("authorization" in sent.headers) != ("x-api-key" in sent.headers)


async def test_what_a_script_sees_is_alike(adapter: type[HttpModel]) -> None:
    """Users' scripts are written once."""
    request = ModelRequest(
        system="Be useful.",
        entries=(User(content=(Text("first"),)), Assistant(text="so"), User(content=(Text("then"),))),
        tools=ask().tools,
    )
    async with served([reply("x")], adapter=adapter) as (model, server):
        await message_of(model, request)
    sent = server.requests[0]
    assert (sent.system, sent.first_user, sent.last, sent.turn) == ("Be useful.", "first", "then", 1)
    assert sent.tools == ("terminal",) and sent.model == "test-model"


async def test_a_whole_answer_is_taken_too(adapter: type[HttpModel]) -> None:
    made = reply("hi", thinking="hm", calls=[call("terminal", call_id="c1", command="ls")])
    body = msgspec.json.encode(_FORMS[adapter].whole_of(made, "test-model", "reasoning"))
    steps = [made, Raw(parts=(body,), content_type="application/json")]
    async with served(steps, adapter=adapter) as (model, _):
        streamed = await message_of(model, ask())
        whole = await message_of(model, ask())
    assert (whole.text, whole.thinking, whole.calls, whole.stop, whole.usage.total) == (
        streamed.text,
        streamed.thinking,
        streamed.calls,
        streamed.stop,
        streamed.usage.total,
    )
    assert whole.provider_data == streamed.provider_data


@pytest.mark.fault("B127")
@pytest.mark.parametrize("sizes", [[1] * 900, [7] * 150, [150, 3, 40]])
async def test_chunks_may_be_cut_anywhere(adapter: type[HttpModel], sizes: list[int]) -> None:
    made = reply("für 🌍 alle", thinking="naïve 考え")
    data = b"".join(_FORMS[adapter].parts_of(made, "m", "reasoning"))
    async with served([Raw(parts=pieces_of(data, sizes))], adapter=adapter) as (model, _):
        message = await message_of(model, ask())
    assert (message.text, message.thinking) == ("für 🌍 alle", "naïve 考え")


async def test_silence_ends_and_closes_the_connection(adapter: type[HttpModel], virtual_clock: VirtualClock) -> None:
    async with served([Stall(reply=reply("half", pieces=2), events=3)], adapter=adapter) as (model, server):
        with anyio.move_on_after(5) as scope:  # simulated: it passes when all that comes has been read
            await deltas_of(model, ask())
        assert scope.cancelled_caught
        await server.requests[0].closed.wait()


async def test_another_spelling_is_tried_after_the_endpoint_refused_the_name(adapter: type[HttpModel]) -> None:
    script = lambda _request: reply("hi")  # noqa: E731
    names = ("other", "claude-sonnet-4-6")
    async with served(script, name="anthropic/claude-sonnet-4.6", models=names, strict=True, adapter=adapter) as (
        model,
        server,
    ):
        await message_of(model, ask())
    assert [request.model for request in server.requests] == ["anthropic/claude-sonnet-4.6", "claude-sonnet-4-6"]


async def test_an_undated_name_is_tried_where_only_dated_ones_are_listed(adapter: type[HttpModel]) -> None:
    def script(request: Request) -> Any:
        return reply("hi") if request.model == "claude-sonnet-4-5" else faults.unknown_model(request.model)

    async with served(
        script, name="anthropic/claude-sonnet-4.5", models=("claude-sonnet-4-5-20250929",), adapter=adapter
    ) as (model, server):
        await message_of(model, ask())
    assert server.requests[-1].model == "claude-sonnet-4-5"


@pytest.mark.fault("B131")
async def test_an_unknown_model_is_an_error_with_the_nearest_names(adapter: type[HttpModel]) -> None:
    async with served([], name="gpt-5-minii", models=("gpt-5", "gpt-5-mini"), strict=True, adapter=adapter) as (
        model,
        _,
    ):
        error = await failure_of(model, ask())
    assert error.reason == "model_not_found" and "Nearest names that it offers: gpt-5-mini, gpt-5" in str(error)


async def test_an_effort_that_is_none_is_refused_before_anything_is_sent(adapter: type[HttpModel]) -> None:
    async with served([], adapter=adapter) as (model, server):
        error = await failure_of(model, ask(reasoning_effort="hgih"))
    assert error.permanent and "'hgih'" in str(error) and "none, minimal, low" in str(error)
    assert server.count == 0


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported parameter: 'reasoning_effort' is not supported with this model.",
        "Unsupported value: 'reasoning_effort' does not support 'max'. Supported values are: 'low' and 'high'.",
        "reasoning is not enabled for this model",
    ],
)
async def test_an_effort_that_the_server_does_not_know_is_an_error_and_not_left_out(
    adapter: type[HttpModel], message: str
) -> None:
    async with served([Status(status=400, message=message)], adapter=adapter) as (model, server):
        error = await failure_of(model, ask(reasoning_effort="max"))
    assert "does not know the reasoning effort 'max' for test-model" in str(error) and "--reasoning" in str(error)
    assert error.reason == "format_error" and error.permanent and server.count == 1


async def test_models_can_be_listed_and_a_refusal_is_an_error(adapter: type[HttpModel]) -> None:
    async with served([], models=("b", "a"), adapter=adapter) as (model, _):
        assert await model.listed() == ("b", "a")
    async with served([], adapter=adapter, endpoint={"base_url": "http://127.0.0.1:9"}) as (model, _):
        assert await model.catalogue() == ()
        with pytest.raises(ModelError) as caught:
            await model.listed()
    assert caught.value.reason == "unreachable"


async def test_an_error_within_the_reply(adapter: type[HttpModel]) -> None:
    error = {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "slow down"}
    values: dict[type[HttpModel], Any] = {
        OpenAIChat: {"error": error},
        AnthropicMessages: {"type": "error", "error": error},
        OpenAIResponses: {"type": "response.failed", "response": {"status": "failed", "error": error}},
    }
    async with served([Raw(parts=(sse(values[adapter], done=False),))], adapter=adapter) as (model, _):
        failed = await failure_of(model, ask())
    assert failed.reason == "rate_limit" and "slow down" in str(failed)
