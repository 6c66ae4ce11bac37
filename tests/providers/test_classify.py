"""Status, words and waits of providers."""

from __future__ import annotations

import msgspec
import pytest

from hermes.providers.classify import Origin, error_text, status_error, stream_error
from hermes.providers.retry_after import parse_duration, parse_retry_after

NOW = 1_700_000_000.0
ORIGIN = Origin(host="api.example", model="m", secret="sk-secret-123")


@pytest.mark.parametrize(
    ("status", "text", "reason"),
    [
        (401, "nope", "auth"),
        (401, "token_revoked", "auth_permanent"),
        (402, "Insufficient credits", "billing"),
        (402, "usage limit reached, try again in 5 minutes", "rate_limit"),
        (402, "You hit your usage limit. Resets at 5pm", "rate_limit"),
        (403, "Key limit exceeded (total limit)", "billing"),
        (403, "your spending limit", "billing"),
        (403, "no access", "auth"),
        (404, "No endpoints found matching your data policy", "provider_policy_blocked"),
        (404, "model 'x-4.6' not found, try pulling it first", "model_not_found"),
        (404, "No endpoints found for foo/bar.", "model_not_found"),
        (404, "page not found", "unknown"),
        (400, "foo/bar is not a valid model ID", "model_not_found"),
        (400, "The model `gpt-5.9` does not exist or you do not have access to it.", "model_not_found"),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", "context_overflow"),
        (400, "the request exceeds the available context size", "context_overflow"),
        (400, "Unsupported parameter: 'top_k' is not supported with this model", "format_error"),
        (400, "content policy violation", "content_policy_blocked"),
        (408, "timeout", "timeout"),
        (413, "too large", "payload_too_large"),
        (418, "teapot", "format_error"),
        (422, "field required", "format_error"),
        (429, "slow down", "rate_limit"),
        (429, "session usage limit reached", "rate_limit"),
        (429, "insufficient_quota: check your plan and billing details", "billing"),
        (429, "insufficient_quota, retry in 20s", "rate_limit"),
        (429, "the engine is overloaded", "overloaded"),
        (429, "maximum context length", "rate_limit"),
        (500, "oops", "server_error"),
        (500, "maximum context length is 8192", "context_overflow"),
        (502, "bad gateway", "server_error"),
        (503, "unavailable", "overloaded"),
        (504, "gateway timeout", "server_error"),
        (529, "busy", "overloaded"),
    ],
)
def test_reasons(status: int, text: str, reason: str) -> None:
    body = msgspec.json.encode({"error": {"message": text}})
    assert status_error(ORIGIN, status, body, {}, NOW).reason == reason


def test_the_message_says_what_where_and_what_to_do_and_is_short() -> None:
    body = msgspec.json.encode({"error": {"message": "long " * 500 + "sk-secret-123"}})
    error = status_error(ORIGIN, 402, body, {}, NOW)
    assert str(error).startswith("api.example answered 402 for model m: long long")
    assert str(error).endswith("add credit or use another key.") and len(str(error)) < 460
    assert "sk-secret" not in str(status_error(ORIGIN, 400, b"key sk-secret-123 bad", {}, NOW))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":{"message":"a","code":"b"}}', "a \xb7 b"),
        (b'{"error":"plain"}', "plain"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'[{"error":{"message":"listed"}}]', "listed"),
        (b'{"error":{"message":"up","metadata":{"raw":"stream"}}}', "up \xb7 stream"),
        (b"<html><title>502 Bad</title></html>", "502 Bad"),
        (b"<p>hi</p>", "hi"),
        (b"\xff text", "\ufffd text"),
        (b"", ""),
        (b"null", "None"),
    ],
)
def test_the_text_of_an_error_body(body: bytes, text: str) -> None:
    assert error_text(body).strip() == text


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"message": "x", "code": 429}, "rate_limit"),
        ({"message": "x", "code": "401"}, "auth"),
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "rate_limit_error", "message": "slow"}, "rate_limit"),
        ({"message": "odd", "code": "weird"}, "server_error"),
        ("just text", "server_error"),
        ("maximum context length exceeded", "context_overflow"),
    ],
)
def test_errors_within_a_stream(error: object, reason: str) -> None:
    assert stream_error(ORIGIN, error, NOW).reason == reason


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after": "7"}, "", 7.0),
        ({"retry-after": "1.5"}, "", 1.5),
        ({"retry-after-ms": "250"}, "", 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:14:20 GMT"}, "", 60.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, "", 0.0),
        ({"retry-after": "soon"}, "", None),
        ({}, "Please try again in 20s.", 20.0),
        ({}, "try again in 1m30.5s", 90.5),
        ({}, "Limit reached, resets in 4hr 5min", 14_700.0),
        ({}, '{"retryDelay": "34s"}', 34.0),
        ({}, '{"resets_at": 1700000100}', 100.0),
        ({}, '{"X-RateLimit-Reset": "1700000060000"}', 60.0),
        ({}, '{"reset_at": "2023-11-14T22:13:50Z"}', 30.0),
        ({}, "no word of it", None),
        ({"retry-after": "3"}, "try again in 20s", 3.0),
    ],
)
def test_waits(headers: dict[str, str], text: str, seconds: float | None) -> None:
    assert parse_retry_after(headers, text, NOW) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "seconds"), [("4hr 5min", 14_700.0), ("6m0s", 360.0), ("250ms", 0.25), ("2 days", 172_800.0), ("x", None)]
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds
