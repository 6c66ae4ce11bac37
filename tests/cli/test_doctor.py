"""`hermes doctor` tells what is there and what is wrong, and shows no key."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli.doctor_cmd import examine
from hermes.cli.options import GlobalOptions
from hermes.testing.faults import Disconnect, Status, bad_key, html
from hermes.testing.scripted import reply
from hermes.testing.server import serve_in_thread
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]
KEY = "sk-0123456789abcdef"


def findings(environ: dict[str, str], **options: str) -> dict[str, tuple[str, str]]:
    return {check.name: (check.status, check.detail) for check in examine(GlobalOptions(**options), environ)}


@pytest.fixture
def environ(hermes_home: Path) -> dict[str, str]:
    return {"HERMES_HOME": str(hermes_home), "PATH": ""}


def test_an_empty_home_is_not_broken_and_is_told_three_ways(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("doctor")
    assert ran.code == 0
    assert "OPENROUTER_API_KEY" in ran.out and "OPENAI_BASE_URL" in ran.out and "-m embedded" in ran.out
    assert "telemetry: none" in ran.out and "python: " in ran.out and "embedded model: " in ran.out
    assert list(hermes_home.iterdir()) == []


def test_the_key_and_the_endpoint_in_use(environ: dict[str, str]) -> None:
    found = findings({**environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://llm.example/v1"}, model="m")
    assert found["key"] == ("ok", "OPENAI_API_KEY (environment) …cdef for https://llm.example/v1")
    assert found["endpoint"] == ("ok", "m at https://llm.example/v1, key: OPENAI_API_KEY (environment)")
    assert "address" not in found
    assert findings(environ, model="embedded")["endpoint"][1].startswith("embedded:smollm2-135m on this machine (tiny")


def test_an_address_that_is_empty_is_told(environ: dict[str, str], hermes_home: Path) -> None:
    given = {**environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": " "}
    found = findings(given, model="m")
    assert found["endpoint"] == ("ok", "m at https://api.openai.com/v1, key: OPENAI_API_KEY (environment)")
    assert found["address"][0] == "warning"
    assert found["address"][1].startswith("OPENAI_BASE_URL is empty, so the key goes to https://api.openai.com/v1.")
    assert "address" not in findings({**environ, "OPENAI_BASE_URL": ""}, model="m"), "no key goes anywhere"
    (hermes_home / ".env").write_text("OPENAI_BASE_URL=https://llm.example/v1\n", encoding="utf-8")
    assert "address" not in findings(given, model="m"), ".env has one"


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (reply("ok"), "ok", "m answers at 127.0.0.1:"),
        (bad_key(), "broken", "Check the API key"),
        (
            Status(status=401, message="Your API key has expired"),
            "broken",
            "This key no longer works (expired or revoked)",
        ),
        (html(), "broken", "a web page instead of a reply"),
        (Disconnect(), "broken", "closed the connection before it answered"),
    ],
)
def test_one_tiny_request_says_what_is_wrong_with_key_or_address(
    hermes: Hermes, hermes_home: Path, monkeypatch: pytest.MonkeyPatch, answer: object, status: str, says: str
) -> None:
    with serve_in_thread(lambda request: answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        ran = hermes("-m", "m", "doctor", "--test", "--json")
        looked = hermes("-m", "m", "doctor")
        assert server.count == 1, "a look sends nothing"
    (check,) = [one for one in json.loads(ran.out)["checks"] if one["name"] == "answer"]
    assert check["status"] == status and says in check["detail"] and KEY not in ran.out
    assert (ran.code, looked.code) == (0 if status == "ok" else 1, 0)


def test_a_missing_model_name_is_said(environ: dict[str, str]) -> None:
    found = findings({**environ, "OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"})
    assert found["endpoint"][0] == "warning" and "no model named" in found["endpoint"][1]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("agent: {max_turn: 3}\n", "broken"),
        ("agent:\n\tx: 1\n", "broken"),
        ("goals: {}\n", "note"),
        ("agent: {max_turns: 3}\n", "ok"),
    ],
)
def test_the_settings_are_checked(environ: dict[str, str], hermes_home: Path, text: str, status: str) -> None:
    (hermes_home / "config.yaml").write_text(text)
    assert findings(environ)["config"][0] == status


def test_a_broken_thing_is_exit_code_1(hermes: Hermes, hermes_home: Path) -> None:
    (hermes_home / "config.yaml").write_text("agent: {max_turn: 3}\n")
    assert hermes("doctor").code == 1
    answer = json.loads(hermes("doctor", "--json").out)
    assert answer["ok"] is False and {"name", "status", "detail"} == set(answer["checks"][0])
    assert hermes("-p", "nobody", "doctor").code == 1


def test_a_server_without_its_key_is_broken(environ: dict[str, str], hermes_home: Path) -> None:
    (hermes_home / "config.yaml").write_text("model: {default: m, base_url: 'https://x.example/v1'}\n")
    status, detail = findings({**environ, "OPENROUTER_API_KEY": KEY})["endpoint"]
    assert status == "broken" and "x.example" in detail and "0123456789" not in detail


def test_a_broken_pool_is_reported(environ: dict[str, str], hermes_home: Path) -> None:
    (hermes_home / "auth.json").write_text("{")
    assert findings(environ)["config"][0] == "broken"


def script(folder: Path, text: str) -> Path:
    folder.mkdir()
    path = folder / "hermes"
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_which_hermes_is_which(environ: dict[str, str], tmp_path: Path) -> None:
    ours = script(tmp_path / "a", f"#!{sys.prefix}/bin/python\nfrom hermes.cli.main import main\n")
    twin = script(tmp_path / "b", "#!/elsewhere/bin/python\nfrom hermes.cli.main import main\n")
    other = script(tmp_path / "c", "#!/usr/bin/env python\nfrom hermes_cli.main import main\n")
    assert findings(environ)["hermes on PATH"][0] == "note"
    for order, status in (((ours, twin, other), "ok"), ((other, ours), "warning"), ((twin, ours), "warning")):
        path = os.pathsep.join(str(each.parent) for each in order)
        found, detail = findings({**environ, "PATH": path})["hermes on PATH"]
        assert found == status
        assert f"{ours} is this program, " in detail
        assert (f"{other} is another program" in detail) == (other in order)
        assert (f"{twin} is this program, in another environment" in detail) == (twin in order)


def test_files_of_another_program_are_recognised(environ: dict[str, str], hermes_home: Path) -> None:
    (hermes_home / "state.db").write_bytes(b"x")
    (hermes_home / "kanban.db").write_bytes(b"x")
    for ours in ("profiles", "kanban"):
        (hermes_home / ours).mkdir()
    assert findings(environ)["other files"][1].startswith("state.db, kanban.db: another program's, never written here")


@pytest.mark.parametrize("backend", ["local", "docker", "sandbox"])
def test_what_cannot_hold_commands_is_broken_only_where_it_is_configured(
    environ: dict[str, str], hermes_home: Path, tmp_path: Path, backend: str
) -> None:
    hermes_home.mkdir(exist_ok=True)
    (hermes_home / "config.yaml").write_text(f"terminal: {{backend: {backend}}}\n", encoding="utf-8")
    found = {check.name: check for check in examine(GlobalOptions(), {**environ, "PATH": str(tmp_path)})}
    assert found["docker"].status == ("broken" if backend == "docker" else "note")
    assert found["sandbox"].status == ("broken" if backend == "sandbox" else "note")
    assert "install the package bubblewrap" in found["sandbox"].detail


def test_a_sandbox_whose_system_calls_are_not_filtered_is_told(environ: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text('#!/bin/sh\ncase "$*" in *--seccomp*) echo "bwrap: no seccomp here" >&2; exit 1;; esac\n')
    program.chmod(0o755)
    status, detail = findings({**environ, "PATH": str(tmp_path)})["sandbox"]
    assert status == "note"
    assert detail.startswith("commands can run in it; system calls are not filtered: ")
