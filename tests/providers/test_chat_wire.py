"""The odd ways in which endpoints send reasoning, calls, finishes and usage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.messages import Usage
from hermes.core.model import CallArguments, CallStarted, Stop, TextDelta, ThinkingDelta
from hermes.providers.chat_wire import (
    CallFolder,
    ReasoningDetails,
    ThinkSplitter,
    WireCall,
    WireFunction,
    stop_of,
    usage_of,
)
from tests.providers.conformance import folded


def split(text: str, cuts: list[int]) -> tuple[str, str]:
    """Return (reasoning, text) of content that comes in pieces."""
    splitter, at, deltas = ThinkSplitter(), 0, []
    for cut in [*sorted(cuts), len(text)]:
        deltas += splitter.feed(text[at : max(at, cut)])
        at = max(at, cut)
    deltas += splitter.close()
    thinking = "".join(delta.text for delta in deltas if isinstance(delta, ThinkingDelta))
    return thinking, "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=12))
def test_think_tags_are_found_wherever_the_chunks_cut(cuts: list[int]) -> None:
    assert split("\n<think>\na < b </thin\n</think>\n\nThe answer", cuts) == ("\na < b </thin\n", "The answer")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="<>/thinkg a\n", max_size=20), st.lists(st.integers(0, 20), max_size=6))
def test_text_is_never_lost(text: str, cuts: list[int]) -> None:
    if not text.lstrip().startswith(("<think>", "<thinking>")):
        assert split(text, cuts) == ("", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>cut off", ("cut off", "")),
        ("<thinking>a</thinking>b", ("a", "b")),
        ("<think></think>b", ("", "b")),
        ("say <think>x</think>", ("", "say <think>x</think>")),
        ("<thin", ("", "<thin")),
    ],
)
def test_think_tags_count_only_at_the_start(text: str, expected: tuple[str, str]) -> None:
    assert split(text, []) == expected
    assert split(text, list(range(len(text)))) == expected


def piece(name: str | None = None, arguments: Any = None, **more: Any) -> WireCall:
    return WireCall(function=WireFunction(name=name, arguments=arguments), **more)


def calls_of(*pieces: WireCall) -> list[tuple[str, str, str]]:
    """Return (id, name, argument text) of the calls that the pieces make."""
    folder = CallFolder()
    deltas = [delta for item in pieces for delta in folder.feed(item)]
    assert all(isinstance(delta, (CallStarted, CallArguments)) for delta in deltas)
    return [(call.id, call.name, call.raw) for call in folded([*deltas, Stop("tool_calls")]).calls]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param(
            [
                piece("a", "", index=0, id="x"),
                piece("b", "", index=1, id="y"),
                piece(None, '{"n":', index=1),
                piece(None, "{}", index=0),
                piece(None, "1}", index=1),
            ],
            [("x", "a", "{}"), ("y", "b", '{"n":1}')],
            id="interleaved by index",
        ),
        pytest.param(
            [piece("a", '{"n":', id="x"), piece(None, "1}"), piece("b", "{}", id="y")],
            [("x", "a", '{"n":1}'), ("y", "b", "{}")],
            id="no index",
        ),
        pytest.param(
            [piece("a", "{}"), piece("a", '{"n":2}')],
            [("call_0", "a", "{}"), ("call_1", "a", '{"n":2}')],
            id="neither index nor id, whole calls",
        ),
        pytest.param(
            [piece("a", "{}", index=0, id="x"), piece("b", "{}", index=0, id="y")],
            [("x", "a", "{}"), ("y", "b", "{}")],
            id="one index for all",
        ),
        pytest.param(
            [piece("a", '{"n":1}', id="same"), piece("a", '{"n":2}', id="same")],
            [("same", "a", '{"n":1}'), ("same", "a", '{"n":2}')],
            id="one id for all",
        ),
        pytest.param(
            [piece("a", '{"n"', index=0, id="x"), piece("a", ":1}", index=0, id="x")],
            [("x", "a", '{"n":1}')],
            id="name repeated with each piece",
        ),
        pytest.param([piece("a", {"n": 1}, index=0, id="x")], [("x", "a", '{"n":1}')], id="arguments as an object"),
        pytest.param(
            [piece("ter", None, index=0, id="x"), piece("minal", "{}", index=0)],
            [("x", "terminal", "{}")],
            id="name in pieces",
        ),
        pytest.param(
            [piece("a", '{"n":', id="x"), piece("b", "{}", id="y"), piece(None, "1}", id="x")],
            [("x", "a", '{"n":1}'), ("y", "b", "{}")],
            id="continued by id",
        ),
        pytest.param([piece("a", None, index="0", id=7)], [("7", "a", "")], id="number as id, text as index"),
    ],
)
def test_parallel_calls_however_they_are_numbered(pieces: list[WireCall], expected: list[tuple[str, str, str]]) -> None:
    assert calls_of(*pieces) == expected


@pytest.mark.parametrize(
    ("finish", "native", "reason"),
    [
        ("stop", "", "stop"),
        ("end_turn", "", "stop"),
        ("", "", "stop"),
        ("tool_calls", "", "tool_calls"),
        ("function_call", "", "tool_calls"),
        ("MAX_TOKENS", "", "length"),
        ("SAFETY", "", "content_filter"),
        ("something_new", "", "stop"),
        ("malformed_function_call", "", None),
        ("stop", "MALFORMED_FUNCTION_CALL", None),
        ("error", "", None),
        ("abort", "", None),
    ],
)
def test_finishes(finish: str, native: str, reason: str | None) -> None:
    assert stop_of(finish, native) == reason


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 3},
                "cost": 0.01,
            },
            Usage(input=10, output=5, cached=4, cache_write=2, reasoning=3, cost_usd=0.01),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 8},
            Usage(input=10, output=5, cached=8),
        ),
        ({"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 1}, Usage(input=3, output=2, cached=1)),
        ({"prompt_tokens": None, "completion_tokens": -1, "prompt_tokens_details": None}, Usage()),
    ],
)
def test_usage(raw: dict[str, Any], usage: Usage) -> None:
    assert usage_of(raw) == usage


def test_details_of_several_blocks_stay_apart() -> None:
    details = ReasoningDetails()
    assert details.feed([{"type": "reasoning.text", "index": 0, "text": "a"}]) == "a"
    assert details.feed([{"type": "reasoning.summary", "index": 1, "summary": "b"}]) == "b"
    assert details.feed([{"type": "reasoning.encrypted", "index": 2, "data": "zz"}, "odd"]) == ""
    assert details.data is not None and len(details.data["reasoning_details"]) == 3
