"""`hermes config`."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.cli.program import Program

Hermes = Callable[..., Ran]
KEY = "sk-0123456789abcdef"


def test_paths(hermes: Hermes, hermes_home: Path) -> None:
    assert hermes("config", "path").out == f"{hermes_home}/config.yaml\n"
    assert hermes("config", "env-path").out == f"{hermes_home}/.env\n"


def test_set_get_unset(hermes: Hermes, hermes_home: Path) -> None:
    assert hermes("config", "get", "agent.max_turns").out == "90\n"
    assert hermes("config", "set", "agent.max_turns", "12").code == 0
    answer = json.loads(hermes("config", "get", "agent.max_turns", "--json").out)
    assert answer == {"key": "agent.max_turns", "value": 12, "source": "config.yaml:2"}
    assert hermes("config", "unset", "agent.max_turns").code == 0
    assert hermes("config", "get", "agent.max_turns").out == "90\n"
    assert hermes("config", "unset", "agent.max_turns").code == 1


def test_values_keep_their_kind(hermes: Hermes, hermes_home: Path) -> None:
    for key, value in (
        ("model", "5"),
        ("agent.max_turns", "unlimited"),
        ("toolsets", "web,file"),
        ("compression.protect_last_n", "3"),
    ):
        assert hermes("config", "set", key, value).code == 0
    assert hermes("config", "set", r"models.gpt-4\.1.context_length", "1000").code == 0
    answer = json.loads(hermes("config", "show", "--json").out)
    values = {entry["key"]: entry["value"] for entry in answer["settings"]}
    assert values["model.default"] == "5"
    assert values["agent.max_turns"] is None
    assert values["toolsets"] == ["web", "file"]
    assert values["compression.protect_last_n"] == 3
    assert values["models"]["gpt-4.1"]["context_length"] == 1000
    assert answer["problems"] == []


def test_the_model_as_a_word_or_in_a_section(hermes: Hermes, hermes_home: Path) -> None:
    path = hermes_home / "config.yaml"
    hermes("config", "set", "model", "a/b")
    assert path.read_text() == "model: a/b\n"
    path.write_text("model:\n  default: old # c\n  provider: openai\n")
    hermes("config", "set", "model", "c/d")
    assert path.read_text() == "model:\n  default: c/d # c\n  provider: openai\n"


def test_keys_go_to_the_private_file_and_are_masked(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("config", "set", "OPENROUTER_API_KEY", KEY)
    ran2 = hermes("config", "set", "delegation.api_key", KEY)
    env = hermes_home / ".env"
    assert env.read_text() == f"OPENROUTER_API_KEY={KEY}\nHERMES_DELEGATION_API_KEY={KEY}\n"
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    assert (hermes_home / "config.yaml").read_text() == "delegation:\n  api_key: ${HERMES_DELEGATION_API_KEY}\n"
    shown = [ran, ran2, hermes("config", "show"), hermes("config", "show", "--json")]
    shown += [hermes("config", "get", "OPENROUTER_API_KEY"), hermes("config", "get", "delegation")]
    shown += [hermes("config", "get", "delegation.api_key", "--json"), hermes("doctor"), hermes("doctor", "--json")]
    assert not [each for each in shown if "0123456789" in each.out + each.err]
    assert hermes("config", "get", "OPENROUTER_API_KEY").out == "…cdef\n"
    assert hermes("config", "unset", "OPENROUTER_API_KEY").code == 0
    assert hermes("config", "get", "OPENROUTER_API_KEY").code == 1


def test_secrets_under_keys_of_other_programs_are_masked(hermes: Hermes, hermes_home: Path) -> None:
    (hermes_home / "config.yaml").write_text(f"auxiliary:\n  vision:\n    api_key: {KEY}\n")
    for key in ("auxiliary", "auxiliary.vision", "auxiliary.vision.api_key"):
        ran = hermes("config", "get", key)
        assert ran.code == 0 and "0123456789" not in ran.out and "cdef" in ran.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["set", "agent.max_turn", "3"], "Did you mean agent.max_turns?"),
        (["set", "agent.max_turns", "lots"], "expected a whole number or null"),
        (["set", "approvals", "maybe"], "expected `ask`, `allow` or `deny`"),
        (["set", "terminal.backend", "modal"], "not in this release"),
        (["set", "a..b", "3"], "a part of it is empty"),
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_written(
    hermes: Hermes, hermes_home: Path, args: list[str], message: str
) -> None:
    ran = hermes("config", *args)
    assert ran.code == 2 and message in ran.err
    assert not (hermes_home / "config.yaml").exists()


def test_an_unknown_key_is_written_with_a_note(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("config", "set", "somewhere.else", "1")
    assert ran.code == 0 and "no setting of this program" in ran.err
    assert hermes("config", "get", "somewhere.else").out == "1\n"


def test_a_question_for_what_is_not_there_names_the_nearest(hermes: Hermes) -> None:
    ran = hermes("config", "get", "agent.max_turnz")
    assert ran.code == 1 and "Did you mean agent.max_turns?" in ran.err


def test_check(hermes: Hermes, hermes_home: Path) -> None:
    assert hermes("config", "check").code == 0
    path = hermes_home / "config.yaml"
    path.write_text("agent:\n  max_turns: 3\n")
    assert hermes("config", "check").out == f"{path} is fine\n"
    path.write_text("agent:\n  max_turn: 3\ngoals: {}\n")
    ran = hermes("config", "check")
    assert ran.code == 2 and f"error: {path}:2: " in ran.out and f"note: {path}:3: goals" in ran.out
    assert len(json.loads(hermes("config", "check", "--json").out)["problems"]) == 2


def test_a_broken_file_is_not_edited(hermes: Hermes, hermes_home: Path) -> None:
    path = hermes_home / "config.yaml"
    path.write_text("agent:\n\tmax_turns: 3\n")
    for args in (["set", "model", "x"], ["unset", "model"], ["show"], ["check"]):
        ran = hermes("config", *args)
        assert ran.code == 2 and f"{path}:2: a tab" in ran.err
    assert path.read_text() == "agent:\n\tmax_turns: 3\n"


@pytest.mark.fault("B135")
def test_a_profile_has_settings_of_its_own(hermes: Hermes, hermes_home: Path) -> None:
    work = hermes_home / "profiles" / "work"
    work.mkdir(parents=True)
    (hermes_home / "config.yaml").write_text("model: root\n")
    (work / "config.yaml").write_text("model: own\n")
    assert hermes("config", "get", "model").out == "root\n"
    assert hermes("-p", "work", "config", "get", "model").out == "own\n"
    assert hermes("-p", "play", "config", "get", "model").code == 2


def test_an_unwritable_home_names_path_and_cure(hermes: Hermes, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("x")
    monkeypatch.setenv("HERMES_HOME", str(home / "file"))
    ran = hermes("config", "set", "agent.max_turns", "3")
    assert ran.code == 1 and str(home / "file") in ran.err and "HERMES_HOME" in ran.err
    ran = hermes("doctor")
    assert ran.code == 1 and "✗ home: " in ran.out


def test_one_section_can_be_shown(hermes: Hermes) -> None:
    ran = hermes("config", "show", "delegation")
    lines = ran.out.splitlines()[1:]
    assert ran.code == 0 and lines and all(line.startswith("  delegation.") for line in lines)
    assert len(hermes("config", "show", "delegation.model").out.splitlines()) == 2
    wrong = hermes("config", "show", "delegatoin")
    assert wrong.code == 2 and "'delegatoin'" in wrong.err and "delegation" in wrong.err


def test_an_editor_is_opened_and_what_it_leaves_is_checked(
    hermes: Hermes, hermes_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "my editor"
    monkeypatch.setenv("VISUAL", f"'{editor}' -w")

    def write(text: str, code: int = 0) -> None:
        editor.write_text(f"#!/bin/sh\nprintf %s '{text}' > \"$2\"\nexit {code}\n", encoding="utf-8")
        editor.chmod(0o700)

    write("model: имя\n")
    ran = hermes("config", "edit")
    assert ran.code == 0 and "config.yaml is fine" in ran.out
    assert hermes("config", "get", "model").out == "имя\n"
    write("agent: {max_turns: many}\n")
    ran = hermes("config", "edit")
    assert ran.code == 2 and "error: " in ran.out and "config.yaml:1" in ran.out
    write("", code=3)
    ran = hermes("config", "edit")
    assert ran.code == 1 and "ended with code 3" in ran.err
    monkeypatch.setenv("VISUAL", "/no/such/editor")
    assert "cannot be started" in hermes("config", "edit").err
    monkeypatch.delenv("VISUAL")
    monkeypatch.delenv("EDITOR", raising=False)
    assert hermes("config", "edit").code == 2  # no terminal


def test_ctrl_c_in_the_editor_ends_neither_it_nor_the_command(tmp_path: Path) -> None:
    program = Program(tmp_path)
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nkill -INT $PPID\nprintf 'model: kept\\n' > \"$1\"\n", encoding="utf-8")
    editor.chmod(0o700)
    program.environ |= {"EDITOR": str(editor)}
    ran = program.run("config", "edit")
    assert ran.code == 0, ran.err
    assert (program.home / "config.yaml").read_text(encoding="utf-8") == "model: kept\n"
