"""Secrets leave no trace in text, in whatever spelling; ordinary text stays as it is."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from hermes.credentials.redact import Redactor

SECRET = "v3ry/secret+value=\"with' \\ signs"
TEXTS = {
    "plain": SECRET,
    "json": json.dumps({"a": SECRET}),
    "json in json": json.dumps({"arguments": json.dumps({"a": SECRET})}),
    "percent": f"http://example.org/?q={quote(SECRET, safe='')}",
    "path": quote(SECRET),
    "hex": SECRET.encode().hex(),
    "shell": "'" + SECRET.replace("'", "'\\''") + "'",
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_spelling_is_found(name: str) -> None:
    clean = Redactor({"MY_KEY": SECRET}).text(f"before {TEXTS[name]} after")
    assert "[redacted:MY_KEY]" in clean
    assert "v3ry" not in clean
    assert clean.startswith("before ")
    assert clean.endswith(" after")


@pytest.mark.parametrize("shift", range(6))
@pytest.mark.parametrize("behind", ["", "x", "xy", "\n"])
@pytest.mark.parametrize("url", [False, True])
def test_inside_base64(shift: int, behind: str, url: bool) -> None:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    text = encode(("a" * shift + SECRET + behind).encode()).decode()
    clean = Redactor([SECRET]).text(text)
    assert "[redacted:secret]" in clean
    left = clean.replace("[redacted:secret]", "")
    assert len(left) < len(text) - len(SECRET)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("sk-or-v1-0123456789abcdef0123456789abcdef", "api_key"),
        ("sk-proj-abcDEF1234567890_abcdefgh", "api_key"),
        ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "api_key"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "github_token"),
        ("github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz", "github_token"),
        ("xoxb-123456789012-abcdefghijkl", "slack_token"),
        ("AKIAIOSFODNN7EXAMPLE", "aws_key"),
        ("AIzaSyA-1234567890abcdefghijklmnopqrstu", "google_key"),
        ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "huggingface_token"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N", "jwt"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----", "private_key"),
    ],
)
def test_known_kinds_need_not_be_told(text: str, label: str) -> None:
    assert Redactor().text(f"a {text} b") == f"a [redacted:{label}] b"


def test_bearer_keeps_its_word() -> None:
    assert Redactor().text("Authorization: Bearer abcdefghijklmnop.1234") == "Authorization: Bearer [redacted:bearer]"


@pytest.mark.parametrize(
    "text",
    [
        "task-handling-of-many-small-things-1",
        "sk-learn-like-names-are-words-only",
        "the bearer of bad news",
        "disk-0123456789abcdef0123456789",
        "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
        "Привет ± 🙂 e\u0301",
        "",
    ],
)
def test_ordinary_text_is_the_same_object(text: str) -> None:
    assert Redactor([SECRET]).text(text) is text


def test_short_values_are_ignored() -> None:
    redactor = Redactor({"A": "1234567", "B": "", "C": "  "})
    assert redactor.text("1234567") == "1234567"


def test_secrets_can_be_learned_later() -> None:
    redactor = Redactor()
    assert redactor.text("quite-hidden") == "quite-hidden"
    redactor.add("quite-hidden", "LATER")
    assert redactor.text("quite-hidden") == "[redacted:LATER]"
    assert "quite-hidden" not in repr(redactor)


def test_the_longer_of_two_secrets_wins() -> None:
    redactor = Redactor({"SHORT": "abcdefgh", "LONG": "abcdefgh-ijkl"})
    assert redactor.text("abcdefgh-ijkl abcdefgh") == "[redacted:LONG] [redacted:SHORT]"


def test_json_stays_json() -> None:
    redactor = Redactor({"K": SECRET})
    data = json.dumps({"a": [SECRET, "б", {"b": f"x{SECRET}y"}]}, ensure_ascii=False).encode()
    assert json.loads(redactor.json_bytes(data)) == {"a": ["[redacted:K]", "б", {"b": "x[redacted:K]y"}]}
    clean = b'{"a": 1}'
    assert redactor.json_bytes(clean) is clean
    assert redactor.json_bytes(b"\xff quite") == b"\xff quite"


def test_labels_hold_nothing_that_has_to_be_escaped() -> None:
    assert Redactor({'a"b\n': "0123456789"}).text("0123456789") == "[redacted:a_b_]"


@pytest.mark.parametrize("piece", ["eyJ", "sk-a", "-----BEGIN RSA PRIVATE KEY-----", "earer a", "eyJaaaaaaaaa."])
def test_long_near_misses_take_no_time(piece: str) -> None:
    Redactor([SECRET]).text(piece * 20_000)
