"""`hermes auth` and `hermes fallback`: keys are added, ordered and removed, and never shown."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.credentials.test_oauth import Issuer, served

Hermes = Callable[..., Ran]
ONE, TWO, ENV = "sk-one-0123456789", "sk-two-0123456789", "sk-env-0123456789"


@pytest.fixture
def two(hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with two keys of OpenRouter."""
    for secret, label in ((ONE, "first"), (TWO, "second")):
        monkeypatch.setattr("sys.stdin", io.StringIO(secret + "\n"))
        ran = hermes("auth", "add", "openrouter", "--label", label)
        assert ran.code == 0 and secret not in ran.out + ran.err
    return hermes_home / "auth.json"


def listed(hermes: Hermes, *more: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(hermes("auth", "list", *more, "--json").out)["credentials"]
    return found


def test_keys_are_listed_in_the_order_of_use_without_being_shown(
    hermes: Hermes, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", ENV)
    ran = hermes("auth", "list")
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["openrouter", "(3", "credentials):"]
    assert lines[1] == ["#1", "OPENROUTER_API_KEY", "api_key", "env:OPENROUTER_API_KEY", "←"]
    assert [line[:2] for line in lines[2:]] == [["#2", "first"], ["#3", "second"]]
    assert "sk-" not in ran.out + ran.err
    assert stat.S_IMODE(two.stat().st_mode) == 0o600 and ENV not in two.read_text()


def test_a_login_is_added_with_its_first_key_and_renewed(
    hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer()
    with served(issuer) as url:
        monkeypatch.setattr("sys.stdin", io.StringIO("refresh-0\n"))
        ran = hermes("auth", "add", "openai", "--type", "oauth", "--token-url", url, "--label", "work")
        assert ran.code == 0 and "refresh-" not in ran.out + ran.err and "access-" not in ran.out + ran.err
        assert [(row["label"], row["kind"], row["usable"]) for row in listed(hermes)] == [("work", "oauth", True)]
        ran = hermes("auth", "refresh", "openai", "work")
        assert ran.code == 0 and ran.out.startswith("renewed work (") and "good for 59 min" in ran.out
        issuer.revoked = True
        ran = hermes("auth", "refresh", "openai")
        assert ran.code == 1 and "was revoked (invalid_grant)" in ran.err
        assert [row["status"] for row in listed(hermes)] == ["dead"]
        monkeypatch.setattr("sys.stdin", io.StringIO("refresh-7\n"))
        ran = hermes("auth", "add", "anthropic", "--type", "oauth", "--token-url", url)
        assert ran.code == 1 and "Nothing was added" in ran.err and "refresh-7" not in ran.err
    entry = json.loads((hermes_home / "auth.json").read_text())["credential_pool"]["openai"][0]
    assert (entry["access_token"], entry["refresh_token"]) == ("access-2", "refresh-2")


def test_a_login_is_logged_out_of_and_into_again_at_its_place(
    hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer()
    file = hermes_home / "auth.json"
    with served(issuer) as url:
        assert hermes("auth", "add", "openai", "--api-key", ONE, "--label", "key").code == 0
        monkeypatch.setattr("sys.stdin", io.StringIO("refresh-0\n"))
        assert hermes("auth", "add", "openai", "--type", "oauth", "--token-url", url, "--label", "my work").code == 0
        (file.with_name("auth.json.bak")).write_text(file.read_text())
        ran = hermes("auth", "logout", "openai")
        assert ran.code == 0 and ran.out.startswith("logged out of my work (")
        assert "hermes auth add openai --type oauth --label 'my work'" in ran.out
        assert "auth.json.bak" in ran.err and "delete that too" in ran.err
        assert not any(word in file.read_text() for word in ("access-", "refresh-"))
        assert [(row["label"], row["status"], row["usable"]) for row in listed(hermes)] == [
            ("key", "ok", True), ("my work", "logged_out", False),
        ]  # fmt: skip
        assert "logged out" in hermes("auth", "list").out and hermes("auth", "status", "openai").code == 0
        again = hermes("auth", "logout", "openai", "my work")
        assert again.code == 2 and "is logged out already" in again.err
        assert "nothing rests" in hermes("auth", "reset", "openai").out
        key = hermes("auth", "logout", "openai", "key")
        assert key.code == 2 and "hermes auth remove openai" in key.err
        monkeypatch.setattr("sys.stdin", io.StringIO("refresh-1\n"))
        ran = hermes("auth", "add", "openai", "--type", "oauth", "--label", "my work")
        assert ran.code == 0, ran.err
        assert [(row["label"], row["status"]) for row in listed(hermes)] == [("key", "ok"), ("my work", "ok")]


def test_a_login_of_another_program_is_not_logged_out_of(hermes: Hermes, hermes_home: Path) -> None:
    entry = {
        "id": "aa1111",
        "label": "theirs",
        "auth_type": "oauth",
        "access_token": "a" * 20,
        "refresh_token": "r" * 20,
    }
    text = json.dumps({"version": 1, "credential_pool": {"anthropic": [entry]}})
    (hermes_home / "auth.json").write_text(text)
    ran = hermes("auth", "logout", "anthropic")
    assert ran.code == 2 and "log out there" in ran.err and (hermes_home / "auth.json").read_text() == text


@pytest.mark.parametrize("verb", ["list", "status", "reset", "refresh", "logout"])
def test_a_mistyped_provider_gets_the_nearest_name(hermes: Hermes, verb: str) -> None:
    ran = hermes("auth", verb, "opnrouter")
    assert ran.code == 2 and "there is no provider 'opnrouter'. Did you mean openrouter?" in ran.err


def test_a_key_in_the_arguments_is_taken_with_a_warning(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("auth", "add", "openai", "--api-key", ONE, "--priority", "4")
    assert ran.code == 0 and "shell's history" in ran.err and ONE not in ran.out + ran.err
    (entry,) = json.loads((hermes_home / "auth.json").read_text())["credential_pool"]["openai"]
    assert (entry["access_token"], entry["priority"], entry["source"]) == (ONE, 4, "manual")
    again = hermes("auth", "add", "openai", "--api-key", ONE)
    assert again.code == 1 and "has this key already" in again.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("add", "opnrouter", "--api-key", ONE), "there is no provider 'opnrouter'"),
        (("add", "openai", "--type", "oauth"), "a login needs --token-url"),
        (("add", "openai", "--client-id", "x", "--api-key", ONE), "belong to a login"),
        (("refresh", "openrouter"), "no login that is renewed here"),
        (("add", "openai", "--api-key", "two words"), "that is no key"),
        (("remove", "openrouter", "third"), "There are: #1 first, #2 second"),
        (("priority", "openrouter", "9", "1"), "no key '9'"),
        (("reset", "anthropic"), "has no keys"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(hermes: Hermes, two: Path, args: tuple[str, ...], said: str) -> None:
    before = two.read_text()
    ran = hermes("auth", *args)
    assert ran.code == 2 and said in ran.err and two.read_text() == before


def test_order_and_removal_by_number_id_and_label(hermes: Hermes, two: Path) -> None:
    assert hermes("auth", "priority", "openrouter", "second", "-5").code != 0  # an option to click: said, not done
    assert hermes("auth", "priority", "openrouter", "first", "8").code == 0
    rows = listed(hermes)
    assert [row["label"] for row in rows] == ["second", "first"]
    told = hermes("auth", "priority", "openrouter", "first", str(rows[0]["priority"]))
    assert told.out == f"first of openrouter has priority {rows[0]['priority']}, now #1\n"
    assert [row["label"] for row in listed(hermes)] == ["first", "second"], "of equal ones the one placed last"
    told = hermes("auth", "priority", "openrouter", "first", str(rows[0]["priority"]))
    assert told.out.endswith("now #1\n")
    assert hermes("auth", "priority", "openrouter", "first", "8").out.endswith("now #2\n")
    assert hermes("auth", "remove", "openrouter", "#1").code == 0
    assert hermes("auth", "remove", "openrouter", str(rows[1]["id"])).code == 0
    assert listed(hermes) == []


def test_a_key_of_a_variable_is_ordered_without_being_stored_and_cannot_be_removed(
    hermes: Hermes, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", ENV)
    ran = hermes("auth", "remove", "openrouter", "OPENROUTER_API_KEY")
    assert ran.code == 2 and "Unset it" in ran.err
    assert hermes("auth", "priority", "openrouter", "OPENROUTER_API_KEY", "9").code == 0
    assert [row["label"] for row in listed(hermes)] == ["first", "second", "OPENROUTER_API_KEY"]
    assert ENV not in two.read_text()


def test_keys_that_rest_are_shown_and_can_be_let_go(hermes: Hermes, two: Path) -> None:
    data = json.loads(two.read_text())
    data["credential_pool"]["openrouter"][0] |= {
        "last_status": "exhausted", "last_error_code": 429, "last_error_reset_at": 4_000_000_000,
    }  # fmt: skip
    two.write_text(json.dumps(data))
    assert "rate_limit" in hermes("auth", "list").out.splitlines()[1]
    assert hermes("auth", "status", "openrouter").code == 0
    data["credential_pool"]["openrouter"][1]["last_status"] = "dead"
    two.write_text(json.dumps(data))
    assert hermes("auth", "status", "openrouter").code == 1
    assert "2 of 2" in hermes("auth", "reset", "openrouter").out
    assert [row["status"] for row in listed(hermes)] == ["ok", "ok"]


def test_a_server_of_ones_own_has_keys_too(hermes: Hermes, hermes_home: Path) -> None:
    args = ("auth", "add", "lab", "--base-url", "http://127.0.0.1:9/v1", "--api-key", ONE)
    assert hermes(*args).code == 0
    assert [row["provider"] for row in listed(hermes, "lab")] == ["custom:lab"]
    assert hermes("auth", "add", "lab", "--api-key", TWO).code == 0  # where its first key belongs
    entries = json.loads((hermes_home / "auth.json").read_text())["credential_pool"]["custom:lab"]
    assert {entry["base_url"] for entry in entries} == {"http://127.0.0.1:9/v1"}
    assert hermes("auth", "add", "lab", "--base-url", "http://127.0.0.1:8/v1", "--api-key", ENV).code == 0
    ran = hermes("auth", "add", "lab", "--api-key", "sk-four-0123456789")
    assert ran.code == 2 and "say which one by --base-url" in ran.err


def test_fallbacks_are_added_listed_and_removed(hermes: Hermes, hermes_home: Path) -> None:
    config = hermes_home / "config.yaml"
    config.write_text("# mine\nmodel: a/b\n")
    assert hermes("fallback", "add", "openrouter", "x/y").code == 0
    assert hermes("fallback", "add", "lab", "big", "--base-url", "http://127.0.0.1:9/v1", "--key-env", "K").code == 0
    assert hermes("fallback", "add", "openrouter", "x/y").code == 2
    ran = hermes("fallback", "add", "opnrouter", "x/y")
    assert ran.code == 2 and "there is no provider 'opnrouter'" in ran.err and "openrouter?" in ran.err
    assert hermes("fallback", "add", "nowhere", "x/y").code == 2
    ran = hermes("fallback", "add", "anthropic", "claude")
    assert ran.code == 0 and "it cannot be asked yet: no key for api.anthropic.com" in ran.err
    assert hermes("fallback", "remove", "claude").code == 0
    assert json.loads(hermes("fallback", "list", "--json").out)["fallback_providers"] == [
        {"provider": "openrouter", "model": "x/y"},
        {"provider": "lab", "model": "big", "base_url": "http://127.0.0.1:9/v1", "key_env": "K"},
    ]
    assert hermes("fallback", "remove", "3").code == 2
    assert hermes("fallback", "remove", "1").code == 0
    assert [line.split()[:3] for line in hermes("fallback", "ls").out.splitlines()] == [["1.", "lab", "big"]]
    assert hermes("fallback", "clear").code == 0 and "no fallback" in hermes("fallback").out
    assert config.read_text().startswith("# mine\nmodel: a/b\n")


def test_the_older_form_is_read_and_moved_when_changed(hermes: Hermes, hermes_home: Path) -> None:
    config = hermes_home / "config.yaml"
    config.write_text("fallback_model: {provider: openrouter, model: old/one}\n")
    assert "old/one" in hermes("fallback").out
    assert hermes("fallback", "add", "openai", "new").code == 0
    assert "fallback_model" not in config.read_text()
    assert [line.split()[2] for line in hermes("fallback").out.splitlines()] == ["old/one", "new"]


def test_keys_with_and_without_a_server_of_their_own_stand_in_one_table(
    hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", ENV)
    args = ("auth", "add", "openai", "--base-url", "http://127.0.0.1:9/v1", "--api-key", ONE)
    assert hermes(*args).code == 0
    assert hermes("auth", "add", "openai", "--api-key", TWO).code == 0
    lines = [line.split() for line in hermes("auth", "list", "openai").out.splitlines()[1:] if line]
    assert lines[0][-2:] == ["env:OPENAI_API_KEY", "←"]
    assert lines[1][-1] == "http://127.0.0.1:9/v1" and lines[2][-1] != "←"
