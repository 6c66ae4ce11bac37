"""`hermes setup` tests a key before it stores it, and stores it where only its owner can read it."""

from __future__ import annotations

import io
import json
import stat
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes.cli.setup_cmd import Choice, _asked, apply_choice
from hermes.config import Home, load
from hermes.core.errors import ModelError, OperatorError
from hermes.credentials import Endpoint
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]
KEY = "sk-0123456789abcdef"
CHOICE = Choice(provider="openrouter", key=KEY, model="a/b")


@pytest.fixture
def at(hermes_home: Path) -> Home:
    return Home(root=hermes_home, path=hermes_home)


def test_a_key_that_works_is_stored_privately_and_the_model_set(at: Home) -> None:
    asked: list[Endpoint] = []

    def probe(endpoint: Endpoint) -> str:
        asked.append(endpoint)
        return "a/b"

    lines = apply_choice(at, CHOICE, probe)
    assert [(each.base_url, each.api_key, each.model) for each in asked] == [
        ("https://openrouter.ai/api/v1", KEY, "a/b")
    ]
    assert at.env_file.read_text() == f"OPENROUTER_API_KEY={KEY}\n"
    assert stat.S_IMODE(at.env_file.stat().st_mode) == 0o600
    settings = load(at, {}).require()
    assert (settings.model.default, settings.model.provider) == ("a/b", "openrouter")
    assert KEY not in "".join(lines) + at.config_file.read_text() + repr(CHOICE)


def test_a_key_that_is_refused_is_not_stored(at: Home) -> None:
    def probe(endpoint: Endpoint) -> str:
        raise ModelError("openrouter.ai answered 401", reason="auth", status=401, permanent=True)

    with pytest.raises(OperatorError, match="nothing was stored: openrouter.ai answered 401"):
        apply_choice(at, CHOICE, probe)
    assert list(at.path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["# mine\nmodel: old   # c\n", "# mine\nmodel: {default: old}\n", "# mine\nmodel:\n  default: old\n", "# mine\n"],
)
def test_other_settings_and_comments_survive(at: Home, text: str) -> None:
    at.config_file.write_text(text + "kanban: {x: 1} # k\n")
    apply_choice(at, CHOICE, None)
    assert load(at, {}).require().model.default == "a/b"
    after = at.config_file.read_text()
    assert after.startswith("# mine\n") and "kanban: {x: 1} # k\n" in after
    assert ("# c" in after) == ("# c" in text)


def test_without_a_terminal_it_tells_what_to_do(
    hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ran = hermes("setup")
    assert ran.code == 2 and "--key-stdin" in ran.err and "-m embedded" in ran.err
    assert list(hermes_home.iterdir()) == []


@pytest.mark.parametrize(
    ("answers", "choice"),
    [
        (f"\n{KEY}\n\n", Choice(provider="openrouter", key=KEY, model="anthropic/claude-sonnet-4.6")),
        (f"openai\n{KEY}\nm\n", Choice(provider="openai", key=KEY, model="m")),
        ("other\n\n\nm\n", Choice(provider="other", key="", model="m", base_url="http://127.0.0.1:8000/v1")),
    ],
)
def test_the_questions_and_a_key_that_is_not_shown(answers: str, choice: Choice) -> None:
    with CliRunner().isolation(input=answers) as (out, _, _):
        assert _asked("", "", "") == choice
    assert KEY not in out.getvalue().decode()


class _Server(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        good = self.headers.get("Authorization") == f"Bearer {KEY}"
        message = {"role": "assistant", "content": "ok"}
        answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "model": "m"}
        body = json.dumps(answer if good else {"error": {"message": "no such key"}}).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Server) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/v1"
        http.shutdown()
        thread.join()


@pytest.mark.parametrize(("key", "code"), [(KEY, 0), ("sk-wrong-0123456789", 1)])
def test_the_whole_way_with_a_real_server(
    hermes: Hermes, at: Home, server: str, monkeypatch: pytest.MonkeyPatch, key: str, code: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(key + "\n"))
    ran = hermes("setup", "--provider", "other", "--base_url", server, "--model", "m", "--key-stdin")
    assert ran.code == code, ran
    assert "0123456789" not in ran.out + ran.err
    if code:
        assert "nothing was stored" in ran.err and list(at.path.iterdir()) == []
    else:
        assert at.env_file.read_text() == f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={server}\n"
        assert f"m at {server}, key: OPENAI_API_KEY (.env)" in hermes("doctor").out
