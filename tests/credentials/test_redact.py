"""Secrets leave no trace in text, in whatever spelling; ordinary text stays as it is."""

from __future__ import annotations

import base64
import json
import tracemalloc
from pathlib import Path
from urllib.parse import quote

import pytest

from hermes.credentials.redact import Redactor
from tests.credentials.kinds import KINDS, NEAR_MISSES

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


@pytest.mark.parametrize("kind", KINDS)
def test_known_kinds_need_not_be_told(kind: str) -> None:
    text, secret = KINDS[kind]
    clean = Redactor().text(f"a {text} b")
    assert "[redacted:" in clean and secret not in clean and secret[4:-4] not in clean
    assert clean.startswith("a ") and clean.endswith(" b")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", ["", "\n", "\t", "\x1b", "=", '"', "'", "(", ":", ",", "/"])
def test_wherever_it_begins_and_inside_json(kind: str, before: str) -> None:
    text, secret = KINDS[kind]
    for value in (f"x{before}{text}\n", f"{before}{text}{before}"):
        row = json.dumps({"arguments": json.dumps({"command": value})}).encode()
        for data in (row, json.dumps({"a": value}).encode(), value.encode()):
            if before or not value.startswith("x"):
                clean = Redactor().json_bytes(data).decode()
                assert secret not in clean, clean
        assert before == "" or json.loads(Redactor().json_bytes(row))


def test_there_are_more_than_twenty_kinds_with_a_near_miss_each() -> None:
    assert len(KINDS) > 50 and len(NEAR_MISSES) > 30


def test_bearer_keeps_its_word() -> None:
    assert Redactor().text("Authorization: Bearer abcdefghijklmnop.1234") == "Authorization: Bearer [redacted:bearer]"
    assert Redactor().text("x://u:secret-1@h") == "x://u:[redacted:password]@h"


@pytest.mark.parametrize("text", NEAR_MISSES)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert Redactor([SECRET]).text(text) == text


def test_text_without_a_key_is_the_same_object() -> None:
    for text in ("nothing here", "Привет ± 🙂 e\u0301", "a-name-that-is-long-enough-to-be-looked-at", ""):
        assert Redactor([SECRET]).text(text) is text


@pytest.mark.parametrize("path", ["src/hermes/runtime/approval.py", "README.md", "docs/cli.md"])
def test_our_own_text_holds_nothing_that_looks_like_a_key(path: str) -> None:
    text = (Path(__file__).parents[2] / path).read_text(encoding="utf-8")
    assert Redactor().text(text) == text


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


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("AccountKey=" + "ab3/cd5+" * 11 + "==", "AccountKey=[redacted:azure_key]"),
        ("whsec_" + "Zx9/" * 8, "[redacted:stripe_key]"),
        ("glc_" + "eyJv/" * 8, "[redacted:grafana_token]"),
        ('"aws_secret_access_key": "' + "abcd/efg+h" * 4 + '"', '"aws_secret_access_key": "[redacted:aws_secret]"'),
    ],
)
def test_keys_without_a_long_run_of_letters_are_found(text: str, clean: str) -> None:
    assert Redactor().json_bytes(text.encode()) == clean.encode()


def test_json_stays_json() -> None:
    redactor = Redactor({"K": SECRET})
    data = json.dumps({"a": [SECRET, "б", {"b": f"x{SECRET}y"}]}, ensure_ascii=False).encode()
    assert json.loads(redactor.json_bytes(data)) == {"a": ["[redacted:K]", "б", {"b": "x[redacted:K]y"}]}
    clean = b'{"a": 1}'
    assert redactor.json_bytes(clean) is clean
    assert redactor.json_bytes(b"\xff quite") == b"\xff quite"


def test_labels_hold_nothing_that_has_to_be_escaped() -> None:
    assert Redactor({'a"b\n': "0123456789"}).text("0123456789") == "[redacted:a_b_]"


@pytest.mark.parametrize(
    "piece",
    [
        "eyJ", "sk-a", "-----BEGIN RSA PRIVATE KEY-----", "earer a", "eyJaaaaaaaaa.", "://a:", "://a:b@", "@://",
        "PuTTY-User-Key-File-3:", "sig=a", "ecret_access_key", "ecret_access_key    =    ", "uth_token='", "SG.a",
        "1:AA", "AccountKey=", "uthorization: Basic a", "hooks.slack.com/services/", "glpat-", "hvs.a", "Q~", "a" * 19,
    ],
)  # fmt: skip
def test_long_near_misses_take_no_time(piece: str) -> None:
    Redactor([SECRET]).text(piece * 20_000)


def test_a_long_text_is_not_taken_apart() -> None:
    """Its words as objects of their own would be twenty times as large as the text."""
    redactor = Redactor({"MY_KEY": "a-secret-of-some-length"})
    text = b"/a/path/that/is/long/enough " + b"a few words " * 200_000
    tracemalloc.start()
    try:
        assert redactor.json_bytes(text) is text
        assert tracemalloc.get_traced_memory()[1] < 3 * len(text)
    finally:
        tracemalloc.stop()
    for where in (text + b"a-secret-of-some-length", b"a-secret-of-some-length " + text):
        clean = redactor.json_bytes(where)
        assert len(clean) == len(where) - len("a-secret-of-some-length") + len("[redacted:MY_KEY]")
