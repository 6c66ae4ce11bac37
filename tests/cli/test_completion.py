"""Completion: bash itself is asked, and what is offered comes from the home."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.chat.render import printable
from hermes.store.database import open_writer
from tests.cli.conftest import Ran

#: What a person's Tab does: bash calls the function with the words of the line.
_TAB = """
eval "$(hermes completion bash)"
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_hermes_completion hermes
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def filled(hermes_home: Path) -> Path:
    """A home with a session, three tasks, a profile and settings."""
    db = open_writer(hermes_home / "runtime.db")
    db.execute(
        "INSERT INTO sessions (session_id, root_task, created_at, updated_at, source, title, cwd, model) "
        "VALUES ('20260225_143052_a1b2c3', 'main_00', 1, 1, 'cli', 'Яблоки \x1b[31m', '/', 'vendor/used')"
    )
    for n, (task, ended) in enumerate([("sa-1111", 2.0), ("sa-1122", None), ("main_00", None)]):
        db.execute(
            "INSERT INTO tasks (task_id, session_id, root_id, kind, role, depth, goal, state, spec, owner, epoch, "
            "child_index, group_id, attempt, created_at, ended_at) VALUES (?, '20260225_143052_a1b2c3', 'main_00', "
            "'child', 'leaf', 1, 'dig', ?, x'00', 'o', 0, ?, '', 0, 1, ?)",
            (task, "running" if ended is None else "completed", n, ended),
        )
    db.commit()
    db.close()
    (hermes_home / "profiles" / "researcher").mkdir(parents=True)
    (hermes_home / "config.yaml").write_text("model: {default: my-model, aliases: {fast: gpt-5-mini}}\n")
    return hermes_home


def offered(*words: str) -> list[str]:
    """What bash offers for the last of these words; an empty one is the place after a space."""
    line = " ".join(f"'{word}'" for word in ("hermes", *words))
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", _TAB.format(words=line)],
        env=environ,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_ids_profiles_and_models(filled: Path, needs_tool: Callable[[str], Path]) -> None:
    needs_tool("bash")
    assert offered("upd") == ["update"]
    assert offered("tasks", "show", "sa-11") == ["sa-1122", "sa-1111"]  # what runs comes first
    assert offered("tasks", "show", "sa-%") == []
    assert offered("sessions", "show", "2026") == ["20260225_143052_a1b2c3"]
    assert offered("-p", "") == ["default", "researcher"]
    assert offered("-p", "researcher", "tasks", "show", "") == []  # that profile has no tasks
    assert offered("-m", "") == ["my-model", "fast", "embedded", "vendor/used"]


def ask(hermes: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, shell: str, *words: str) -> Ran:
    monkeypatch.setenv("_HERMES_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(("hermes", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)) if shell != "fish" else words[-1])
    return hermes()


def test_titles_are_told_and_act_on_no_terminal(
    filled: Path, hermes: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = ask(hermes, monkeypatch, "zsh", "sessions", "show", "2026")
    assert ran.out.startswith("plain\n20260225_143052_a1b2c3\nЯблоки") and printable(ran.out) == ran.out
    assert "running: dig" in ask(hermes, monkeypatch, "fish", "tasks", "show", "sa-1122").out
    assert "delegation.max_concurrent_children" in ask(hermes, monkeypatch, "bash", "config", "get", "delegation.m").out


@pytest.mark.parametrize("content", [b"not a database", b""])
def test_a_home_that_cannot_be_read_offers_nothing_and_says_nothing(
    hermes_home: Path, hermes: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    (hermes_home / "runtime.db").write_bytes(content)
    (hermes_home / "config.yaml").write_text("model: [\n", encoding="utf-8")
    for words in (("tasks", "show", ""), ("-m", ""), ("-p", "../x", "tasks", "show", "")):
        ran = ask(hermes, monkeypatch, "bash", *words)
        assert (ran.code, ran.out.strip(), ran.err) == (0, "", ""), words
    assert (hermes_home / "runtime.db").read_bytes() == content


def test_every_shell_gets_its_lines(hermes: Callable[..., Ran]) -> None:
    for shell, word in (("bash", "complete -o nosort -F"), ("zsh", "compdef"), ("fish", "complete --no-files")):
        ran = hermes("completion", shell)
        assert ran.code == 0 and word in ran.out and "_HERMES_COMPLETE" in ran.out
    assert hermes("completion", "tcsh").code == 2
