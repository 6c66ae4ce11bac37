"""The endpoint adapter against a real server on loopback: what it sends, and everything that goes wrong."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from hermes.core.errors import ModelError
from hermes.core.messages import Assistant, Text, Usage, User
from hermes.core.model import ModelProfile, ModelRequest, TextDelta, ThinkingDelta
from hermes.providers.http import HttpSession, StreamLimits
from hermes.providers.openai_chat import Endpoint, OpenAIChat
from hermes.testing import faults
from hermes.testing.clock import VirtualClock
from hermes.testing.faults import Disconnect, Raw, Stall, Status, pieces_of, sse
from hermes.testing.scripted import reply
from hermes.testing.server import Request, events_of
from tests.providers.conformance import ask, deltas_of, failure_of, folded, message_of
from tests.providers.endpoints import KEY, served

pytestmark = pytest.mark.anyio


def text_chunk(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}, **more}]}


async def test_what_is_sent() -> None:
    async with served([reply("x")], endpoint={"headers": {"X-Title": "t"}}) as (model, server):
        await message_of(model, ask(max_tokens=99, temperature=0.5, reasoning_effort="low", extra={"seed": 7}))
    sent = server.requests[0]
    assert sent.key == KEY and sent.headers["x-title"] == "t"
    assert sent.body["model"] == "test-model" and sent.body["stream"] is True
    assert sent.body["stream_options"] == {"include_usage": True}
    assert (sent.body["max_tokens"], sent.body["temperature"], sent.body["seed"]) == (99, 0.5, 7)
    assert sent.body["reasoning_effort"] == "low"
    assert sent.tools == ("terminal",) and "tool_choice" not in sent.body
    assert [message["role"] for message in sent.messages] == ["system", "user"]


async def test_no_key_sends_no_authorization() -> None:
    async with served([reply("x")], endpoint={"api_key": ""}) as (model, server):
        await message_of(model, ask())
    assert "authorization" not in server.requests[0].headers


async def test_the_key_is_not_in_the_repr() -> None:
    endpoint = Endpoint(base_url="http://h/v1", api_key=KEY)
    assert KEY not in repr(endpoint) and KEY not in str(endpoint.__rich_repr__())


@pytest.mark.parametrize("sizes", [[1] * 400, [7] * 60, [150, 3, 40]])
async def test_chunks_may_be_cut_anywhere(sizes: list[int]) -> None:
    made = reply("für 🌍 alle", thinking="naïve 考え")
    data = sse(*events_of(made, "m"))
    async with served([Raw(parts=pieces_of(data, sizes))]) as (model, _):
        message = await message_of(model, ask())
    assert (message.text, message.thinking) == ("für 🌍 alle", "naïve 考え")


@pytest.mark.fault("B127")
async def test_invalid_utf8_is_replaced_and_lone_surrogates_are_not_sent() -> None:
    data = b'data: {"choices":[{"delta":{"content":"a\xff\xfeb"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    async with served([Raw(parts=(data,))]) as (model, server):
        request = ModelRequest(system="s", entries=(User(content=(Text("cut \ud83d emoji\u2028\x00"),)),))
        message = await message_of(model, request)
    assert message.text == "a\ufffd\ufffdb"
    assert server.requests[0].last == "cut \ufffd emoji\u2028\x00"


async def test_crlf_comments_missing_spaces_and_separators() -> None:
    data = (
        b": keep-alive\r\n\r\nid: 1\r\nevent: message\r\n"
        b'data:{"choices":[{"delta":{"content":"a"}}]}\r\n\r\n'
        b'data: {"choices":[{"delta":{"content":"b"}}]}\ndata: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n'
        b"data: [DONE]"
    )
    async with served([Raw(parts=(data,))]) as (model, _):
        assert (await message_of(model, ask())).text == "ab"


async def test_an_answer_that_is_not_streamed() -> None:
    body = (
        b'\n{"model":"real","choices":[{"message":{"content":"<think>why</think>hi","tool_calls":[{"id":"c","function":'
        b'{"name":"terminal","arguments":{"command":"ls"}}}]},"finish_reason":"tool_calls"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":4}}'
    )
    async with served([Raw(parts=(body,), content_type="application/json")]) as (model, _):
        message = await message_of(model, ask())
    assert (message.text, message.thinking, message.model) == ("hi", "why", "real")
    assert message.calls[0].arguments == {"command": "ls"} and message.usage.total == 7


async def test_cost_by_the_profile_where_the_endpoint_names_none() -> None:
    profile = ModelProfile(price_input=2.0, price_output=10.0, price_cached=0.5)
    usage = Usage(input=1_000_000, output=100_000, cached=400_000)
    async with served([reply("x", usage=usage)], profile=profile) as (model, _):
        assert (await message_of(model, ask())).usage.cost_usd == pytest.approx(1.2 + 0.2 + 1.0)


@pytest.mark.parametrize(
    ("step", "reason", "retryable", "permanent"),
    [
        (faults.rate_limited(), "rate_limit", True, False),
        (faults.overloaded(429), "overloaded", True, False),
        (faults.overloaded(529), "overloaded", True, False),
        (faults.server_error(500), "server_error", True, False),
        (faults.server_error(502), "server_error", True, False),
        (faults.html(502), "server_error", True, False),
        (faults.bad_key(), "auth", False, True),
        (faults.no_credit(), "billing", False, True),
        (faults.forbidden(), "auth", False, True),
        (faults.too_long(), "context_overflow", False, False),
        (Status(status=413, message="too big"), "payload_too_large", False, False),
        (Status(status=400, message="bad field"), "format_error", False, False),
        (Status(status=404, body=b"404 page not found", content_type="text/plain"), "unknown", True, False),
        (Status(status=302, headers={"Location": "http://other.invalid/"}), "format_error", False, True),
        (faults.html(200), "malformed_response", True, False),
        (faults.empty_choices(), "malformed_response", True, False),
        (Raw(parts=(b"data: {broken\n\n",)), "malformed_response", True, False),
        (Raw(parts=(b"",)), "timeout", True, False),
        (faults.error_in_stream("overloaded", 529), "overloaded", True, False),
        (faults.error_in_stream("Rate limit exceeded", "rate_limit_exceeded"), "rate_limit", True, False),
        (faults.error_in_stream("maximum context length is 8", 400), "context_overflow", False, False),
        (Disconnect(), "timeout", True, False),
        (Disconnect(reset=True), "timeout", True, False),
        (Disconnect(reply=reply("half a reply", pieces=4)), "timeout", True, False),
        (Disconnect(reply=reply("half a reply", pieces=4), reset=True), "timeout", True, False),
        (Raw(parts=(sse(text_chunk("half"), done=False),)), "timeout", True, False),
    ],
)
async def test_failures_have_their_class(step: Any, reason: str, retryable: bool, permanent: bool) -> None:
    async with served([step]) as (model, server):
        error = await failure_of(model, ask())
        assert (error.reason, error.retryable, error.permanent) == (reason, retryable, permanent), str(error)
        assert "127.0.0.1" in str(error) and KEY not in str(error)
        assert server.count == 1


@pytest.mark.fault("B104")
@pytest.mark.parametrize("word", ["malformed_function_call", "MALFORMED_FUNCTION_CALL", "error"])
async def test_a_reply_that_its_provider_calls_broken_is_never_a_success(word: str) -> None:
    async with served([faults.malformed_finish(word)]) as (model, _):
        error = await failure_of(model, ask())
    assert error.reason == "malformed_response" and word in str(error)


@pytest.mark.fault("B104")
async def test_the_word_of_the_provider_behind_a_gateway_counts_too() -> None:
    chunk = {
        "choices": [
            {"delta": {"content": ""}, "finish_reason": "stop", "native_finish_reason": "MALFORMED_FUNCTION_CALL"}
        ]
    }
    async with served([Raw(parts=(sse(chunk),))]) as (model, _):
        assert (await failure_of(model, ask())).reason == "malformed_response"


async def test_an_unknown_finish_is_kept() -> None:
    async with served([reply("x", finish="eos_token_id_2")]) as (model, _):
        message = await message_of(model, ask())
    assert (message.stop, message.finish) == ("stop", "eos_token_id_2")


async def test_arguments_cut_by_length_are_no_call_that_can_run() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "terminal", "arguments": '{"command": "rm -rf /tm'}}
    chunks = [{"choices": [{"delta": {"tool_calls": [call]}}]}, {"choices": [{"delta": {}, "finish_reason": "length"}]}]
    async with served([Raw(parts=(sse(*chunks),))]) as (model, _):
        message = await message_of(model, ask())
    assert message.calls[0].invalid and message.calls[0].arguments == {} and message.finish == "length"


async def test_a_finish_without_end_mark_is_enough() -> None:
    async with served([Raw(parts=(sse(text_chunk("a", finish_reason="stop"), done=False),))]) as (model, _):
        assert (await message_of(model, ask())).text == "a"


async def test_a_server_that_never_ends_the_body_costs_five_seconds(virtual_clock: VirtualClock) -> None:
    parts = (sse(text_chunk("a", finish_reason="stop"), done=False), 3600.0)
    async with served([Raw(parts=parts)]) as (model, _):
        before = virtual_clock.elapsed
        assert (await message_of(model, ask())).text == "a"
        assert virtual_clock.elapsed - before == pytest.approx(5.0, abs=0.5)


async def test_a_body_that_stays_open_after_the_end_mark_costs_one_second(virtual_clock: VirtualClock) -> None:
    async with served([Raw(parts=(sse(text_chunk("a", finish_reason="stop")), 3600.0))]) as (model, _):
        before = virtual_clock.elapsed
        assert (await message_of(model, ask())).text == "a"
        assert virtual_clock.elapsed - before == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize(
    ("step", "seconds"),
    [(Stall(), 30.0), (Raw(parts=(3600.0,)), 30.0), (Stall(reply=reply("half a", pieces=3)), 10.0)],
)
async def test_silence_ends(virtual_clock: VirtualClock, step: Any, seconds: float) -> None:
    async with served([step], limits=StreamLimits(first_byte=30.0, gap=10.0)) as (model, server):
        before = virtual_clock.elapsed
        error = await failure_of(model, ask())
        assert error.reason == "timeout" and error.retryable
        assert virtual_clock.elapsed - before == pytest.approx(seconds, abs=1.0)
        with anyio.fail_after(5):
            if isinstance(step, Stall):
                await server.requests[0].closed.wait()


async def test_cancelling_closes_the_connection(virtual_clock: VirtualClock) -> None:
    async with served([Stall(reply=reply("half", pieces=2)), Stall()]) as (model, server):
        for number in range(2):
            with anyio.move_on_after(5) as scope:  # simulated: it passes when all that comes has been read
                await deltas_of(model, ask())
            assert scope.cancelled_caught
            await server.requests[number].closed.wait()


async def test_one_connection_is_used_again() -> None:
    async with served([reply(f"{n}") for n in range(5)]) as (model, server):
        for n in range(5):
            assert (await message_of(model, ask())).text == f"{n}"
    assert len(server.connections) == 1


async def test_a_connection_whose_body_ends_a_moment_after_the_end_mark_is_used_again(
    virtual_clock: VirtualClock,
) -> None:
    late = Raw(parts=(sse(text_chunk("a", finish_reason="stop")), 0.5))
    async with served([late, late, reply("b")]) as (model, server):
        for text in "aab":
            assert (await message_of(model, ask())).text == text
    assert len(server.connections) == 1


async def test_a_large_body_arrives_whole() -> None:
    async with served([reply("x")]) as (model, server):
        await message_of(model, ask("ü" * 700_000))
    assert len(server.requests[0].last) == 700_000


@pytest.mark.parametrize("watched", [True, False])
async def test_a_stream_that_nobody_watches_is_read_in_pauses(virtual_clock: VirtualClock, watched: bool) -> None:
    made = reply("x" * 100, pieces=100, gap=0.02)
    async with served([made]) as (model, _):
        seen = 0
        async with model.stream(ask(watched=watched)) as stream:
            times = set()
            async for delta in stream:
                seen += isinstance(delta, TextDelta)
                times.add(anyio.current_time())
    assert seen == 100
    assert (len(times) > 90) if watched else (len(times) < 40)


async def test_a_short_reply_is_never_held_back(virtual_clock: VirtualClock) -> None:
    async with served([reply("x")]) as (model, _):
        before = virtual_clock.elapsed
        await message_of(model, ask(watched=False))
        assert virtual_clock.elapsed - before < 0.05


async def test_nobody_listens() -> None:
    session = HttpSession()
    model = OpenAIChat("m", Endpoint(base_url="http://127.0.0.1:9/v1", api_key=KEY), ModelProfile(), session)
    error = await failure_of(model, ask())
    await session.close()
    assert (error.reason, error.retryable, error.permanent) == ("unreachable", True, False)
    assert "127.0.0.1:9" in str(error)


async def test_no_such_host() -> None:
    session = HttpSession()
    model = OpenAIChat("m", Endpoint(base_url="http://nowhere.invalid/v1"), ModelProfile(), session)
    error = await failure_of(model, ask())
    await session.close()
    assert (error.reason, error.retryable, error.permanent) == ("unreachable", False, True)
    assert "nowhere.invalid" in str(error)


@pytest.mark.parametrize("address", ["localhost:8000", "", "http://", "ftp://h/v1"])
async def test_an_address_that_is_none(address: str) -> None:
    session = HttpSession()
    model = OpenAIChat("m", Endpoint(base_url=address), ModelProfile(), session)
    error = await failure_of(model, ask())
    await session.close()
    assert error.reason == "unreachable" and error.permanent


async def test_a_key_with_a_line_break_is_an_error_and_not_a_crash() -> None:
    async with served([reply("x")], endpoint={"api_key": "sk-one\nsk-two"}) as (model, server):
        error = await failure_of(model, ask())
    assert error.reason == "auth" and "sk-one" not in str(error) and server.count == 0


async def test_a_key_repeated_by_the_provider_is_cut_out() -> None:
    async with served([faults.bad_key(f"Incorrect key {KEY} given")]) as (model, _):
        error = await failure_of(model, ask())
    assert KEY not in str(error) and "[key]" in str(error)


async def test_retry_after_is_read() -> None:
    async with served([faults.rate_limited("17")]) as (model, _):
        assert (await failure_of(model, ask())).retry_after == 17.0


@pytest.mark.parametrize(
    ("written", "offered"),
    [
        ("anthropic/claude-sonnet-4-6", "claude-sonnet-4-6"),
        ("claude-sonnet-4.6", "claude-sonnet-4-6"),
        ("claude-sonnet-4-6", "anthropic/claude-sonnet-4.6"),
    ],
)
async def test_another_spelling_is_tried_after_the_endpoint_refused_the_name(written: str, offered: str) -> None:
    script = lambda _request: reply("hi")  # noqa: E731
    async with served(script, name=written, models=("other", offered), strict=True) as (model, server):
        message = await message_of(model, ask())
        await message_of(model, ask())
    assert [request.model for request in server.requests] == [written, offered, offered]
    assert message.model == offered and model.name == offered


async def test_a_name_that_the_endpoint_takes_is_sent_as_written() -> None:
    async with served([reply("x")], name="claude-sonnet-4.6", models=("claude-sonnet-4-6",)) as (model, server):
        await message_of(model, ask())
    assert [request.model for request in server.requests] == ["claude-sonnet-4.6"]


@pytest.mark.fault("B131")
async def test_an_unknown_model_is_an_error_with_the_three_nearest_names() -> None:
    models = ("gpt-5", "gpt-5-mini", "claude-sonnet-4.6", "llama-3.3-70b", "gpt-4o")
    async with served([], name="gpt-5-minii", models=models, strict=True) as (model, server):
        error = await failure_of(model, ask())
    assert error.reason == "model_not_found" and error.permanent and server.count == 1
    assert "gpt-5-minii" in str(error) and "Nearest names that it offers: gpt-5-mini, gpt-5, gpt-4o." in str(error)


async def test_many_tasks_find_the_other_spelling_together() -> None:
    script = lambda _request: reply("hi")  # noqa: E731
    async with served(script, name="m-4-6", models=("v/m-4.6",), strict=True) as (model, server):
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(message_of, model, ask())
    assert all(request.model in ("m-4-6", "v/m-4.6") for request in server.requests)
    assert sum(request.model == "v/m-4.6" for request in server.requests) == 10


@pytest.mark.parametrize(
    ("message", "gone", "there"),
    [
        ("Unknown field: stream_options", "stream_options", None),
        (
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "max_tokens",
            "max_completion_tokens",
        ),
    ],
)
async def test_a_parameter_that_the_endpoint_does_not_know_is_left_out(
    message: str, gone: str, there: str | None
) -> None:
    def script(request: Request) -> Any:
        return Status(status=400, message=message) if gone in request.body else reply("ok")

    async with served(script) as (model, server):
        for _ in range(2):
            assert (await message_of(model, ask(max_tokens=9))).text == "ok"
    assert [gone in request.body for request in server.requests] == [True, False, False]
    assert there is None or server.requests[-1].body[there] == 9


async def test_a_parameter_that_stays_refused_is_an_error() -> None:
    script = lambda _request: Status(status=400, message="Unsupported parameter: max_tokens")  # noqa: E731
    async with served(script) as (model, server):
        error = await failure_of(model, ask(max_tokens=5))
    assert error.reason == "format_error" and server.count == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("temperature", "Unsupported value: 'temperature' does not support 0.5 with this model."),
        ("top_p", "Unsupported parameter: 'top_p' is not supported with this model."),
        ("seed", "seed: Extra inputs are not permitted"),
    ],
)
async def test_sampling_that_was_asked_for_is_sent_or_refused_by_name(name: str, said: str) -> None:
    script = lambda _request: Status(status=400, message=said)  # noqa: E731
    async with served([reply("ok")]) as (model, server):
        await message_of(model, ask(temperature=0.5, top_p=0.9, seed=7))
    assert [server.requests[0].body[key] for key in ("temperature", "top_p", "seed")] == [0.5, 0.9, 7]
    async with served(script) as (model, server):
        error = await failure_of(model, ask(temperature=0.5, top_p=0.9, seed=7))
    assert server.count == 1, "it is not asked again without it"
    assert error.reason == "format_error" and error.permanent and f"takes no {name}" in str(error)
    assert said.lower() in str(error) and f"Leave {name} out" in str(error)


async def test_reasoning_is_sent_back_only_where_asked() -> None:
    request = ModelRequest(
        system="",
        entries=(
            User(content=(Text("a"),)),
            Assistant(text="b", thinking="because"),
            User(content=(Text("c"),)),
        ),
    )
    for echo in ("", "reasoning_content"):
        async with served([reply("x")], endpoint={"reasoning_echo": echo}) as (model, server):
            await message_of(model, request)
        assert server.requests[0].messages[1].get("reasoning_content") == (("because") if echo else None)


async def test_reasoning_details_are_kept_and_joined() -> None:
    def details(**item: Any) -> dict[str, Any]:
        return {"choices": [{"delta": {"reasoning_details": [{"type": "reasoning.text", "index": 0, **item}]}}]}

    chunks = [
        details(text="be"),
        details(text="cause"),
        details(signature="sig"),
        text_chunk("x", finish_reason="stop"),
    ]
    async with served([Raw(parts=(sse(*chunks),))]) as (model, _):
        deltas = await deltas_of(model, ask())
    message = folded(deltas)
    assert message.thinking == "because"
    kept = message.provider_data["reasoning_details"]
    assert kept == [{"type": "reasoning.text", "index": 0, "text": "because", "signature": "sig"}]


async def test_the_same_reasoning_in_two_fields_counts_once() -> None:
    chunk = {"choices": [{"delta": {"reasoning": "why", "reasoning_content": "why"}, "finish_reason": "stop"}]}
    async with served([Raw(parts=(sse(chunk),))]) as (model, _):
        deltas = await deltas_of(model, ask())
    assert [delta for delta in deltas if isinstance(delta, ThinkingDelta)] == [ThinkingDelta("why")]


@pytest.mark.fault("B139")
async def test_a_redirect_is_not_followed_with_the_key() -> None:
    async with served([reply("x")]) as (_, other):
        step = Status(status=307, headers={"Location": f"{other.base_url}/chat/completions"})
        async with served([step]) as (model, _):
            error = await failure_of(model, ask())
        assert other.count == 0 and error.permanent and "Redirects are not followed" in str(error)


async def test_a_connection_that_breaks_under_a_large_request_may_mean_that_it_was_too_large() -> None:
    async with served([Disconnect()], profile=ModelProfile(window=1_000)) as (model, _):
        error = await failure_of(model, ask("word " * 2_000))
    assert error.reason == "context_overflow" and error.retryable


async def test_only_model_errors_come_out() -> None:
    """Random bytes in place of a reply."""
    bodies = [
        b"data: [1]\n\n",
        b"data: null\n\n",
        b"\x00\xff\n\n",
        b'data: {"choices":[1]}\n\n',
        b'{"choices":"x"}',
        b"[]",
    ]
    bodies += [b'data: {"choices":[{"delta":{"tool_calls":[{}]},"finish_reason":"stop"}]}\n\n', b'{"error":null}', b"{"]
    for body in bodies:
        async with served([Raw(parts=(body,))]) as (model, _):
            with pytest.raises(ModelError):
                await deltas_of(model, ask())
