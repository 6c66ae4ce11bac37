"""`hermes model` lists, tests and sets; a name that the server does not offer is refused with the nearest ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes.testing.faults import bad_key
from hermes.testing.scripted import reply
from hermes.testing.server import ProviderServer, serve_in_thread
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]
KEY = "sk-test-0123456789abcdef"
MODELS = ("claude-sonnet-4-6", "gpt-5", "gpt-5-mini")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderServer]:
    with serve_in_thread(lambda request: reply("ok"), models=MODELS, strict=True) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield server


def test_the_list_has_windows_and_prices_and_marks_the_default(
    hermes: Hermes, hermes_home: Path, server: ProviderServer
) -> None:
    ran = hermes("-m", "gpt-5", "model", "list")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines[:1]] == ["claude-sonnet-4-6"]
    assert lines[1].startswith("*  gpt-5 ") and "400k" in lines[1] and "$1.25 in, $10 out" in lines[1]
    ran = hermes("model", "list", "SONNET", "--json")
    assert [model["name"] for model in json.loads(ran.out)["models"]] == ["claude-sonnet-4-6"]
    assert hermes("model", "list", "llama").code == 1


def test_a_word_that_no_model_has_may_be_a_provider(
    hermes: Hermes, hermes_home: Path, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_in_thread(lambda request: reply("ok"), models=("qwen3", "gemma3")) as other:
        monkeypatch.setenv("OLLAMA_BASE_URL", other.base_url)
        ran = hermes("model", "list", "ollama")
        assert ran.code == 0 and [line.split()[0] for line in ran.out.splitlines()] == ["gemma3", "qwen3"], ran.err
        monkeypatch.delenv("OPENAI_BASE_URL")
        monkeypatch.delenv("OPENAI_API_KEY")
        (hermes_home / "config.yaml").write_text("model: {provider: openrouter}\n", encoding="utf-8")
        ran = hermes("model", "list", "ollama")
        assert ran.code == 0 and "qwen3" in ran.out, "the default provider has no key, which is not what was asked"
        (hermes_home / "config.yaml").unlink()
        ran = hermes("model", "list", "anthropic", "--base_url", other.base_url)
        assert ran.code == 1 and "qwen3" not in ran.out, "a server that is named is no other provider's"
    monkeypatch.delenv("OLLAMA_BASE_URL")
    assert hermes("model", "list", "gpt").code == 2
    ran = hermes("model", "list", "anthropic")
    assert ran.code == 2 and "ANTHROPIC_API_KEY" in ran.err, "it was taken for the provider, which has no key"


def test_a_key_that_is_refused_is_said(hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_in_thread(lambda request: bad_key()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        ran = hermes("model", "test", "gpt-5")
    assert ran.code == 1 and "401" in ran.err and KEY not in ran.err


@pytest.mark.parametrize(
    ("mode", "path"),
    [
        ("", "/v1/chat/completions"),
        ("anthropic_messages", "/v1/messages"),
        ("codex_responses", "/v1/responses"),
    ],
)
def test_one_tiny_request_in_the_format_of_the_server(
    hermes: Hermes, hermes_home: Path, server: ProviderServer, mode: str, path: str
) -> None:
    (hermes_home / "config.yaml").write_text(f"model:\n  default: gpt-5\n  api_mode: '{mode}'\n")
    ran = hermes("model", "test")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("gpt-5 answers at 127.0.0.1:") and f"({mode or 'chat_completions'})" in ran.out
    assert [request.path for request in server.requests] == [path]


def test_an_anthropic_key_speaks_its_own_format(
    hermes: Hermes, hermes_home: Path, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url.removesuffix("/v1"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    ran = hermes("model", "test", "claude-sonnet-4.6", "--provider", "anthropic")
    assert ran.code == 0, ran.err
    assert {(request.path, request.key) for request in server.requests} == {("/v1/messages", "sk-ant-0123456789")}


def test_the_providers_with_a_name_and_what_they_need(
    hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hermes_home / "config.yaml").write_text("providers:\n  work:\n    base_url: https://work.example/v1\n")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    ran = hermes("model", "providers")
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in ran.out.splitlines()}
    assert lines["anthropic"] == ["https://api.anthropic.com", "key"]
    assert lines["google"][1] == lines["work"][1] == "no key" and lines["ollama"][1] == "needs none"
    listed = json.loads(hermes("model", "providers", "--json").out)["providers"]
    assert {one["provider"] for one in listed} == set(lines) and "sk-ant" not in ran.out


def test_a_provider_in_the_name_is_asked_and_stored(
    hermes: Hermes, hermes_home: Path, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv("OLLAMA_BASE_URL", server.base_url)
    ran = hermes("model", "set", "ollama/gpt-5")
    assert ran.code == 0, ran.err
    assert (hermes_home / "config.yaml").read_text() == "model: {default: gpt-5, provider: ollama}\n"
    assert hermes("model", "test").code == 0
    ran = hermes("model", "set", "ollama/gpt-55")
    assert ran.code == 2 and "does not offer gpt-55. Nearest: gpt-5" in ran.err
    assert {request.key for request in server.requests} == {""}


def test_the_default_is_set_and_a_typo_is_refused(hermes: Hermes, hermes_home: Path, server: ProviderServer) -> None:
    config = hermes_home / "config.yaml"
    assert hermes("model", "set", "gpt-5").code == 0
    assert config.read_text() == "model: gpt-5\n"
    ran = hermes("model", "set", "gpt-5-minii")
    assert ran.code == 2 and "Nearest: gpt-5-mini, gpt-5" in ran.err
    assert config.read_text() == "model: gpt-5\n"
    assert hermes("model", "set", "anthropic/claude-sonnet-4.6", "--provider", "openai").code == 0
    assert hermes("config", "get", "model.default").out.strip() == "anthropic/claude-sonnet-4.6"
    assert hermes("model", "set", "gpt-6", "--no-check").code == 0
    assert "gpt-6" in config.read_text() and "provider: openai" in config.read_text()


def test_a_server_that_cannot_be_asked_is_no_reason_to_refuse(
    hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ran = hermes("model", "set", "gpt-5")
    assert ran.code == 0 and "not checked" in ran.err and "gpt-5" in (hermes_home / "config.yaml").read_text()
